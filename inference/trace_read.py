"""A run from a header and tensors that are not trusted: everything is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from inference.attention import LayerSpec
from inference.errors import Note
from inference.lens import LensRecord
from inference.request import GenerationRequest, RecordOptions
from inference.sampling import SamplingDecision, SamplingParams
from inference.stopping import Finish
from inference.tokens import Vocabulary
from inference.trace import (
    AttentionRecord,
    KVState,
    Logits,
    ModelFacts,
    RouterRecord,
    StepRecord,
    StepTiming,
    Trace,
)
from inference.trace_write import DECISION, KV, LENS, TIMES, Tensors

T = TypeVar("T")


class Reader:
    """Rebuilds a trace from a header and tensors that are not trusted."""

    def __init__(self, header: Mapping[str, Any], tensors: Tensors) -> None:
        self._header, self._tensors = header, tensors
        self._prompt = self._take("prompt_ids", (None,), np.int64)
        self._n = len(header["texts"])
        self._model: ModelFacts = build(ModelFacts, header["model"])
        self._fed = len(self._prompt) + self._n - 1 if self._n else 0
        if not len(self._prompt):
            raise ValueError("it has no prompt")

    def trace(self) -> Trace:
        """The run, every array checked."""
        header, request = self._header, dict(self._header["request"])
        request["sampling"] = build(SamplingParams, request["sampling"])
        request["record"] = build(RecordOptions, request["record"])
        vocabulary = self._vocabulary()
        return Trace(
            model=self._model,
            request=build(GenerationRequest, request),
            sampling=build(SamplingParams, header["sampling"]),
            origin={str(k): str(v) for k, v in header["origin"].items()},
            eos_ids=tuple(int(i) for i in header["eos_ids"]),
            prompt_tokens=tuple(vocabulary.token(int(i)) for i in self._prompt),
            steps=self._steps(),
            finish=build(Finish, header["finish"]),
            vocabulary=vocabulary,
            layers=tuple(_layer(spec) for spec in header["layers"]),
            tokenise_s=float(header["tokenise_s"]),
            element=str(header["element"]),
            left_out=tuple(_note(n) for n in header["left_out"]),
            versions={str(k): str(v) for k, v in header["versions"].items()},
            taken_over=self._taken_over(),
        )

    def _taken_over(self) -> int:
        """Files of the first days do not tell it; `inference.metrics.taken_over` looks for it then."""
        taken_over = self._header.get("taken_over", 0)
        if type(taken_over) is not int or not 0 <= taken_over <= self._n:
            raise ValueError(f"{taken_over} of its {self._n} steps are another run's")
        return taken_over

    def _take(self, name: str, shape: tuple[int | None, ...], *dtypes: Any) -> NDArray[Any]:
        """A tensor of the right shape (`None`: any extent) and type."""
        if name not in self._tensors:
            raise ValueError(f"{name} is missing")
        array = self._tensors[name]
        fits = len(shape) == array.ndim and all(w in (None, h) for w, h in zip(shape, array.shape, strict=True))
        if not fits or array.dtype not in [np.dtype(d) for d in dtypes]:
            raise ValueError(f"{name} is {array.dtype} {array.shape}")
        return array

    def _vocabulary(self) -> Vocabulary:
        data = self._take("vocabulary/data", (None,), np.uint8)
        ends = self._take("vocabulary/ends", (None,), np.int64)
        special = frozenset(self._take("vocabulary/special", (None,), np.int64).tolist())
        ids = self._take("vocabulary/ids", ends.shape, np.int64) if "vocabulary/ids" in self._tensors else None
        if (np.diff(ends, prepend=0) < 0).any() or (len(ends) and ends[-1] != len(data)):
            raise ValueError("its vocabulary does not add up")
        return Vocabulary(data, ends, special, ids)

    def _steps(self) -> tuple[StepRecord, ...]:
        if not self._n:
            return ()
        columns = self._columns()
        chosen = columns["token_id"]
        if min(int(chosen.min()), int(self._prompt.min())) < 0:
            raise ValueError("it has a negative token id")
        steps = []
        parts: dict[str, Callable[[int], Any]] = {"logits": self._logits(), "attention": self._attention()}
        parts |= {"weights": self._weights()}
        parts |= {"hidden": self._hidden(), "router": self._router(), "lens": self._lens()}
        for i in range(self._n):
            fed = self._prompt if i == 0 else chosen[i - 1 : i]
            steps.append(self._step(i, fed, columns, {name: part(i) for name, part in parts.items()}))
        return tuple(steps)

    def _step(self, i: int, fed: NDArray[Any], columns: Tensors, parts: Mapping[str, Any]) -> StepRecord:
        numbers = {name: columns[name][i].item() for name in DECISION}
        draw = columns["draw_u"][i].item()
        removed = tuple((str(name), int(count)) for name, count in self._header["removed"][i])
        return StepRecord(
            index=i,
            phase="decode" if i else "prefill",
            fed_ids=fed,
            decision=SamplingDecision(**numbers, draw_u=None if np.isnan(draw) else draw, removed=removed),
            kv=KVState(*(columns[f"kv/{name}"][i] for name in KV)),
            timing=StepTiming(
                **{name: columns[name][i].item() for name in TIMES},
                passes_s=tuple(float(s) for s in self._header["passes_s"][i]),
            ),
            text=str(self._header["texts"][i]),
            **parts,
        )

    def _columns(self) -> Tensors:
        columns = {}
        for name, dtype in DECISION.items():
            columns[name] = self._take(f"steps/{name}", (self._n,), dtype)
        for name in ("draw_u", *TIMES):
            columns[name] = self._take(f"steps/{name}", (self._n,), np.float64)
        for name in KV:
            columns[f"kv/{name}"] = self._take(f"kv/{name}", (self._n, None), np.int64)
        return columns

    def _logits(self) -> Callable[[int], Logits | None]:
        if "logits/values" not in self._tensors:
            return lambda i: None
        ids = self._take("logits/ids", (self._n, None), np.int64) if "logits/ids" in self._tensors else None
        width = self._model.vocab_size if ids is None else ids.shape[1]
        values = self._take("logits/values", (self._n, width), np.float32)
        log_z = self._take("logits/log_z", (self._n,), np.float64)
        return lambda i: Logits(values[i], log_z[i].item(), None if ids is None else ids[i])

    def _attention(self) -> Callable[[int], AttentionRecord | None]:
        spans_of = [int(i) for i in self._header.get("spans_of", ())]
        if not spans_of:
            return lambda i: None
        layers = [self._layer_arrays(layer, index) for layer, index in enumerate(spans_of)]

        def at(i: int) -> AttentionRecord:
            start, stop = (0, len(self._prompt)) if i == 0 else (len(self._prompt) + i - 1, len(self._prompt) + i)
            return AttentionRecord(
                tuple(q[:, start:stop] for q, _, _ in layers),
                tuple(k[:, start:stop] for _, k, _ in layers),
                tuple(v[start:stop] for _, _, v in layers),
            )

        return at

    def _layer_arrays(self, layer: int, spans: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        if spans < 0:
            nothing = np.empty((0, 0, 0), dtype=np.float32)
            return nothing, nothing, np.empty((0, 2), dtype=np.int32)
        kinds = (np.float32, np.float16, np.uint16)
        queries = self._take(f"queries/{layer}", (None, self._fed, None), *kinds)
        keys = self._take(f"keys/{layer}", (None, self._fed, queries.shape[2]), *kinds)
        if not keys.shape[0] or queries.shape[0] % keys.shape[0]:
            raise ValueError(f"layer {layer} has {queries.shape[0]} heads over {keys.shape[0]}")
        return queries, keys, self._take(f"spans/{spans}", (self._fed, 2), np.int32)

    def _weights(self) -> Callable[[int], tuple[NDArray[np.float32], ...] | None]:
        n_layers = sum(name.startswith("weights/") for name in self._tensors)
        if not n_layers:
            return lambda i: None
        p, heads = len(self._prompt), self._model.n_heads
        cells = [p * p, *(p + i for i in range(1, self._n))]
        ends = np.cumsum(cells) * heads
        flat = [self._take(f"weights/{layer}", (int(ends[-1]),), np.float32) for layer in range(n_layers)]

        def at(i: int) -> tuple[NDArray[np.float32], ...]:
            shape = (heads, p, p) if i == 0 else (heads, 1, p + i)
            return tuple(one[int(ends[i]) - heads * cells[i] : int(ends[i])].reshape(shape) for one in flat)

        return at

    def _hidden(self) -> Callable[[int], NDArray[Any] | None]:
        if "hidden" not in self._tensors:
            return lambda i: None
        hidden = self._take("hidden", (self._n, None, self._model.hidden_size), np.float32, np.float16, np.uint16)
        return lambda i: hidden[i]

    def _lens(self) -> Callable[[int], LensRecord | None]:
        if "lens/steps" not in self._tensors:
            return lambda i: None
        steps = self._take("lens/steps", (None,), np.int64)
        ids = self._take("lens/ids", (len(steps), None, None), np.int32)
        shapes = {"ids": ids.shape, "probs": ids.shape, "chosen_probs": ids.shape[:2], "chosen_ranks": ids.shape[:2]}
        arrays = {name: self._take(f"lens/{name}", shapes[name], LENS[name]) for name in LENS}
        if not ids.size or ids.min() < 0:
            raise ValueError("its logit lens has no tokens")
        at = {int(step): row for row, step in enumerate(steps)}
        return lambda i: LensRecord(**{name: array[at[i]] for name, array in arrays.items()}) if i in at else None

    def _router(self) -> Callable[[int], tuple[RouterRecord, ...]]:
        layers = sorted(
            int(name.split("/")[1]) for name in self._tensors if name.startswith("router/") and name.endswith("/logits")
        )
        arrays = []
        for layer in layers:
            logits = self._take(f"router/{layer}/logits", (self._fed, None), np.float32)
            experts = self._take(f"router/{layer}/experts", (self._fed, None), np.int64)
            arrays.append((layer, logits, experts, self._take(f"router/{layer}/weights", experts.shape, np.float32)))

        def at(i: int) -> tuple[RouterRecord, ...]:
            p = len(self._prompt)
            rows = slice(0, p) if i == 0 else slice(p + i - 1, p + i)
            return tuple(RouterRecord(layer, g[rows], e[rows], w[rows]) for layer, g, e, w in arrays)

        return at


def build(cls: type[T], data: Mapping[str, Any]) -> T:
    """A dataclass from a JSON object: no unknown fields, and simple fields of the right type."""
    hints = get_type_hints(cls)
    values = {}
    for name, value in data.items():
        if name not in hints:
            raise ValueError(f"{cls.__name__} has no field {name}")
        values[name] = _tuples(value)
        if hints[name] in (int, str, bool) and type(value) is not hints[name]:
            raise ValueError(f"{name} is no {hints[name].__name__}")
        if get_origin(hints[name]) is Literal and value not in get_args(hints[name]):
            raise ValueError(f"{name} is {value!r}")
    return cls(**values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _layer(spec: Mapping[str, Any] | None) -> LayerSpec | None:
    if spec is None:
        return None
    sinks = None if spec["sinks"] is None else np.array(spec["sinks"], dtype=np.float32)
    return LayerSpec(int(spec["n_heads"]), float(spec["scale"]), spec["softcap"], sinks, spec["window"])


def _note(note: Mapping[str, Any]) -> Note:
    made = Note(str(note["template"]), {name: _tuples(value) for name, value in dict(note["values"]).items()})
    str(made)  # a template that cannot be filled in is a damaged file
    return made
