"""The figures that the lesson states, computed from its recorded runs: for each station a dict by name.

The lesson's texts hold no digit of their own: every number in them is filled in from here. Shares and probabilities
lie between 0 and 1, times are in seconds, log-probabilities are natural; a list of tokens is a tuple.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from inference.cache_check import ELEMENT_BYTES
from inference.cache_counts import dot_products, projected
from inference.experts import imbalance, routed_layers, routing
from inference.kv_memory import KVLayout
from inference.metrics import Speed, speed
from inference.sampling import SamplerStage, run_pipeline
from inference.sampling_params import OFF, SamplingParams
from inference.tokens import Token, written_by
from inference.trace import Trace

Values = dict[str, Any]

TOP_K, TOP_P, COLD, HOT = 2, 0.8, 0.5, 2.0  # the settings that the station on choosing compares
LONG = 1000  # tokens written in the station on the cache
SHORT_LIMIT = 2  # most new tokens of the station on stopping
CHAT = (100, 500)  # tokens of a prompt and of its answer, in the question on time
BIG_HEADS, BIG_WIDTH, BIG_ELEMENT = 8, 128, "float16"  # the larger model of the station on the formula
BIG_LAYERS, BIG_POSITIONS = 32, 8192


def values(run: Trace, chat: Trace, routed: Trace) -> dict[str, Values]:
    """Every station's figures.

    Args:
        run: of the kitten, whole, ended by its end token after three steps.
        chat: of a model with a chat template; `routed`: of a model with experts.
    """
    return {
        "prompt": prompt(run, chat),
        "tokens": tokens(run, chat),
        "prefill": prefill(run),
        "logits": logits(run),
        "choosing": choosing(run),
        "loop": loop(run),
        "cache": cache(run),
        "formula": formula(run),
        "stopping": stopping(run),
        "time": time(run),
        "experts": experts(routed),
    }


def mine(trace: Trace) -> list[bool]:
    """[P] whether each prompt token holds text that the reader wrote; the others were added for the model."""
    return written_by([token.data for token in trace.prompt_tokens], trace.request.texts)


def prompt(run: Trace, chat: Trace) -> Values:
    """How many tokens go in, and how many of them were added by the tokenizer or the template."""
    ours, theirs = mine(run), mine(chat)
    return {
        "prompt": "".join(run.request.texts),
        "n": len(ours),
        "n_written": sum(ours),
        "added": tuple(token.display for token, own in zip(run.prompt_tokens, ours, strict=True) if not own),
        "chat_model": chat.model.name,
        "chat_prompt": " ".join(chat.request.texts),
        "chat_n": len(theirs),
        "chat_written": sum(theirs),
        "chat_added": len(theirs) - sum(theirs),
    }


def tokens(run: Trace, chat: Trace) -> Values:
    """Characters, tokens and the size of the vocabulary; the first written token as the example."""
    own = [token for token, written in zip(run.prompt_tokens, mine(run), strict=True) if written]
    return {
        "n_characters": len("".join(run.request.texts)),
        "n_tokens": len(own),
        "token": own[0].display,
        "id": own[0].id,
        "n_vocabulary": run.model.vocab_size,
        "chat_model": chat.model.name,
        "chat_vocabulary": chat.model.vocab_size,
    }


def prefill(run: Trace) -> Values:
    """The one pass over the prompt: pairs of positions seen, cache filled, and the last position's sharpest head."""
    seen = run.visible(0, 0)
    layer, head = sharpest(run)
    return {
        "n": len(run.steps[0].fed_ids),
        "n_pairs": seen.size,
        "n_seen": int(seen.sum()),
        "n_layers": run.model.n_layers,
        "n_cached": int(run.steps[0].kv.positions.max()),
        **looked(run, layer, head, run.n_prompt - 1),
        "next": run.tokens[run.n_prompt].display,
    }


def sharpest(run: Trace) -> tuple[int, int]:
    """The layer and head in which the prompt's last position puts the largest weight on one position."""
    peaks = np.array([run.attention(0, layer)[:, -1].max(axis=-1) for layer in range(run.model.n_layers)])
    layer, head = np.unravel_index(peaks.argmax(), peaks.shape)
    return int(layer), int(head)


def looked(run: Trace, layer: int, head: int, position: int) -> Values:
    """How many positions a prompt position sees, and the one it reads most in a head."""
    row = run.attention(0, layer)[head, position]
    best = int(row.argmax())
    return {
        "layer": layer,
        "head": head,
        "position": position,
        "token": run.tokens[position].display,
        "n_visible": int(run.visible(0, layer)[position].sum()),
        "read": run.tokens[best].display,
        "weight": float(row[best]),
    }


