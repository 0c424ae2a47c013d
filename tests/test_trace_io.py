"""Run files: everything comes back, without torch; nothing hostile gets in."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from inference import GenerationRequest, RecordOptions, SamplingParams, Trace
from inference.engine import record
from inference.errors import Note, TraceFileError
from inference.table import to_csv, write
from inference.trace_io import KEY, dump, load
from inference.trace_write import VERSION
from tests.scripted import saying, tiny_model

ASSETS = Path(__file__).resolve().parent.parent / "assets"


def a_run(**changes) -> Trace:
    sampling = SamplingParams(temperature=1.2, top_k=40, top_p=0.9, seed=4)
    request = GenerationRequest(
        prompt="猫 <b>", max_new_tokens=6, sampling=sampling, stop_strings=("zzz",), ignore_eos=True
    )
    return record(tiny_model(), replace(request, **changes))


def parts(data: bytes) -> tuple[dict, dict]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"][KEY]), load_tensors(data)


def rebuilt(header: dict, tensors: dict) -> bytes:
    return save_tensors(tensors, metadata={KEY: json.dumps(header)})


def same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return one == other


@pytest.mark.parametrize(
    "options",
    [RecordOptions(), RecordOptions(logits=7, attention=(1,), hidden=False), RecordOptions(False, False, False, False)],
    ids=["everything", "a part", "nothing"],
)
def test_a_saved_run_comes_back_whole(options: RecordOptions, tmp_path: Path) -> None:
    trace = a_run(record=options)
    trace.save(tmp_path / "run.safetensors")
    back = Trace.load(tmp_path / "run.safetensors")
    for name in ("model", "request", "sampling", "eos_ids", "prompt_tokens", "steps", "finish", "layers", "left_out"):
        assert same(getattr(trace, name), getattr(back, name)), name
    assert (back.text, dict(back.origin), dict(back.versions)) == (trace.text, trace.origin, dict(trace.versions))
    assert back.tokens == trace.tokens
    if options.attention:
        np.testing.assert_array_equal(back.attention(3, 1), trace.attention(3, 1))
    assert not list(tmp_path.glob("*.partial"))


def test_a_list_in_what_was_left_out_comes_back_as_one() -> None:
    trace = replace(a_run(), left_out=(Note("Layers {layers} were left out.", {"layers": (0, 2)}),))
    (note,) = load(dump(trace)).left_out
    assert note == trace.left_out[0]
    assert str(note) == "Layers 0, 2 were left out."


def test_a_cancelled_run_without_steps_can_be_saved() -> None:
    from inference.engine import generate

    run = generate(tiny_model(), GenerationRequest(prompt="a"))
    run.close()
    assert load(dump(run.trace())).finish.reason == "cancelled"


def test_a_run_file_opens_without_torch_transformers_or_a_model() -> None:
    code = (
        "import sys; from inference import Trace; t = Trace.load('assets/demo.safetensors');"
        "t.attention(1, 0); t.table(); print(t.text);"
        "assert not {'torch', 'transformers', 'streamlit', 'plotly'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ASSETS.parent, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_demo_run_is_small_and_whole() -> None:
    path = ASSETS / "demo.safetensors"
    assert path.stat().st_size <= 2 * 2**20
    trace = Trace.load(path)
    assert (trace.model.name, trace.finish.reason) == ("SmolLM2 135M Instruct", "eos")
    assert "cores" in trace.versions["machine"]
    assert "".join(s.text for s in trace.steps) == trace.text
    assert trace.attention(3, 0).sum() == pytest.approx(9, abs=1e-4)  # nine heads, one row each


def test_garbage_and_foreign_files_are_refused_with_the_reason() -> None:
    for data in (b"", b"hello", b"\x80\x04K\x01." * 9, b"PK\x03\x04" + bytes(100), bytes(1000)):
        with pytest.raises(TraceFileError, match="not a run file"):
            load(data)
    with pytest.raises(TraceFileError, match="holds no run"):
        load(save_tensors({"weight": np.zeros(3)}))


def test_a_newer_version_is_refused_with_both_numbers() -> None:
    header, tensors = parts(dump(a_run()))
    with pytest.raises(TraceFileError, match=rf"format {VERSION + 1}; this version reads up to format {VERSION}"):
        load(rebuilt(header | {"version": VERSION + 1}, tensors))


def test_a_file_cut_short_is_refused_wherever_it_is_cut() -> None:
    data = dump(a_run())
    for keep in (*range(0, 60, 7), len(data) // 3, len(data) // 2, len(data) - 1):
        with pytest.raises(TraceFileError):
            load(data[:keep])


def test_an_absurd_header_length_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(TraceFileError):
        load(struct.pack("<Q", 2**60) + b"{" + bytes(100))


def test_a_file_past_the_size_limit_is_refused_with_both_figures(tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    with path.open("wb") as file:
        file.truncate(9 * 2**30)  # sparse: takes no room
    with pytest.raises(TraceFileError, match=r"9\.0 GiB.*at most 8 GiB"):
        Trace.load(path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("steps/token_id", lambda a: a[:-1]),
        ("steps/token_id", lambda a: -a - 1),
        ("steps/prob", lambda a: a.astype(np.float32)),
        ("kv/positions", lambda a: a[:, 0]),
        ("logits/values", lambda a: a[:, :-1]),
        ("queries/0", lambda a: a[:, :-1]),
        ("queries/1", lambda a: a[:3]),
        ("keys/0", lambda a: a[:0]),
        ("spans/0", lambda a: a[:-1]),
        ("hidden", lambda a: a[:, :, :-1]),
        ("prompt_ids", lambda a: a[:0]),
        ("vocabulary/ends", lambda a: a[::-1].copy()),
    ],
)
def test_a_tensor_that_does_not_fit_the_run_is_refused_by_name(name: str, change) -> None:
    header, tensors = parts(dump(a_run()))
    tensors[name] = change(tensors[name])
    with pytest.raises(TraceFileError, match="damaged"):
        load(rebuilt(header, tensors))


@pytest.mark.parametrize(
    "change",
    [
        {"model": {}},
        {"model": {"name": 5}},
        {"texts": ["a"]},
        {"removed": []},
        {"origin": 3},
        {"layers": [{}]},
        {"sampling": {"temperature": -1}},
        {"request": {"prompt": "a", "surprise": 1}},
        {"left_out": [{"template": "{x}", "values": {}}]},
        {"spans_of": [0, 99]},
        {"finish": {"reason": 7}},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_header_that_makes_no_sense_is_refused(change: dict) -> None:
    header, tensors = parts(dump(a_run()))
    with pytest.raises(TraceFileError, match="damaged"):
        load(rebuilt(header | change, tensors))


@settings(max_examples=150)
@given(st.data())
def test_a_flipped_byte_never_raises_anything_but_a_trace_file_error(data) -> None:
    whole = bytearray(_small())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, min(len(whole) - 1, 9000)))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TraceFileError):  # a flip may also change a number and nothing else
        load(bytes(whole))


def _small() -> bytes:
    if not hasattr(_small, "data"):
        _small.data = dump(a_run(record=RecordOptions(logits=4, attention=(0,))))
    return _small.data


def test_the_step_table_is_the_same_in_csv_and_parquet(tmp_path: Path) -> None:
    trace = a_run()
    frame = trace.table()
    write(trace, tmp_path / "steps.csv")
    write(trace, tmp_path / "steps.parquet")
    csv, parquet = pd.read_csv(tmp_path / "steps.csv"), pd.read_parquet(tmp_path / "steps.parquet")
    assert list(csv.columns) == list(parquet.columns) == list(frame.columns)
    assert parquet.equals(frame)
    np.testing.assert_allclose(csv["raw_prob"], frame["raw_prob"])
    assert frame["logprob_sum"].iloc[-1] == pytest.approx(sum(s.decision.raw_logprob for s in trace.steps))


def test_a_token_that_a_spreadsheet_would_run_is_disarmed_in_csv_only() -> None:
    trace = record(
        saying(list(b"=A1")), GenerationRequest(prompt="x", max_new_tokens=3, sampling=SamplingParams(greedy=True))
    )
    assert trace.table()["token"].tolist() == ["=", "A", "1"]
    assert ",'=," in to_csv(trace)
