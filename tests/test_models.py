"""Loading: every refusal is clear and comes before any long work."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.numpy import save_file
from transformers import BertConfig, LlamaConfig, LlamaForCausalLM, T5Config, ViTConfig

from inference import conversion, models, sources
from inference.catalogue import entries
from inference.conversion import converted
from inference.engine import record
from inference.errors import MemoryLimitError, ModelError
from inference.models import check_memory, choose_device, load_model
from inference.request import GenerationRequest
from tests.scripted import VOCAB, byte_tokenizer


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network: the hub's address is a port of this machine that nobody listens on."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def folder_of(tmp_path: Path, config: dict, weights: str | None = "model.safetensors") -> str:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if weights == "model.safetensors":
        save_file({"w": np.zeros((2, 2), dtype=np.float32)}, tmp_path / weights)
    elif weights:
        (tmp_path / weights).write_bytes(b"\x80\x02.")
    return str(tmp_path)


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """A tiny llama as saved by transformers, whose generation config brings settings of its own."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32, eos_token_id=260, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.generation_config.do_sample = True
    model.generation_config.temperature = 0.6
    model.generation_config.top_k = 20
    model.generation_config.eos_token_id = [260, 261]
    model.save_pretrained(tmp_path / "tiny")
    byte_tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(ModelError, match=r"no model called smolm2-135\. Did you mean smollm2-135m"):
        load_model("smolm2-135")
    for name in ("./nowhere", "missing.gguf", "/tmp/none/at/all", "a/b/c", ""):
        with pytest.raises(ModelError, match="no model called"):
            load_model(name)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        load_model(str(tmp_path))


def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path) -> None:
    for text in ("{", "[1]", "\ufeff"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ModelError, match="not valid JSON"):
            load_model(str(tmp_path))


def test_pickled_weights_are_refused_and_never_opened(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, LlamaConfig().to_dict(), "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled weights only"):
        load_model(folder)


def test_a_folder_without_weights_or_with_half_a_file_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, LlamaConfig().to_dict(), None)
    with pytest.raises(ModelError, match="holds no weights"):
        load_model(folder)
    (tmp_path / "model.safetensors").write_bytes(b"\x99" * 40)
    with pytest.raises(ModelError, match="not a whole safetensors file"):
        load_model(folder)


@pytest.mark.parametrize(
    "config",
    [
        BertConfig(architectures=["BertForMaskedLM"]).to_dict(),
        BertConfig().to_dict() | {"architectures": None},
        ViTConfig().to_dict(),
        T5Config().to_dict(),
        {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]},
        {},
    ],
    ids=["bert", "bert without a name", "vit", "t5", "classifier", "empty"],
)
def test_encoders_vision_models_and_classifiers_are_refused(tmp_path: Path, config: dict) -> None:
    with pytest.raises(ModelError, match="no decoder-only language model"):
        load_model(folder_of(tmp_path, config))


def test_a_model_that_needs_its_own_code_is_refused(tmp_path: Path) -> None:
    config = {"model_type": "brandnew", "auto_map": {"AutoModelForCausalLM": "modeling.New"}}
    with pytest.raises(ModelError, match="never run"):
        load_model(folder_of(tmp_path, config))


def test_a_hub_id_without_a_network_is_refused_at_once(offline: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = sources.HfApi.model_info
    monkeypatch.setattr(sources.HfApi, "model_info", lambda self, *a, **k: (calls.append(a[0]), real(self, *a, **k))[1])
    with pytest.raises(ModelError, match=r"owner/model is not on this machine, and the hub cannot be reached"):
        load_model("owner/model")
    assert calls == ["owner/model"]  # one question, no retries


def test_too_little_memory_is_refused_with_both_figures() -> None:
    with pytest.raises(MemoryLimitError, match=r"big needs 11\.0 GiB on cpu, and 10\.0 GiB are free"):
        check_memory(10 * 2**30, 10 * 2**30, "big", "cpu")
    check_memory(9 * 2**30, 10 * 2**30, "fits", "cpu")


def test_memory_is_checked_before_the_weights_are_read(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "free_bytes", lambda device: 100)
    monkeypatch.setattr(
        models.AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("weights were read")
    )
    with pytest.raises(MemoryLimitError, match="tiny needs"):
        load_model(str(tiny_folder))


def test_a_device_or_element_type_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelError, match="no device warp here"):
        choose_device("warp")
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match=r"no device cuda here\. Use one of cpu"):
            choose_device("cuda")
    with pytest.raises(ModelError, match="no element type int3"):
        load_model("smollm2-135m", dtype="int3")


