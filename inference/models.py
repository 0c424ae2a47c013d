"""Loading a model so that it can be recorded: device, element type, tokenizer, settings, and one small probe."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from transformers.utils import logging as transformers_logging

from inference import sources
from inference.attention import LayerSpec
from inference.budget import Footprint
from inference.conversion import converted
from inference.errors import N_, MemoryLimitError, ModelError
from inference.forward import Forward
from inference.one_row import speed_up
from inference.probe import probe
from inference.sampling import SamplingParams
from inference.tokenizer import Tokenizer
from inference.trace import ModelFacts

log = logging.getLogger(__name__)

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
# settings of a checkpoint's generation_config that this engine applies under the same name
KNOWN_SETTINGS = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "top_h",
    "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "sequence_bias", "min_new_tokens",
)  # fmt: skip
SPARE = 1.1  # loading needs the weights and about a tenth more
# vocabularies whose pre-tokenizer splits every digit off before the byte-level step (llama.cpp, llama-vocab.cpp)
SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell"}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run; shared by everyone who runs it, so nothing here changes.

    Attributes:
        generation_settings: what the checkpoint asks for, by setting name; `greedy` from its `do_sample`.
        eos_ids: every token that ends a text.
        element: element type of the records.
        layers: what each layer's attention does, `None` where it has none or weights come from eager attention.
        footprint: what a record takes.
    """

    name: str
    facts: ModelFacts
    forward: Forward
    tokenizer: Tokenizer
    generation_settings: Mapping[str, Any]
    eos_ids: tuple[int, ...]
    element: str
    layers: tuple[LayerSpec | None, ...]
    footprint: Footprint


def load_model(
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    progress: Callable[[str], None] | None = None,
    fast: bool = True,
) -> LoadedModel:
    """Load a model by catalogue id, local folder, `.gguf` file or hub id.

    Args:
        device: `"auto"` (CUDA, then MPS, then CPU), or as torch names it.
        dtype: `"float32"`, `"float16"`, `"bfloat16"`; `"auto"` is float32 on the CPU, else the checkpoint's own.
        progress: told in a sentence what is being done.
        fast: on a CPU, multiply single rows of float32 by every core where that pays (see `inference.one_row`).

    Raises:
        ModelError: the name is unknown, or the model cannot be run here; before any long work.
        MemoryLimitError: not enough memory; both figures are named.
    """
    say = progress or log.info
    source, place = sources.find(name), choose_device(device)
    wanted = _dtype(dtype, place)
    if source.kind == "gguf":
        path = source.path
        assert path is not None
        say(N_("Opening the model"))
        folder = converted(path, lambda target: _convert_gguf(path, target, say))
    else:
        folder = _folder(source)
    return _load(folder, source.name, place, wanted, say, fast)


def wrap(model: PreTrainedModel, tokenizer: Any, name: str) -> LoadedModel:
    """Make a model that is already in memory ready to run; its attention function is replaced by the recording one."""
    return _ready(model, tokenizer, name, fast=False)


def _ready(model: PreTrainedModel, tokenizer: Any, name: str, fast: bool) -> LoadedModel:
    model.eval()
    element = str(model.dtype).removeprefix("torch.")
    findings = probe(model, element)
    facts = _facts(model, name, findings.attention, findings.note)
    if fast:
        speed_up(model)
    return LoadedModel(
        name=name,
        facts=facts,
        forward=findings.forward,
        tokenizer=Tokenizer(tokenizer, model.config.get_text_config(decoder=True).vocab_size),
        generation_settings=_settings(model),
        eos_ids=_eos_ids(model),
        element=element,
        layers=findings.layers,
        footprint=findings.footprint,
    )


def choose_device(device: str) -> torch.device:
    """The device asked for, or for `"auto"` the first there is of CUDA, MPS, CPU."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(kind for kind, there in available.items() if there))
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or not available.get(chosen.type, False):
        raise ModelError(
            N_("There is no device {device} here."),
            N_("Use one of {available}, or auto."),
            device=device,
            available=tuple(kind for kind, there in available.items() if there),
        )
    return chosen


@cache
def versions() -> Mapping[str, str]:
    """Versions of the libraries that a run depends on."""
    return {name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}


def _folder(source: sources.Source) -> Path:
    folder = source.path or sources.fetch(source)
    config = sources.read_config(folder)
    sources.check_config(config, source.name, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    return folder


def _load(
    folder: Path, name: str, device: torch.device, dtype: torch.dtype | None, say: Callable[[str], None], fast: bool
) -> LoadedModel:
    n_params = sources.count_params(folder, name)
    config = sources.read_config(folder)
    stored = config.get("dtype") or config.get("torch_dtype") or "float32"
    chosen = dtype or DTYPES.get(str(stored), torch.float32)
    spread = _needs_several(device, n_params * chosen.itemsize)
    if not spread:
        check_memory(n_params * chosen.itemsize, free_bytes(device), name, str(device))
    say(N_("Loading the weights"))
    transformers_logging.disable_progress_bar()
    placing: dict[str, Any] = {"device_map": "auto" if spread else {"": device}}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=chosen, trust_remote_code=False, use_safetensors=True, **placing
        )
        tokenizer = _open_tokenizer(folder, name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(
            N_("{name} could not be loaded: {reason}"),
            sources.LOAD_ANOTHER,
            name=name,
            reason=str(error).split("\n")[0],
        ) from error
    return _ready(model, tokenizer, name, fast)


def _open_tokenizer(folder: Path, name: str) -> Any:
    """The folder's fast tokenizer; where no class of its own is asked for, reading it takes half the time."""
    settings = folder / "tokenizer_config.json"
    kind = json.loads(settings.read_text(encoding="utf-8")).get("tokenizer_class") if settings.is_file() else None
    opener = PreTrainedTokenizerFast if kind in ("TokenizersBackend", "PreTrainedTokenizerFast") else AutoTokenizer
    hf = opener.from_pretrained(folder, trust_remote_code=False)
    if getattr(hf, "backend_tokenizer", None) is None:
        raise ModelError(N_("{name} has no fast tokenizer."), sources.LOAD_ANOTHER, name=name)
    return hf