def top(run: Trace, n: int) -> list[Token]:
    """The likeliest tokens of the first step."""
    return [run.vocabulary.token(int(i)) for i in run.logits(0).top(n)[0]]


def logits(run: Trace) -> Values:
    """The first distribution: its three likeliest tokens, and all others together."""
    a, b, c = top(run, 3)
    probs = run.probs(0).astype(np.float64)
    return {
        "last": run.tokens[run.n_prompt - 1].display,
        "n_vocabulary": len(probs),
        "total": float(probs.sum()),
        "a": a.display, "b": b.display, "c": c.display,
        "p_a": float(probs[a.id]), "p_b": float(probs[b.id]), "p_c": float(probs[c.id]),
        "logit": float(run.logits(0).values[a.id]),
        "p_rest": float(probs.sum() - probs[[a.id, b.id, c.id]].sum()),
    }  # fmt: skip


def raised(run: Trace, token_id: int, by: float) -> Values:
    """What adding `by` to one token's logit of the first step does to its probability and to its odds."""
    stages = pipeline(run, SamplingParams(greedy=False, sequence_bias=(((token_id,), by),)))
    before, after = (float(stage.probs[token_id]) for stage in (stages[0], stages[-1]))
    return {"by": by, "factor": math.exp(by), "before": before, "after": after}


def pipeline(run: Trace, params: SamplingParams) -> list[SamplerStage]:
    """Every stage of settings on the first step's logits."""
    context = run.context_ids(0).tolist()
    return run_pipeline(run.logits(0).values, params, context, run.n_prompt, run.eos_ids)


def choosing(run: Trace) -> Values:
    """What top-k, top-p and two temperatures make of the first distribution."""
    a, b = top(run, 2)
    by_k, by_p, cold, hot = (
        pipeline(run, SamplingParams(greedy=False, **setting))[-1]
        for setting in ({"top_k": TOP_K}, {"top_p": TOP_P}, {"temperature": COLD}, {"temperature": HOT})
    )
    return {
        "a": a.display, "b": b.display,
        "k": TOP_K, "k_a": float(by_k.probs[a.id]), "k_b": float(by_k.probs[b.id]),
        "p": TOP_P, "p_kept": kept(run, by_p),
        "off": OFF["temperature"],
        "cold": COLD, "cold_a": float(cold.probs[a.id]), "hot": HOT, "hot_a": float(hot.probs[a.id]),
    }  # fmt: skip


def kept(run: Trace, stage: SamplerStage) -> tuple[str, ...]:
    """The tokens that a stage leaves, likeliest first."""
    ids = np.flatnonzero(stage.kept)
    ids = ids[np.argsort(-stage.probs[ids], kind="stable")]
    return tuple(run.vocabulary.token(int(i)).display for i in ids)


def loop(run: Trace) -> Values:
    """The tokens chosen one after the other, and the log-probability of them all."""
    first, *_between, last = (run.vocabulary.token(step.token_id).display for step in run.steps)
    return {"n": len(run.steps), "first": first, "last": last, **likelihood(run)}


def likelihood(run: Trace) -> Values:
    """The log-probabilities of the steps, and their sum after each (the chain rule); `loss` is minus the last sum."""
    logprobs = [step.decision.raw_logprob for step in run.steps]
    sums = np.cumsum(logprobs)
    return {"loss": -float(sums[-1]), "p_total": math.exp(sums[-1]), "logprobs": logprobs, "sums": sums.tolist()}


def cache(run: Trace) -> Values:
    """Positions held after each step, and what the passes would have projected without the cache."""
    held = run.kv.positions.max(axis=1).tolist()
    n_prompt, n = run.n_prompt, len(run.steps)
    return {
        "n_prefill": held[0],
        "n_end": held[-1],
        "held": " → ".join(map(str, held)),
        "end": run.tokens[-1].display,
        "projected": int(projected(n_prompt, n, cached=True).sum()),
        "repeated": int(projected(n_prompt, n, cached=False).sum()),
        **written(LONG),
    }


def written(n: int) -> Values:
    """The work for `n` passes that begin with a single token: keys and values projected, and dot products.

    Without a cache every pass projects all positions anew; a new token is compared with all before it either way.
    """
    return {
        "n_long": n,
        "long_projected": int(projected(1, n, cached=True).sum()),
        "long_repeated": int(projected(1, n, cached=False).sum()),
        "long_dots": int(dot_products(1, n, cached=True).sum()),
    }


