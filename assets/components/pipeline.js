// The sampling pipeline in the browser: the same rules, numbers and order of tokens as the server's, without a page.
//
// A stage is {name, ids, scores, probs}: the tokens that are left, likeliest first (equal ones in id order), with
// float32 scores and probabilities. Scores are sorted once; what each step changes is put in its place, so that no
// step sorts the vocabulary again. Arithmetic is float32 where the server's is, by Math.fround, and float64 elsewhere.

const GREEDY_BELOW = 1e-5;
const BOUNDARY = 1e-6; // what a cumulative sum of float32 probabilities is uncertain by
const LARGEST = 3.4028234663852886e38;
const TOP_H_CANDIDATES = 100;
const BLOCK = 256; // sums are taken block by block: rounding then grows with the blocks, not with the vocabulary

export class PipelineError extends Error {
  // `kind` is "not_finite" (with `id` and `value`) or "empty" (with `step`).
  constructor(kind, values) {
    super(kind);
    Object.assign(this, { kind, ...values });
  }
}

// ---- what a pipeline runs on ------------------------------------------------------------------------------------

// The raw logits of a position (Float32Array, -inf where there is no token to choose), sorted; and what was written.
export function prepare(logits, { ids = [], nPrompt = 0, eosIds = [] } = {}) {
  const present = [];
  for (let id = 0; id < logits.length; id += 1) {
    if (!(logits[id] < Infinity)) throw new PipelineError("not_finite", { id, value: logits[id] });
    if (logits[id] > -Infinity) present.push(id);
  }
  if (!present.length) throw new PipelineError("empty", { step: "raw" });
  const [sorted, scores] = sortByScore(present, Float32Array.from(present, (id) => logits[id]));
  const raw = stage("raw", sorted, scores);
  return { size: logits.length, context: { ids, nPrompt, eosIds }, recent: [{ keys: [], stages: [raw] }] };
}

// Every stage, "raw" first, then one a step of `order` (names) that the settings make active. What the two latest runs
// began with and is asked again is not computed again: a slider moves, and the steps before its own stay.
export function runPipeline(prepared, settings, order) {
  const steps = activeSteps(settings, order);
  const keys = steps.map(([name]) => `${name} ${JSON.stringify(settings[name])}`);
  const shared = (run) => keys.concat("").findIndex((key, at) => key !== run.keys[at]);
  const nearest = prepared.recent.reduce((best, run) => (shared(run) > shared(best) ? run : best));
  const stages = nearest.stages.slice(0, shared(nearest) + 1);
  for (const [name, step] of steps.slice(stages.length - 1)) {
    const before = stages.at(-1);
    const [ids, scores] = step(before, prepared.context);
    if (!ids.length) throw new PipelineError("empty", { step: name });
    stages.push(ids === before.ids && scores === before.scores ? { ...before, name } : stage(name, ids, scores));
  }
  prepared.recent = [{ keys, stages }, prepared.recent[0]];
  return stages;
}

// The token that a number u in [0, 1) falls on: inverse CDF of a stage, in probability order.
export function choose({ ids, probs }, u) {
  let mass = 0;
  for (let at = 0; at < ids.length; at += 1) {
    mass += probs[at];
    if (mass > u) return ids[at];
  }
  return ids.at(-1);
}

export function isGreedy({ greedy, temperature }) {
  return Boolean(greedy) || (isSet(temperature) && temperature <= GREEDY_BELOW);
}

// Whether two stages hold the same tokens with the same probabilities, to a millionth.
export function sameDistribution(one, other, size) {
  if (one.ids.length !== other.ids.length) return false;
  const probs = new Float32Array(size).fill(-1);
  for (let at = 0; at < one.ids.length; at += 1) probs[one.ids[at]] = one.probs[at];
  return other.ids.every((id, at) => Math.abs(probs[id] - other.probs[at]) <= 1e-6);
}

// ---- the steps: (stage, context) -> [ids, scores] ---------------------------------------------------------------

const isSet = (value) => value !== null && value !== undefined;