def check_memory(needed: int, free: int, name: str, device: str) -> None:
    """Refuse a model that will not fit, naming what is needed and what is free (bytes)."""
    if needed * SPARE > free:
        raise MemoryLimitError(
            N_("{name} needs {needed:.1f} GiB on {device}, and {free:.1f} GiB are free."),
            N_("Use a smaller model, or bfloat16 instead of float32."),
            name=name,
            device=device,
            needed=needed * SPARE / 2**30,
            free=free / 2**30,
        )


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def _needs_several(device: torch.device, nbytes: int) -> bool:
    several = device.type == "cuda" and device.index is None and torch.cuda.device_count() > 1
    return several and nbytes * SPARE > free_bytes(device)


def _convert_gguf(path: Path, target: Path, say: Callable[[str], None]) -> None:
    """Write a GGUF checkpoint as float32 safetensors; every quantised value is exact in float32."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        n_params = sum(int(tensor.n_elements) for tensor in reader.tensors)
        field = reader.get_field("tokenizer.ggml.pre")
        splits_digits = field is not None and field.contents() in SINGLE_DIGITS
    except (ValueError, OSError) as error:
        raise ModelError(
            N_("{file} is not a whole GGUF file: {reason}"),
            N_("Download it again."),
            file=path.name,
            reason=str(error),
        ) from None
    check_memory(2 * 4 * n_params, free_bytes(torch.device("cpu")), path.stem, "cpu")
    say(N_("Converting the weights once; this takes about 20 seconds"))
    transformers_logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except (ValueError, KeyError, OSError, NotImplementedError) as error:
        raise ModelError(
            N_("{name} could not be loaded: {reason}"),
            sources.LOAD_ANOTHER,
            name=path.stem,
            reason=str(error),
        ) from error
    if hasattr(model.config, "quantization_config"):  # the weights are no longer quantised; it would block saving
        del model.config.quantization_config
    setattr(model, "hf_quantizer", None)  # noqa: B010 (a plain attribute, which the class does not declare)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    if splits_digits:
        _split_digits(target / "tokenizer.json")


def _split_digits(path: Path) -> None:
    """Put the digit split back that the GGUF file only names and transformers' conversion drops."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, spec["pre_tokenizer"]]}
    path.write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")


def _dtype(dtype: str, device: torch.device) -> torch.dtype | None:
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else None
    if dtype not in DTYPES:
        raise ModelError(
            N_("There is no element type {dtype}."),
            N_("Use one of {names}, or auto."),
            dtype=dtype,
            names=tuple(DTYPES),
        )
    return DTYPES[dtype]


def _settings(model: PreTrainedModel) -> dict[str, Any]:
    config = model.generation_config
    found = {name: getattr(config, name, None) for name in KNOWN_SETTINGS}
    settings = {name: value for name, value in found.items() if value is not None}
    if config.do_sample is not None:
        settings["greedy"] = not config.do_sample
    SamplingParams(**settings)  # a checkpoint's settings are checked like anyone's
    return settings


def _eos_ids(model: PreTrainedModel) -> tuple[int, ...]:
    eos = model.generation_config.eos_token_id
    if eos is None:
        eos = model.config.get_text_config(decoder=True).eos_token_id
    return tuple(int(i) for i in (eos if isinstance(eos, (list, tuple)) else [eos]) if i is not None)


def _facts(model: PreTrainedModel, name: str, attention: str, note: str) -> ModelFacts:
    config = model.config.get_text_config(decoder=True)
    n_heads = _setting(config, "num_attention_heads") or 0
    return ModelFacts(
        name=name,
        architecture=str(config.model_type),
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        n_layers=config.num_hidden_layers,
        n_heads=n_heads,
        n_kv_heads=_setting(config, "num_key_value_heads", "num_kv_heads") or n_heads,
        head_dim=_setting(config, "head_dim") or (config.hidden_size // n_heads if n_heads else 0),
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        n_params=model.num_parameters(),
        context_length=_setting(config, "max_position_embeddings", "seq_length"),
        n_experts=_setting(config, "num_local_experts", "num_experts", "n_routed_experts") or 0,
        attention=attention,  # type: ignore[arg-type]
        attention_note=note,
        weights_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
    )


def _setting(config: PreTrainedConfig, *names: str) -> int | None:
    """The first of some config entries that is there and not 0."""
    for name in names:
        try:
            value = getattr(config, name, None)
        except RuntimeError:  # the layers differ in it (Gemma 4), and the config will not name one for all
            value = config.to_dict().get(name)
        if value:
            return int(value)
    return None
