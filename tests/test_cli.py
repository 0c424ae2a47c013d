"""The command line: record, show, models, and its errors."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from inference import Trace
from inference.__main__ import main
from tests.embedded import embedded

ASSETS = Path(__file__).resolve().parent.parent / "assets"


def test_record_writes_a_run_that_show_prints_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embedded()
    out = tmp_path / "run.safetensors"
    options = [
        "--max-new-tokens",
        "4",
        "--temperature",
        "0.7",
        "--seed",
        "3",
        "--keep-logits",
        "10",
        "--keep-attention",
        "0",
    ]
    assert main(["record", "--prompt", "Hello", "--out", str(out), *options]) == 0
    text = capsys.readouterr().out.rstrip("\n")
    trace = Trace.load(out)
    assert (trace.text, len(trace.steps), trace.sampling.seed) == (text, 4, 3)
    assert main(["show", str(out), "--export", str(tmp_path / "t.csv")]) == 0
    shown = capsys.readouterr().out
    assert all(str(step.token_id) in shown for step in trace.steps)
    assert pd.read_csv(tmp_path / "t.csv")["token_id"].tolist() == [s.token_id for s in trace.steps]


def test_models_lists_the_catalogue_with_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("smollm2-135m") and "installed" in line for line in lines)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["record", "--model", "nope", "--prompt", "a", "--out", "x"], "no model called nope"),
        (["record", "--prompt", "a", "--out", "x", "--temperature", "-1"], "temperature must be"),
        (["record", "--prompt", "a", "--out", "x", "--keep-logits", "some"], "--keep-logits takes"),
        (["show", "no-such-file.safetensors"], "No such file"),
        (["show", __file__], "not a run file"),
    ],
)
def test_an_error_is_one_sentence_and_a_status(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 1
    assert message in capsys.readouterr().err