def test_devices_are_tried_in_the_order_cuda_mps_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto").type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "mps"


def test_a_folder_loads_with_the_settings_and_end_tokens_of_its_checkpoint(tiny_folder: Path) -> None:
    model = load_model(str(tiny_folder))
    assert model.generation_settings == {"greedy": False, "temperature": 0.6, "top_k": 20}
    assert model.eos_ids == (260, 261)
    trace = record(model, GenerationRequest(prompt="ab", max_new_tokens=3, ignore_eos=True))
    assert (trace.sampling.temperature, trace.origin["temperature"]) == (0.6, "checkpoint")
    assert trace.steps[0].decision.n_kept == 20


def test_bfloat16_is_recorded_bit_for_bit_and_widened_when_read(tiny_folder: Path) -> None:
    model = load_model(str(tiny_folder), dtype="bfloat16")
    trace = record(model, GenerationRequest(prompt="abcd", max_new_tokens=2, ignore_eos=True))
    assert (trace.element, trace.steps[0].attention.queries[0].dtype) == ("bfloat16", np.uint16)
    bits = torch.from_numpy(trace.steps[0].attention.keys[0].view(np.int16).copy()).view(torch.bfloat16)
    np.testing.assert_array_equal(trace.keys(0, 0), bits.float().numpy())
    assert trace.attention(1, 0).sum(axis=-1) == pytest.approx(1, abs=1e-6)


def test_every_catalogue_entry_has_one_place_and_an_id_in_lower_case() -> None:
    for name, entry in entries().items():
        assert name == entry.id == name.lower()
        assert [entry.hub, entry.wheel, entry.folder].count(None) == 2
    assert entries()["smollm2-135m"].installed


def test_a_broken_gguf_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROSCOPE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(ModelError, match="not a whole GGUF file"):
        load_model(str(path))
    assert not [p for p in (tmp_path / "cache" / "models").iterdir() if p.is_dir()]


class TestConversionCache:
    """One conversion, whole or not there."""

    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("INFEROSCOPE_CACHE", str(tmp_path / "cache"))
        path = tmp_path / "model.gguf"
        path.write_bytes(b"weights")
        return path

    def test_a_file_is_converted_once_and_again_when_it_changes(self, source: Path) -> None:
        made: list[Path] = []

        def convert(target: Path) -> None:
            made.append(target)
            (target / "model.safetensors").write_bytes(source.read_bytes())

        first = converted(source, convert)
        assert converted(source, convert) == first
        assert len(made) == 1
        source.write_bytes(b"other weights")
        assert converted(source, convert) != first
        assert len(made) == 2

    def test_a_damaged_copy_is_made_anew(self, source: Path) -> None:
        folder = converted(source, lambda target: (target / "a").write_bytes(b"good") and None)
        (folder / "a").write_bytes(b"evil")  # same size: only the checksum tells
        assert converted(source, lambda target: (target / "a").write_bytes(b"good") and None) == folder
        assert (folder / "a").read_bytes() == b"good"

    def test_a_copy_that_was_only_touched_is_kept(self, source: Path) -> None:
        folder = converted(source, lambda target: (target / "a").write_bytes(b"good") and None)
        (folder / "a").touch()
        assert converted(source, lambda target: pytest.fail("it was converted again")) == folder

    def test_a_conversion_that_fails_leaves_nothing_behind(self, source: Path) -> None:
        def fail(target: Path) -> None:
            (target / "half").write_bytes(b"x")
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            converted(source, fail)
        assert not [p for p in conversion.cache_root().iterdir() if p.is_dir()]

    def test_two_that_start_together_convert_once(self, source: Path) -> None:
        made: list[int] = []
        both = threading.Barrier(2)

        def convert(target: Path) -> None:
            made.append(1)
            (target / "a").write_bytes(b"good")

        def start() -> None:
            both.wait()
            converted(source, convert)

        threads = [threading.Thread(target=start) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [1]
