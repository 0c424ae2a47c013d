"""The recorded run: frozen records of NumPy arrays, and views derived from them on demand.

Knows everything that was recorded and nothing else: it opens and answers without torch, a model or a GPU. What was
not recorded raises `TraceError` and is named in `Trace.left_out`.

Dimension letters, used everywhere:
    T tokens so far, P prompt tokens, N new tokens, Q queries of a pass (P in prefill, 1 in decode), K keys after it,
    L layers, H query heads, G KV heads, D head dim, V vocabulary, E experts, C hidden size.
The batch dimension is dropped at the boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from inference.attention import LayerSpec, attention_weights, widen
from inference.errors import N_, Note, TraceError
from inference.lens import LensRecord
from inference.request import GenerationRequest
from inference.sampling import SamplingDecision, SamplingParams, rank_of
from inference.stopping import Finish
from inference.tokens import Token, Vocabulary

if TYPE_CHECKING:
    import pandas as pd

Phase = Literal["prefill", "decode"]
Floats = NDArray[np.float32]
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Logits:
    """Raw logits of one position: the whole vocabulary, or its highest with the mass of the rest known.

    Attributes:
        values: [V] float32; or [n] float32, highest first.
        ids: `None`, or the [n] token ids of `values`.
        log_z: log of the sum of exp over the whole vocabulary, so that probabilities are exact either way.
    """

    values: Floats
    log_z: float
    ids: NDArray[np.int64] | None = None

    @property
    def whole(self) -> bool:
        """Whether every token's logit is here."""
        return self.ids is None

    def top(self, n: int) -> tuple[NDArray[np.int64], Floats]:
        """Ids [n] and raw probabilities [n] of the n likeliest tokens, likeliest first."""
        if self.ids is not None:
            return self.ids[:n], self.probs_of(self.values[:n])
        n = min(n, len(self.values))
        at = np.argpartition(-self.values, n - 1)[:n]
        ids = at[np.lexsort((at, -self.values[at]))].astype(np.int64)
        return ids, self.probs_of(self.values[ids])

    def probs_of(self, values: Floats) -> Floats:
        """Raw probabilities of logits."""
        probs: Floats = np.exp(values - np.float32(self.log_z)).astype(np.float32)
        return probs


@dataclass(frozen=True, slots=True)
class AttentionRecord:
    """What attention saw in one step, by layer.

    Attributes:
        queries: L arrays [H, Q, D] after rotary embedding.
        keys: L arrays [G, Q, D], the keys that this step added.
        visible: L arrays [Q, 2] int32: each query sees the key positions from the first to before the second.
    float32 or float16 as the model computed; bfloat16 as uint16 bit patterns (see `widen`).
    """

    queries: tuple[Array, ...]
    keys: tuple[Array, ...]
    visible: tuple[NDArray[np.int32], ...]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(a.nbytes for a in (*self.queries, *self.keys))


@dataclass(frozen=True, slots=True)
class RouterRecord:
    """Which experts a mixture-of-experts layer chose: `logits` [Q, E], `experts` [Q, k] ids, `weights` [Q, k]."""

    layer: int
    logits: Floats
    experts: NDArray[np.int64]
    weights: Floats


