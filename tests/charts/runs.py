"""Recorded runs built by hand, without a model: awkward tokens, known logits, random queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inference.attention import LayerSpec
from inference.request import GenerationRequest
from inference.sampling import SamplingParams, decide
from inference.sampling_steps import Context
from inference.stopping import Finish
from inference.tokens import Vocabulary
from inference.trace import AttentionRecord, KVState, Logits, ModelFacts, StepRecord, StepTiming, Trace

# id -> bytes; 0 is special, 3 and 8 read the same, 9 to 11 are the pieces of one emoji, 12 to 14 look like markup
PIECES = (
    b"<|end|>", b" cat", b"The", b" the", b" sat", b"\n", b" on", b" mat", b" the", b"\xf0\x9f", b"\x98", b"\x80",
    b"<b>x</b>", b"&lt;", b"<br>", b"$y$", b" a very long token indeed", "مرحبا".encode(), b"\t", b".",
)  # fmt: skip
V = len(PIECES)
L, H, G, D = 2, 4, 2, 8
SCALE = 0.25
CACHE_BYTES = 2 * G * D * 4  # a position and layer: key and value, two KV heads of eight float32


def vocabulary() -> Vocabulary:
    """The pieces above."""
    return Vocabulary.from_bytes(PIECES, frozenset({0}))


def logits_of(n: int, seed: int = 0) -> np.ndarray:
    """[n, V] float32 logits, spread widely enough to be told apart."""
    return np.random.default_rng(seed).normal(0, 2, (n, V)).astype(np.float32)


def run(
    prompt: Sequence[int] = (2, 1, 4, 6),
    chosen: Sequence[int] = (3, 7, 19),
    logits: np.ndarray | None = None,
    sampling: SamplingParams | None = None,
    keep: int | None = None,
    layers: Sequence[LayerSpec | None] | None = None,
    finish: Finish | None = None,
) -> Trace:
    """A run that feeds `prompt` and chooses `chosen`, in float32.

    Args:
        logits: [N, V] of the steps.
        keep: how many of the highest logits are recorded; all if `None`, none if 0.
        layers: what each layer's attention does; two plain ones if `None`.
    """
    sampling = sampling or SamplingParams(greedy=False)
    logits = logits_of(len(chosen)) if logits is None else logits
    specs = tuple(layers) if layers is not None else (LayerSpec(H, SCALE), LayerSpec(H, SCALE))
    random = np.random.default_rng(1)
    written = [*prompt, *chosen]
    steps = []
    for index, token_id in enumerate(chosen):
        first = 0 if index == 0 else len(prompt) + index - 1
        fed = np.array(written[first : len(prompt) + index], dtype=np.int64)
        context = Context(np.array(written[: len(prompt) + index], dtype=np.int64), len(prompt), (0,))
        decision = decide(logits[index], sampling.steps(), context, 0.5, token_id)
        attention = AttentionRecord(
            queries=tuple(random.normal(0, 2, (H, len(fed), D)).astype(np.float32) for _ in specs),
            keys=tuple(random.normal(0, 2, (G, len(fed), D)).astype(np.float32) for _ in specs),
            visible=tuple(_spans(first, len(fed), spec) for spec in specs),
        )
        held = np.full(len(specs), len(prompt) + index, dtype=np.int64)
        kv = KVState(held, held * CACHE_BYTES, np.full(len(specs), len(fed)), np.zeros(len(specs), dtype=np.int64))
        steps.append(
            StepRecord(
                index=index,
                phase="decode" if index else "prefill",
                fed_ids=fed,
                decision=replace(decision, forced=False, draw_u=0.5),
                kv=kv,
                timing=StepTiming(0.02 + 0.001 * index, 0.001, 0.0005, 0.1 + 0.025 * index, (0.02,)),
                text=PIECES[token_id].decode("utf-8", "replace"),
                logits=_logits(logits[index], keep),
                attention=attention,
            )
        )
    return _trace(prompt, steps, sampling, specs, finish or Finish("length"))


def _spans(first: int, n: int, spec: LayerSpec | None) -> np.ndarray:
    ends = np.arange(first, first + n) + 1
    window = spec.window if spec and spec.window else ends[-1]
    return np.stack([np.maximum(0, ends - window), ends], axis=1).astype(np.int32)


def _logits(values: np.ndarray, keep: int | None) -> Logits | None:
    if keep == 0:
        return None
    log_z = float(np.log(np.exp(values.astype(np.float64)).sum()))
    if keep is None:
        return Logits(values, log_z)
    ids = np.argsort(-values, kind="stable")[:keep].astype(np.int64)
    return Logits(values[ids], log_z, ids)


def _trace(
    prompt: Sequence[int],
    steps: Sequence[StepRecord],
    sampling: SamplingParams,
    specs: tuple[LayerSpec | None, ...],
    finish: Finish,
) -> Trace:
    words = vocabulary()
    facts = ModelFacts(
        name="hand-made",
        architecture="Hand",
        dtype="float32",
        device="cpu",
        n_layers=len(specs),
        n_heads=H,
        n_kv_heads=G,
        head_dim=D,
        hidden_size=H * D,
        vocab_size=V,
        n_params=1,
        context_length=64,
        n_experts=0,
        attention="recorded",
    )
    return Trace(
        model=facts,
        request=GenerationRequest(prompt="by hand", max_new_tokens=len(steps), sampling=sampling),
        sampling=sampling,
        origin={},
        eos_ids=(0,),
        prompt_tokens=tuple(words.token(i) for i in prompt),
        steps=tuple(steps),
        finish=finish,
        vocabulary=words,
        layers=specs,
    )
