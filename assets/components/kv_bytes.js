// The calculator's arithmetic, exact in BigInt: the same rules as inference/kv_layers.py and inference/elements.py.
//
// A plan is {groups, types, pairs, encoder, page, tp}: groups are equal layers with their count; types the element types
// of keys and of values; pairs [length, how many sequences have it]; encoder the positions of an encoder; page the
// positions a block; tp the tensor-parallel devices. Counts are BigInt or safe integers.

const big = BigInt;
const ceilDivide = (a, b) => (a + b - 1n) / b;

// What a plan cannot be counted with: the field, the name of a sentence, and what fills it in.
class Refusal extends Error {
  constructor(field, sentence, values) {
    super(sentence);
    Object.assign(this, { field, sentence, values });
  }
}

// Heads of one device; fewer heads than devices are replicated.
function headsOf(heads, tp) {
  if (tp % heads === 0n) return 1n;
  return share(heads, tp, "kv_heads");
}

function share(amount, tp, name) {
  if (amount % tp) throw new Refusal("tp", "shares", { name, amount, degree: tp });
  return amount / tp;
}

function rowsBytes(type, rows, width) {
  const [block, size] = [big(type.block), big(type.block_bytes)];
  if (type.across_heads) return ceilDivide(rows * width, block) * size;
  if (width % block) throw new Refusal("element", "blocks", { element: type.name, block, width });
  return rows * ((width / block) * size + big(type.row_bytes));
}

// Positions that a layer keeps of a sequence, in whole pages.
function positionsOf(group, length, encoder, page) {
  let kept = group.kind === "cross" ? encoder : length;
  if (group.window && group.window < kept) kept = group.window;
  return ceilDivide(big(kept), page) * page;
}

// Bytes of all layers of one group, for all sequences.
function groupBytes(group, plan) {
  const [count, tp] = [big(group.count), big(plan.tp)];
  const sequences = plan.pairs.reduce((sum, [, copies]) => sum + big(copies), 0n);
  if (group.kind === "state") {
    const conv = share(big(group.conv_channels), tp, "conv_channels") * big(group.conv_kernel) * big(plan.types[0].model_bytes);
    return count * sequences * (conv + share(big(group.recurrent_elements), tp, "recurrent_elements") * 4n);
  }
  if (!group.kv_heads) return 0n;
  const heads = headsOf(big(group.kv_heads), tp);
  const [keyType, valueType] = group.kind === "latent" ? [plan.types[0], plan.types[0]] : plan.types;
  let held = 0n;
  for (const [length, copies] of plan.pairs) {
    const rows = positionsOf(group, length, plan.encoder, big(plan.page)) * heads;
    const one = rowsBytes(keyType, rows, big(group.key_dim)) + rowsBytes(valueType, rows, big(group.value_dim));
    held += big(copies) * one;
  }
  return count * held;
}

function totalBytes(plan) {
  return plan.groups.reduce((sum, group) => sum + groupBytes(group, plan), 0n);
}

// Thousands with commas, as the server writes them.
const grouped = (number) => String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

// number / unit with at most three decimals, rounded to the nearest; a tie goes to the even digit, as in Python.
function decimal(number, unit) {
  const scaled = number * 1000n;
  let thousandths = scaled / unit;
  const rest = (scaled % unit) * 2n;
  if (rest > unit || (rest === unit && thousandths % 2n)) thousandths += 1n;
  const fraction = String(thousandths % 1000n).padStart(3, "0").replace(/0+$/, "");
  return grouped(thousandths / 1000n) + (fraction && `.${fraction}`);
}

const BINARY = [["KiB", 1n << 10n], ["MiB", 1n << 20n], ["GiB", 1n << 30n]];
const DECIMAL = [["KB", 10n ** 3n], ["MB", 10n ** 6n], ["GB", 10n ** 9n]];

// The binary unit in which a number of bytes reads best.
function readable(bytes) {
  const found = BINARY.findLast(([, unit]) => bytes >= unit);
  return found ? `${decimal(bytes, found[1])} ${found[0]}` : `${bytes} B`;
}