def formula(run: Trace) -> Values:
    """The formula with the run's own figures, what the cache's tensors measured, and what shared heads save."""
    model, positions = run.model, int(run.steps[-1].kv.positions.max())
    element, layout = model.dtype, KVLayout.from_geometry(model.n_layers, model.n_kv_heads, model.head_dim)
    all_heads = KVLayout.from_geometry(model.n_layers, model.n_heads, model.head_dim)
    return {
        "layers": model.n_layers, "positions": positions, "kv_heads": model.n_kv_heads, "head_dim": model.head_dim,
        "element_bytes": ELEMENT_BYTES[element],
        "formula": layout.formula(positions, element=element).removesuffix(" bytes"),
        "nbytes": layout.bytes(positions, element=element),
        "measured": int(run.steps[-1].kv.nbytes.sum()),
        "token_bytes": layout.bytes_per_token(element),
        "heads": model.n_heads,
        "mha_bytes": all_heads.bytes(positions, element=element),
        "ratio": model.n_heads / model.n_kv_heads,
        "big_kv_heads": BIG_HEADS, "big_head_dim": BIG_WIDTH, "big_element_bytes": ELEMENT_BYTES[BIG_ELEMENT],
    }  # fmt: skip


def big(layers: int, positions: int) -> Values:
    """The cache of one sequence of the larger model: the formula with its numbers, and the bytes."""
    layout = KVLayout.from_geometry(layers, BIG_HEADS, BIG_WIDTH)
    return {
        "formula": layout.formula(positions, element=BIG_ELEMENT).removesuffix(" bytes"),
        "nbytes": layout.bytes(positions, element=BIG_ELEMENT),
        "token_bytes": layout.bytes_per_token(BIG_ELEMENT),
    }


def stopping(run: Trace) -> Values:
    """What ended the run, and what of it is text."""
    end = run.vocabulary.token(run.steps[-1].token_id)
    return {
        "end": end.display,
        "end_id": end.id,
        "text": run.text,
        "before": run.tokens[-2].display,
        "n": len(run.steps),
        "limit": SHORT_LIMIT,
    }


def time(run: Trace) -> Values:
    """The run's own clock, and the passes that a chat takes."""
    n_in, n_out = CHAT
    counts = {"n_in": n_in, "n_out": n_out, "passes": len(projected(n_in, n_out, cached=True))}
    return {**paces(speed(run)), "n": len(run.steps), "n_prompt": run.n_prompt, "machine": machine(run),
            **counts, "decodes": counts["passes"] - 1}  # fmt: skip


def machine(run: Trace) -> str:
    """What made the run's times."""
    return run.versions.get("machine") or run.model.device


def paces(counted: Speed) -> Values:
    """TTFT and TPOT in milliseconds, tokens a second after the first and over the whole request; a lone token has
    no TPOT."""
    return {
        "ttft_ms": None if counted.ttft_s is None else counted.ttft_s * 1e3,
        "tpot_ms": None if counted.tpot_s is None else counted.tpot_s * 1e3,
        "decode_tok_s": counted.decode_tok_s,
        "request_tok_s": counted.request_tok_s,
    }


def experts(routed: Trace) -> Values:
    """How many experts a token goes to, for the prompt's word that the last router divides most evenly."""
    layer = routed_layers(routed)[-1]
    found = routing(routed, layer)
    words = [at for at, token in enumerate(routed.prompt_tokens) if token.display.isalpha()]
    position = words[int(found.weights[words].min(axis=1).argmax())]
    return {
        "n_experts": found.logits.shape[1],
        "k": found.experts.shape[1],
        "n_layers": len(routed_layers(routed)),
        "n_fed": len(found.experts),
        "busiest": int(found.load.argmax()),
        "times": imbalance(found.load),
        **sent(routed, layer, position),
    }


def sent(routed: Trace, layer: int, position: int) -> Values:
    """The experts of one token in one layer, the heaviest first, with the weights of their outputs."""
    found = routing(routed, layer)
    order = np.argsort(-found.weights[position], kind="stable")
    names, weights = found.experts[position][order], found.weights[position][order]
    return {
        "token": routed.tokens[position].display,
        "layer": layer,
        "position": position,
        "chosen": joined([f"{e} ({w:.2f})" for e, w in zip(names, weights, strict=True)]),
        "first": int(names[0]),
        "first_gate": float(found.gates[position, names[0]]),
    }


def joined(parts: Sequence[str]) -> str:
    """Parts as a sum."""
    return " + ".join(parts)