// Name of the step (= of the setting) -> from the settings, the step, or nothing where it is off.
const STEPS = {
  sequence_bias: (s) => s.sequence_bias?.length && sequenceBias(s.sequence_bias),
  repetition_penalty: (s) => isSet(s.repetition_penalty) && s.repetition_penalty !== 1 && repetition(s.repetition_penalty),
  no_repeat_ngram_size: (s) => s.no_repeat_ngram_size && noRepeat(s.no_repeat_ngram_size),
  bad_words_ids: (s) => s.bad_words_ids?.length && badWords(s.bad_words_ids),
  min_new_tokens: (s) => s.min_new_tokens && minNewTokens(s.min_new_tokens),
  suppress_tokens: (s) => s.suppress_tokens?.length && ((before) => without(before, s.suppress_tokens)),
  frequency_penalty: (s) => s.frequency_penalty && subtract((count) => count * s.frequency_penalty),
  presence_penalty: (s) => s.presence_penalty && subtract(() => s.presence_penalty),
  temperature: (s) => isSet(s.temperature) && s.temperature !== 1 && temperature(s.temperature),
  top_h: (s) => isSet(s.top_h) && topH(s.top_h),
  top_k: (s) => s.top_k && topK(s.top_k),
  top_p: (s) => isSet(s.top_p) && s.top_p < 1 && topP(s.top_p),
  min_p: (s) => s.min_p && minP(s.min_p),
  typical_p: (s) => isSet(s.typical_p) && s.typical_p < 1 && typicalP(s.typical_p),
  epsilon_cutoff: (s) => s.epsilon_cutoff && ((before) => atLeast(before, s.epsilon_cutoff)),
  eta_cutoff: (s) => s.eta_cutoff && etaCutoff(s.eta_cutoff),
};

// These shape the random draw; greedy decoding leaves them out.
const DRAWING = new Set(["temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"]);

function activeSteps(settings, order) {
  const greedy = isGreedy(settings);
  const named = order.filter((name) => !(greedy && DRAWING.has(name))).map((name) => [name, STEPS[name](settings)]);
  const active = named.filter(([, step]) => step);
  return greedy ? [...active, ["greedy", (before) => window(before, 0, 1)]] : active;
}

function sequenceBias(biases) {
  return (before, { ids }) => {
    const total = new Map();
    for (const [sequence, bias] of biases) {
      if (justWritten(ids, sequence.slice(0, -1))) total.set(sequence.at(-1), (total.get(sequence.at(-1)) ?? 0) + bias);
    }
    return changed(before, total, (score, amount) => score + Math.fround(amount));
  };
}

function repetition(penalty) {
  const factor = Math.fround(penalty);
  return (before, { ids }) => changed(before, counted(ids), (score) => (score < 0 ? score * factor : score / factor));
}

function subtract(amount) {
  return (before, { ids, nPrompt }) =>
    changed(before, counted(ids.slice(nPrompt)), (score, count) => score - Math.fround(amount(count)));
}

function noRepeat(n) {
  return (before, { ids }) => {
    const start = ids.slice(ids.length - n + 1);
    const banned = [];
    for (let at = 0; at + n <= ids.length; at += 1) {
      if (start.every((id, offset) => ids[at + offset] === id)) banned.push(ids[at + n - 1]);
    }
    return without(before, banned);
  };
}

function badWords(sequences) {
  return (before, { ids, eosIds }) => {
    const acts = (s) => !(s.length === 1 && eosIds.includes(s[0])) && justWritten(ids, s.slice(0, -1));
    return without(before, sequences.filter(acts).map((s) => s.at(-1)));
  };
}

function minNewTokens(n) {
  return (before, { ids, nPrompt, eosIds }) => without(before, ids.length - nPrompt >= n ? [] : eosIds);
}

function temperature(value) {
  const divisor = Math.fround(value);
  return ({ ids, scores }) => {
    const divided = scores.map((score) => clipped(score / divisor));
    return [tiesInIdOrder(ids, divided), divided];
  };
}

