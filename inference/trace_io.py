"""One run, one file: safetensors with a JSON header, versioned; opens without torch and without the model.

Nothing in the file is executed or unpickled. Everything read from it is checked before it is used, so that a damaged
or hostile file ends in a `TraceFileError` that says what is wrong.

Layout: the header's `inferoscope` entry holds what is small as JSON; tensors hold one row a step (`steps/…`) or a fed
position (`queries/3`, `keys/3`, `spans/0`, …).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from inference.attention import LayerSpec
from inference.errors import N_, InferenceError, Note, TraceFileError
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

VERSION = 1
KEY = "inferoscope"
MAX_FILE_BYTES = 8 * 2**30
MAX_HEADER_BYTES = 64 * 2**20

T = TypeVar("T")
Tensors = dict[str, NDArray[Any]]

COLUMN = {"int": np.int64, "float": np.float64, "bool": np.bool_}
DECISION = {f.name: COLUMN[str(f.type)] for f in fields(SamplingDecision) if f.name not in ("removed", "draw_u")}
TIMES = ("forward_s", "sampling_s", "recording_s", "at_s")
KV = ("positions", "nbytes", "added", "dropped")


def save(trace: Trace, path: str | Path) -> None:
    """Write a run to one file; an existing one is replaced only when the new one is whole."""
    path = Path(path)
    fresh = path.with_name(f".{path.name}.partial")
    fresh.write_bytes(dump(trace))
    fresh.replace(path)


def dump(trace: Trace) -> bytes:
    """A run as the bytes of its file."""
    tensors: Tensors = {"prompt_ids": np.array([t.id for t in trace.prompt_tokens], dtype=np.int64)}
    _put_vocabulary(trace, tensors)
    header = _header(trace)
    if trace.steps:
        _put_steps(trace, tensors)
        header["spans_of"] = _put_attention(trace, tensors)
        _put_router(trace, tensors)
    whole = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    return bytes(save_tensors(whole, metadata={KEY: json.dumps(header, ensure_ascii=False)}))


def load(source: str | Path | bytes) -> Trace:
    """Open a run file, or its bytes.

    Raises:
        TraceFileError: it is no run file, is damaged or cut short, was written by a newer version, or is absurdly
            large; the message says which.
    """
    data = source if isinstance(source, bytes) else _read(Path(source))
    header = _read_header(data)
    try:
        return _Reader(header, load_tensors(data)).trace()
    except (
        SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
    ) as error:
        raise _damaged(str(error) or type(error).__name__) from None
    except InferenceError as error:
        raise error if isinstance(error, TraceFileError) else _damaged(str(error)) from None


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise TraceFileError(
            N_("The file is {size:.1f} GiB; a run file has at most {limit:.0f} GiB."),
            size=size / 2**30,
            limit=MAX_FILE_BYTES / 2**30,
        )
    return path.read_bytes()


def _read_header(data: bytes) -> dict[str, Any]:
    if len(data) < 10:
        raise TraceFileError(N_("This is not a run file: it has only {n} bytes."), n=len(data))
    (length,) = struct.unpack("<Q", data[:8])
    if data[8:9] != b"{" or length > MAX_HEADER_BYTES:
        raise TraceFileError(
            N_("This is not a run file."),
            N_("Choose a .safetensors file that was saved by this app or its command line."),
        )
    if length > len(data) - 8:
        raise _damaged("it ends inside its header")
    try:
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        header = json.loads(metadata[KEY])
        version = int(header["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TraceFileError(
            N_("This safetensors file holds no run."),
            N_("Choose a file that was saved by this app or its command line."),
        ) from None
    if version > VERSION:
        raise TraceFileError(
            N_("The run file has format {version}; this version reads up to format {limit}."),
            N_("Update the app to open it."),
            version=version,
            limit=VERSION,
        )
    return dict(header)


def _damaged(reason: str) -> TraceFileError:
    return TraceFileError(N_("The run file is damaged: {reason}."), N_("Save or copy it again."), reason=reason)


def _header(trace: Trace) -> dict[str, Any]:
    return {
        "version": VERSION,
        "model": asdict(trace.model),
        "request": asdict(trace.request),
        "sampling": asdict(trace.sampling),
        "origin": dict(trace.origin),
        "eos_ids": list(trace.eos_ids),
        "finish": asdict(trace.finish),
        "layers": [_layer_json(spec) for spec in trace.layers],
        "tokenise_s": trace.tokenise_s,
        "element": trace.element,
        "left_out": [{"template": n.template, "values": dict(n.values)} for n in trace.left_out],
        "versions": dict(trace.versions),
        "texts": [step.text for step in trace.steps],
        "removed": [step.decision.removed for step in trace.steps],
        "passes_s": [step.timing.passes_s for step in trace.steps],
    }


def _layer_json(spec: LayerSpec | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    sinks = None if spec.sinks is None else [float(s) for s in spec.sinks]
    return {
        "n_heads": spec.n_heads,
        "scale": spec.scale,
        "softcap": spec.softcap,
        "sinks": sinks,
        "window": spec.window,
    }


def _put_vocabulary(trace: Trace, tensors: Tensors) -> None:
    vocabulary = trace.vocabulary
    if vocabulary.ids is None and not any(s.logits is not None and s.logits.whole for s in trace.steps):
        ids = [t.id for t in trace.tokens]
        ids += [int(i) for s in trace.steps if s.logits is not None and s.logits.ids is not None for i in s.logits.ids]
        vocabulary = vocabulary.only(ids)
    tensors["vocabulary/data"] = vocabulary.data
    tensors["vocabulary/ends"] = vocabulary.ends
    tensors["vocabulary/special"] = np.array(sorted(vocabulary.special), dtype=np.int64)
    if vocabulary.ids is not None:
        tensors["vocabulary/ids"] = vocabulary.ids


def _put_steps(trace: Trace, tensors: Tensors) -> None:
    steps = trace.steps
    for name, dtype in DECISION.items():
        tensors[f"steps/{name}"] = np.array([getattr(s.decision, name) for s in steps], dtype=dtype)
    draws = [np.nan if s.decision.draw_u is None else s.decision.draw_u for s in steps]
    tensors["steps/draw_u"] = np.array(draws, dtype=np.float64)
    for name in TIMES:
        tensors[f"steps/{name}"] = np.array([getattr(s.timing, name) for s in steps], dtype=np.float64)
    for name in KV:
        tensors[f"kv/{name}"] = np.stack([getattr(s.kv, name) for s in steps])
    if steps[0].logits is not None:
        logits = [s.logits for s in steps if s.logits is not None]
        tensors["logits/values"] = np.stack([one.values for one in logits])
        tensors["logits/log_z"] = np.array([one.log_z for one in logits], dtype=np.float64)
        if logits[0].ids is not None:
            tensors["logits/ids"] = np.stack([one.ids for one in logits if one.ids is not None])
    if steps[0].hidden is not None:
        tensors["hidden"] = np.stack([s.hidden for s in steps if s.hidden is not None])


def _put_attention(trace: Trace, tensors: Tensors) -> list[int]:
    """Queries, keys and spans, all steps joined by layer; layers with equal spans share them. Returns which."""
    if trace.steps[0].weights is not None:
        for layer in range(len(trace.steps[0].weights)):
            parts = [s.weights[layer].ravel() for s in trace.steps if s.weights is not None]
            tensors[f"weights/{layer}"] = np.concatenate(parts)
    records = [s.attention for s in trace.steps if s.attention is not None]
    if not records:
        return []
    shared: dict[bytes, int] = {}
    spans_of = []
    for layer in range(len(records[0].queries)):
        if not records[0].queries[layer].size:
            spans_of.append(-1)
            continue
        tensors[f"queries/{layer}"] = np.concatenate([r.queries[layer] for r in records], axis=1)
        tensors[f"keys/{layer}"] = np.concatenate([r.keys[layer] for r in records], axis=1)
        spans = np.concatenate([r.visible[layer] for r in records])
        index = shared.setdefault(spans.tobytes(), len(shared))
        tensors[f"spans/{index}"] = spans
        spans_of.append(index)
    return spans_of


def _put_router(trace: Trace, tensors: Tensors) -> None:
    for index, first in enumerate(trace.steps[0].router):
        for name in ("logits", "experts", "weights"):
            parts = [getattr(step.router[index], name) for step in trace.steps]
            tensors[f"router/{first.layer}/{name}"] = np.concatenate(parts)


class _Reader:
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
        )

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
        parts |= {"hidden": self._hidden(), "router": self._router()}
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
    made = Note(str(note["template"]), dict(note["values"]))
    str(made)  # a template that cannot be filled in is a damaged file
    return made