@dataclass(frozen=True, slots=True)
class KVState:
    """The KV cache after a step, measured on its own tensors, by layer.

    Attributes:
        positions: [L] positions held; 0 for a layer with constant state instead of keys.
        nbytes: [L] bytes held.
        added: [L] positions written in this step.
        dropped: [L] positions that left in this step.
    """

    positions: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    added: NDArray[np.int64]
    dropped: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Seconds: the forward pass (device synchronised), choosing, recording; `at_s` when the token was known.

    `at_s` counts from the start of the request, before the prompt was tokenised. `passes_s` has one entry a forward
    pass: several where the prompt was prefilled in chunks.
    """

    forward_s: float
    sampling_s: float
    recording_s: float
    at_s: float
    passes_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StepRecord:
    """Everything recorded about one step. Step 0 is the prefill; each step chooses one token.

    `text` is the visible text that became certain with this step; the pieces of all steps joined are the run's text.
    """

    index: int
    phase: Phase
    fed_ids: NDArray[np.int64]
    decision: SamplingDecision
    kv: KVState
    timing: StepTiming
    text: str
    logits: Logits | None = None
    attention: AttentionRecord | None = None
    weights: tuple[Floats, ...] | None = None
    hidden: Array | None = None
    router: tuple[RouterRecord, ...] = ()
    lens: LensRecord | None = None

    @property
    def token_id(self) -> int:
        """The id chosen in this step."""
        return self.decision.token_id

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded arrays."""
        arrays = [
            *(self.weights or ()),
            self.hidden,
            *(a for r in self.router for a in (r.logits, r.experts, r.weights)),
        ]
        held = sum(a.nbytes for a in arrays if a is not None)
        held += 0 if self.logits is None else self.logits.values.nbytes
        held += 0 if self.lens is None else self.lens.nbytes
        return held + (0 if self.attention is None else self.attention.nbytes)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the run's model is. `attention` says how weights were had: computed from queries and keys, or eager."""

    name: str
    architecture: str
    dtype: str
    device: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    n_params: int
    context_length: int | None
    n_experts: int
    attention: Literal["recorded", "eager", "none"]
    attention_note: str = ""
    weights_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """The run's times as arrays [N], seconds; see `StepTiming`."""

    tokenise_s: float
    forward_s: NDArray[np.float64]
    sampling_s: NDArray[np.float64]
    recording_s: NDArray[np.float64]
    at_s: NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """One run, complete or up to where it was stopped.

    Attributes:
        prompt_tokens: the P prompt tokens, template included.
        sampling: the settings in effect (with the seed that was drawn), and `origin` where each came from.
        left_out: sentences that say what was not recorded, and why.
        element: `"float32"`, `"float16"` or `"bfloat16"`, of the stored queries, keys and hidden states.
        versions: of the libraries; and under `"machine"` the name of the machine that made the run.
        taken_over: how many of the first steps are another run's, with the times that they had there: of a branch those
            before it, and the one where it leaves.
    """

    model: ModelFacts
    request: GenerationRequest
    sampling: SamplingParams
    origin: Mapping[str, str]
    eos_ids: tuple[int, ...]
    prompt_tokens: tuple[Token, ...]
    steps: tuple[StepRecord, ...]
    finish: Finish
    vocabulary: Vocabulary
    layers: tuple[LayerSpec | None, ...] = ()
    tokenise_s: float = 0.0
    element: str = "float32"
    left_out: tuple[Note, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    taken_over: int = 0

    @property
    def n_prompt(self) -> int:
        """P."""
        return len(self.prompt_tokens)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Prompt tokens, then the chosen ones; the last chosen one was never fed."""
        return (*self.prompt_tokens, *(self.vocabulary.token(s.token_id) for s in self.steps))

    @cached_property
    def text(self) -> str:
        """The visible generated text."""
        return "".join(step.text for step in self.steps)

    @cached_property
    def kv(self) -> KVState:
        """The KV states of all steps stacked: every array [N, L]."""
        names = ("positions", "nbytes", "added", "dropped")
        return KVState(*(np.stack([getattr(s.kv, n) for s in self.steps]) for n in names))

    @cached_property
    def timing(self) -> Timing:
        """The times of all steps."""
        columns = ("forward_s", "sampling_s", "recording_s", "at_s")
        return Timing(self.tokenise_s, *(np.array([getattr(s.timing, c) for s in self.steps]) for c in columns))

    def context_ids(self, step: int) -> NDArray[np.int64]:
        """[T] ids that had been written when step `step` chose: the prompt and the tokens chosen before."""
        return np.array([t.id for t in self.tokens[: self.n_prompt + step]], dtype=np.int64)

    def first_position(self, step: int) -> int:
        """Position of the step's first query."""
        return 0 if step == 0 else self.n_prompt + step - 1

    def visible(self, step: int, layer: int) -> NDArray[np.bool_]:
        """[Q, K] which key positions each query of the step saw in a layer."""
        weights = self.steps[step].weights
        if weights is not None:  # eager attention shows its mask by weights that are exactly 0
            return np.asarray(weights[layer].any(axis=0))
        spans = self._attention_of(step, layer).visible[layer]
        keys = np.arange(self.first_position(step) + len(spans))
        return (keys >= spans[:, :1]) & (keys < spans[:, 1:])

    def keys(self, step: int, layer: int) -> Floats:
        """[G, K, D] keys of positions 0 … K-1 as float32, also those that a sliding layer has dropped since."""
        pieces = [self._attention_of(s, layer).keys[layer] for s in range(step + 1)]
        return widen(np.concatenate(pieces, axis=1), self.element)

    def queries(self, step: int, layer: int) -> Floats:
        """[H, Q, D] queries of the step as float32."""
        return widen(self._attention_of(step, layer).queries[layer], self.element)

    def attention(self, step: int, layer: int, heads: slice = slice(None), queries: slice = slice(None)) -> Floats:
        """Attention weights [H, Q, K] float32, exact, computed now from the stored queries and keys.

        Column = key position; a position that the query cannot see is exactly 0. Rows sum to 1, or to less where the
        layer has sinks. `heads` and `queries` choose a part, since the whole of a long prefill is large.

        Raises:
            TraceError: attention was not recorded for this layer; the message says why.
        """
        record = self.steps[step]
        if record.weights is not None:
            return record.weights[layer][heads][:, queries]
        q = self.queries(step, layer)
        chosen = np.arange(len(q))[heads]
        return attention_weights(
            q[chosen][:, queries],
            self.keys(step, layer),
            self.spec(layer),
            self.visible(step, layer)[queries],
            chosen,
        )

    def probs(self, step: int) -> Floats:
        """[V] raw probabilities of a step.

        Raises:
            TraceError: the whole vocabulary was not recorded.
        """
        logits = self.logits(step)
        return logits.probs_of(logits.values)

    def logits(self, step: int) -> Logits:
        """The whole vocabulary's raw logits of a step, or `TraceError`."""
        logits = self.steps[step].logits
        if logits is None or not logits.whole:
            raise TraceError(
                N_("This run does not hold the logits of the whole vocabulary."),
                N_("Run the prompt again with all logits recorded."),
            )
        return logits

    def rank(self, step: int, token_id: int) -> int:
        """Rank of any token at a step, 1 = likeliest."""
        return rank_of(self.logits(step).values, token_id)

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded arrays."""
        return sum(step.nbytes for step in self.steps)

    def table(self) -> pd.DataFrame:
        """One row a step: the columns of the CSV and Parquet export; see `inference.table`."""
        from inference.table import table

        return table(self)

    def save(self, path: str | Path) -> None:
        """Write one run file; see `inference.trace_io.save`."""
        from inference.trace_io import save

        save(self, path)

    @classmethod
    def load(cls, source: str | Path | bytes) -> Trace:
        """Open a run file or its bytes; see `inference.trace_io.load`."""
        from inference.trace_io import load

        return load(source)

    def spec(self, layer: int) -> LayerSpec:
        """What a layer does with its scores, or `TraceError` where it has no attention."""
        spec = self.layers[layer]
        if spec is None:
            raise TraceError(N_("Layer {layer} of this model has no attention."), layer=layer)
        return spec

    def _attention_of(self, step: int, layer: int) -> AttentionRecord:
        record = self.steps[step].attention
        if record is None or not record.queries[layer].size:
            raise TraceError(
                N_("Attention of layer {layer} was not recorded in this run. {why}"),
                layer=layer,
                why=self.left_out or self.model.attention_note,
            )
        return record