function topH(share) {
  return (before) => {
    const probs = softmax(before.scores.subarray(0, TOP_H_CANDIDATES));
    const terms = Array.from(probs, (p) => (p > 0 ? -p * Math.log(p) : 0));
    const limit = (share + BOUNDARY) * terms.reduce((sum, term) => sum + term, 0);
    let sum = 0;
    return window(before, 0, Math.max(1, terms.filter((term) => (sum += term) <= limit).length));
  };
}

function topK(k) {
  return (before) => {
    const { scores } = before;
    let kept = Math.min(k, scores.length);
    while (kept < scores.length && scores[kept] === scores[kept - 1]) kept += 1; // all that tie with the k-th
    return window(before, 0, kept);
  };
}

function topP(p) {
  return (before) => {
    const { probs } = before;
    let kept = 0;
    for (let mass = 0; kept < probs.length; kept += 1) {
      mass += probs[kept];
      if (!(mass - probs[kept] < p - BOUNDARY)) break;
    }
    return window(before, 0, Math.max(1, kept));
  };
}

function minP(share) {
  return (before) => {
    const { scores } = before;
    const least = share * (1 - BOUNDARY);
    return window(before, 0, prefix(scores.length, (at) => Math.exp(Math.fround(scores[at] - scores[0])) >= least));
  };
}

// In probability order the distance from the entropy falls and then rises, so what is kept is a window around the
// nearest token that grows on its nearer side.
function typicalP(p) {
  return (before) => {
    const { probs } = before;
    const middle = entropy(probs);
    const distance = (at) => (at < 0 || at >= probs.length ? NaN : Math.abs(-Math.log(probs[at]) - middle));
    let from = prefix(probs.length, (at) => -Math.log(probs[at]) < middle);
    let to = from;
    let cut = 0;
    let mass = 0;
    while (to - from < probs.length) {
      const above = distance(from - 1);
      const takeAbove = to >= probs.length || above < distance(to);
      cut = takeAbove ? above : distance(to);
      mass += takeAbove ? probs[(from -= 1)] : probs[to++];
      if (!(mass < p - BOUNDARY)) break;
    }
    while (distance(from - 1) <= cut) from -= 1;
    while (distance(to) <= cut) to += 1;
    return window(before, from, to);
  };
}

function etaCutoff(epsilon) {
  return (before) => atLeast(before, Math.min(epsilon, Math.sqrt(epsilon) * Math.exp(-entropy(before.probs))));
}

function atLeast(before, cutoff) {
  const { scores, probs } = before;
  const least = Math.fround(cutoff * (1 - BOUNDARY));
  return window(before, 0, prefix(probs.length, (at) => probs[at] >= least || scores[at] >= scores[0]));
}

// ---- stages -----------------------------------------------------------------------------------------------------

function stage(name, ids, scores) {
  return { name, ids, scores, probs: softmax(scores) };
}

// Probabilities of scores that are sorted, highest first.
function softmax(scores) {
  const weights = new Float64Array(scores.length);
  let total = 0;
  for (let from = 0; from < scores.length; from += BLOCK) {
    const to = Math.min(from + BLOCK, scores.length);
    let sum = 0;
    for (let at = from; at < to; at += 1) sum += weights[at] = Math.exp(Math.fround(scores[at] - scores[0]));
    total += sum;
  }
  const probs = new Float32Array(scores.length);
  for (let at = 0; at < probs.length; at += 1) probs[at] = weights[at] / total;
  return probs;
}

// Shannon entropy in nats.
export function entropy(probs) {
  let total = 0;
  for (let from = 0; from < probs.length; from += BLOCK) {
    const to = Math.min(from + BLOCK, probs.length);
    let sum = 0;
    for (let at = from; at < to; at += 1) if (probs[at] > 0) sum -= probs[at] * Math.log(probs[at]);
    total += sum;
  }
  return total;
}

