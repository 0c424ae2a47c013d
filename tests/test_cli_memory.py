"""The command `memory`, run as a process and through its parser."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inference.__main__ import main
from tests.kv_data import ROOT

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    return tmp_path


def test_the_command_prints_bytes_formula_units_and_engines(config: Path) -> None:
    command = [sys.executable, "-m", "inference", "memory", "--config", str(config)]
    printed = subprocess.run(
        [*command, "--tokens", "8192", "--batch", "4"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "Model: llama, GQA: 32 attention" in printed
    assert "2 · 32 · 4 · 8192 · 8 · 128 · 2 = 4,294,967,296 bytes" in printed
    units = "4,194,304 KiB, 4,096 MiB, 4 GiB, 4,294,967.296 KB, 4,294.967 MB, 4.295 GB"
    assert f"4,294,967,296 bytes ({units})" in printed
    assert "Per token: 131,072 bytes (128 KiB, 0.125 MiB, 131.072 KB, 0.131 MB)" in printed
    for engine in ("transformers dynamic", "transformers static", "llama.cpp", "vLLM"):
        assert f"  {engine}: 4,294,967,296 bytes" in printed


def test_the_calculator_needs_neither_torch_nor_transformers_nor_streamlit() -> None:
    heavy = "{'torch', 'transformers', 'streamlit'}"
    code = f"import sys; from inference import cli_memory; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_lists_pages_element_pairs_and_devices_are_taken(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["memory", "--config", str(config / "config.json"), "--tokens", "100,4096,7", "--tp", "2"]
    assert main([*arguments, "--element", "q8_0,q4_0", "--page-size", "16"]) == 0
    printed = capsys.readouterr().out
    assert "On each of 2 devices:" in printed
    heads_and_layers = 32 * 4 * (112 + 4096 + 16)
    assert f"= {heads_and_layers * (136 + 72):,} bytes" in printed
    assert "  vLLM: -" in printed


def test_what_was_assumed_and_a_context_too_long_are_noted(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config / "config.json").write_text(json.dumps({**CONFIG, "model_type": "mine"}), "utf-8")
    assert main(["memory", "--config", str(config), "--tokens", "200000"]) == 0
    printed = capsys.readouterr().out
    assert "Note: The family mine was not checked" in printed
    assert "Note: the model's own limit is 131,072 tokens." in printed


def test_windows_states_and_encoders_have_lines_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import transformers

    def printed(config: transformers.PreTrainedConfig, *options: str) -> str:
        (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False), "utf-8")
        assert main(["memory", "--config", str(tmp_path), *options]) == 0
        return capsys.readouterr().out

    gemma = printed(transformers.Gemma3TextConfig())
    assert "22 sliding, 4 full" in gemma.replace("attention", "full")
    assert "at this length, where windows are full: 16,384 bytes" in gemma
    assert "vLLM, hybrid manager off" in gemma
    assert f"Constant state a sequence: {36 * (65536 + 2097152):,} bytes" in printed(transformers.Qwen3NextConfig())
    t5 = printed(transformers.T5Config(), "--encoder-tokens", "512", "--tokens", "64")
    assert "Per encoder token: 12,288 bytes" in t5
    assert f"= {12288 * (512 + 64):,} bytes" in t5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tokens", "0"], "tokens must be a whole number"),
        (["--tokens", "5,0"], "tokens[1] must be"),
        (["--batch", "-3"], "batch must be"),
        (["--element", "q3"], "no element type q3"),
        (["--tp", "3"], "cannot be divided among 3 devices"),
        (["--config", "nowhere"], "no config file at nowhere"),
    ],
)
def test_bad_input_ends_with_status_1_and_one_clear_line(
    config: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["memory", "--config", str(config), *options]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_lengths_that_are_no_numbers_are_refused_by_the_parser(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["memory", "--config", str(config), "--tokens", "8k"])
    assert "'8k' is not a whole number or a list of them with commas" in capsys.readouterr().err