// The tokens from one place in probability order to before another.
function window({ ids, scores }, from, to) {
  return from === 0 && to === ids.length ? [ids, scores] : [ids.subarray(from, to), scores.subarray(from, to)];
}

// How many tokens from the first on fulfil a condition that, once false, stays so.
function prefix(length, holds) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The scores of the ids in `values` (Map id -> value) changed; those tokens move to their new places.
function changed({ ids, scores }, values, change) {
  if (!values.size) return [ids, scores];
  const moved = [];
  const movedScores = [];
  const stayed = new Int32Array(ids.length);
  const stayedScores = new Float32Array(ids.length);
  let n = 0;
  for (let at = 0; at < ids.length; at += 1) {
    const value = values.get(ids[at]);
    if (value === undefined) {
      stayed[n] = ids[at];
      stayedScores[n] = scores[at];
      n += 1;
    } else {
      moved.push(ids[at]);
      movedScores.push(clipped(change(scores[at], value)));
    }
  }
  return merged(...sortByScore(moved, movedScores), stayed.subarray(0, n), stayedScores.subarray(0, n));
}

function merged(ids, scores, otherIds, otherScores) {
  const allIds = new Int32Array(ids.length + otherIds.length);
  const allScores = new Float32Array(allIds.length);
  for (let at = 0, i = 0, j = 0; at < allIds.length; at += 1) {
    const first =
      j >= otherIds.length ||
      (i < ids.length && (scores[i] > otherScores[j] || (scores[i] === otherScores[j] && ids[i] < otherIds[j])));
    allIds[at] = first ? ids[i] : otherIds[j];
    allScores[at] = first ? scores[i++] : otherScores[j++];
  }
  return [allIds, allScores];
}

function without({ ids, scores }, banned) {
  const gone = new Set(banned);
  const keep = (_, at) => !gone.has(ids[at]);
  return gone.size && ids.some((id) => gone.has(id)) ? [ids.filter(keep), scores.filter(keep)] : [ids, scores];
}

// Division may make neighbours equal, and equal tokens stand in id order.
function tiesInIdOrder(ids, scores) {
  let sorted = ids;
  for (let at = 1; at < ids.length; at += 1) {
    if (scores[at] !== scores[at - 1] || ids[at] > ids[at - 1]) continue;
    let from = at - 1;
    while (from > 0 && scores[from - 1] === scores[at]) from -= 1;
    let to = at + 1;
    while (to < ids.length && scores[to] === scores[at]) to += 1;
    if (sorted === ids) sorted = ids.slice();
    sorted.subarray(from, to).sort();
    at = to - 1;
  }
  return sorted;
}

// Ids and scores, highest score first and equal ones in id order: both packed into one exact integer, which the
// browser sorts natively. The bits of a float, the sign turned, count as the float does; an id has up to 21 bits.
function sortByScore(ids, scores) {
  const bits = new Uint32Array(Float32Array.from(scores, (score) => score + 0).buffer); // + 0: -0 equals 0
  const packed = new Float64Array(ids.length);
  for (let at = 0; at < ids.length; at += 1) {
    const rank = bits[at] & 0x80000000 ? bits[at] : ~bits[at] & 0x7fffffff; // descending
    packed[at] = (rank >>> 0) * 2 ** 21 + ids[at];
  }
  packed.sort();
  const sortedIds = Int32Array.from(packed, (value) => value % 2 ** 21);
  const unpacked = Uint32Array.from(packed, (value) => {
    const rank = Math.floor(value / 2 ** 21);
    return rank >= 0x80000000 ? rank : ~rank & 0x7fffffff;
  });
  return [sortedIds, new Float32Array(unpacked.buffer)];
}

// ---- small things -----------------------------------------------------------------------------------------------

const clipped = (score) => Math.min(Math.max(Math.fround(score), -LARGEST), LARGEST);

const justWritten = (ids, start) => start.length <= ids.length && start.every((id, at) => ids[ids.length - start.length + at] === id);

// How often each id occurs.
function counted(ids) {
  const counts = new Map();
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
  return counts;
}
