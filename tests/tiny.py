"""Tiny random models of many architectures, and what an independent, never wrapped copy of each gives.

`TINY[name]()` builds a fresh model: the same weights each time. Weights are drawn wide and norms, biases and sinks are
moved off their defaults, so that attention is far from uniform, logits are far from equal, and a term that the engine
leaves out shows in the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM, LogitsProcessor, PreTrainedConfig, PreTrainedModel

from inference.engine import record
from inference.models import LoadedModel, wrap
from inference.request import GenerationRequest
from inference.sampling import SamplingParams
from inference.trace import Trace
from tests.scripted import byte_tokenizer

WINDOW = 8
N_NEW = 16
PROMPT = tuple((37 * i + 11) % 250 for i in range(13))  # longer than the window; with N_NEW longer than three
SEED = 20

COMMON: Mapping[str, Any] = {
    "vocab_size": 264,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
BASE: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MHA: Mapping[str, Any] = {key: value for key, value in BASE.items() if key != "num_key_value_heads"}
GPT: Mapping[str, Any] = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
ALIBI: Mapping[str, Any] = {"hidden_size": 32, "n_layer": 3, "n_head": 4}
FALCON: Mapping[str, Any] = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
HEADS: Mapping[str, Any] = {**BASE, "head_dim": 12}  # not hidden / heads
EXPERTS: Mapping[str, Any] = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
MLA: Mapping[str, Any] = {
    **BASE,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 12,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
DELTA_NET: Mapping[str, Any] = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
MAMBA2: Mapping[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_chunk_size": 8,
}
SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
WINDOWED: Mapping[str, Any] = {"sliding_window": WINDOW, "layer_types": [SLIDING, FULL, SLIDING]}

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "bamba": {"model_type": "bamba", **BASE, **MAMBA2, "attn_layer_indices": [1]},
    "bloom": {"model_type": "bloom", **ALIBI},
    "cohere2": {"model_type": "cohere2", **BASE, **WINDOWED, "logit_scale": 1.0},
    "deepseek_v2": {"model_type": "deepseek_v2", **MLA, "topk_method": "greedy"},
    "deepseek_v3": {"model_type": "deepseek_v3", **MLA},
    "deepseek_v32": {
        "model_type": "deepseek_v32",
        **MLA,
        "index_head_dim": 16,
        "index_n_heads": 2,
        "index_topk": 7,
    },
    "falcon": {"model_type": "falcon", **FALCON},
    "falcon_alibi": {"model_type": "falcon", **FALCON, "alibi": True, "multi_query": False},
    "falcon_grouped": {"model_type": "falcon", **FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
    "gemma2": {
        "model_type": "gemma2",
        **HEADS,
        **WINDOWED,
        "query_pre_attn_scalar": 5,
        "attn_logit_softcapping": 10.0,
    },
    "gemma3_text": {"model_type": "gemma3_text", **HEADS, **WINDOWED, "query_pre_attn_scalar": 5},
    "gemma3n_text": {
        "model_type": "gemma3n_text",
        **HEADS,
        "num_hidden_layers": 5,
        "num_kv_shared_layers": 2,
        "layer_types": [SLIDING, SLIDING, FULL, SLIDING, FULL],
        "sliding_window": WINDOW,
        "intermediate_size": [48] * 5,
        "activation_sparsity_pattern": [0.0] * 5,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 264,
        "laurel_rank": 4,
    },
    "gemma4_text": {
        "model_type": "gemma4_text",
        **HEADS,
        "num_hidden_layers": 5,
        "num_kv_shared_layers": 2,
        "layer_types": [SLIDING, SLIDING, FULL, SLIDING, FULL],
        "sliding_window": WINDOW,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 264,
        "allow_global_per_layer_attribute_access": True,
    },
    "gpt2": {"model_type": "gpt2", **GPT},
    "gpt_bigcode": {"model_type": "gpt_bigcode", **GPT},
    "gpt_neo": {
        "model_type": "gpt_neo",
        "hidden_size": 32,
        "num_layers": 4,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 2]],
        "window_size": WINDOW,
    },
    "gpt_neox": {"model_type": "gpt_neox", **MHA},
    "gpt_oss": {
        "model_type": "gpt_oss",
        **HEADS,
        **WINDOWED,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
    },
    "gptj": {"model_type": "gptj", **GPT, "rotary_dim": 4},
    "granite": {"model_type": "granite", **BASE, "attention_multiplier": 0.5, "residual_multiplier": 0.7},
    "granite_swa": {"model_type": "granite_swa", **BASE, **WINDOWED},
    "jamba": {
        "model_type": "jamba",
        **BASE,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "lfm2": {"model_type": "lfm2", **BASE, "layer_types": ["conv", FULL, "conv"]},
    "llama": {"model_type": "llama", **BASE},
    "llama4_text": {
        "model_type": "llama4_text",
        **HEADS,
        "intermediate_size_mlp": 48,
        "attention_chunk_size": WINDOW,
        "layer_types": ["chunked_attention", FULL, "chunked_attention"],
        "no_rope_layers": [1, 0, 1],
        "num_local_experts": 4,
    },
    "mistral": {"model_type": "mistral", **BASE, "sliding_window": WINDOW},
    "mixtral": {"model_type": "mixtral", **BASE, "num_local_experts": 6, "num_experts_per_tok": 2},
    "mpt": {
        "model_type": "mpt",
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 3,
        "max_seq_len": 64,
        "use_cache": True,  # its config says no, and generate would run without
    },
    "olmo2": {"model_type": "olmo2", **BASE},
    "opt": {"model_type": "opt", **MHA, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "phi": {"model_type": "phi", **BASE},
    "phi3": {"model_type": "phi3", **BASE, "sliding_window": WINDOW},
    "qwen2": {"model_type": "qwen2", **BASE},
    "qwen3": {"model_type": "qwen3", **HEADS},
    "qwen3_moe": {"model_type": "qwen3_moe", **HEADS, **EXPERTS, "norm_topk_prob": True},
    "qwen3_next": {
        "model_type": "qwen3_next",
        **HEADS,
        **EXPERTS,
        **DELTA_NET,
        "shared_expert_intermediate_size": 24,
        "layer_types": [LINEAR, FULL, LINEAR],
    },
    "smollm3": {"model_type": "smollm3", **BASE, "no_rope_layers": [1, 0, 1]},
    "stablelm": {"model_type": "stablelm", **BASE},
}


def build(name: str, attention: str | None = None, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A fresh model; `attention` as in transformers' `attn_implementation`, by default what transformers chooses."""
    settings = {**COMMON, **CONFIGS[name]}
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32)
        for key, values in [*model.named_parameters(), *model.named_buffers()]:
            if values.ndim == 1 and (isinstance(values, torch.nn.Parameter) or "correction_bias" in key):
                values.data.add_(0.2 * torch.randn_like(values))
                if re.search("[qk]_(layer)?norm", key):  # else scores are small and attention is near uniform
                    values.data.mul_(2)
    return model.to(dtype).eval()


REFUSED: Mapping[str, Mapping[str, Any]] = {
    "openai-gpt": GPT,
    "recurrent_gemma": {**BASE, "attention_window_size": WINDOW, "lru_width": 32},
    "rwkv": {"hidden_size": 32, "num_hidden_layers": 3},
}


def small_config(family: str) -> PreTrainedConfig:
    """A config of a family that the engine refuses."""
    return AutoConfig.for_model(family, vocab_size=264, **REFUSED[family])


TINY: Mapping[str, Callable[[], PreTrainedModel]] = {name: partial(build, name) for name in CONFIGS}
NAMES = sorted(TINY)
WHOLE = {"jamba"}  # a pass over several positions does not go on from its recurrent state
CHUNKS = [(name, chunk) for name in NAMES for chunk in (None, 3) if not (chunk and name in WHOLE)]


@cache
def loaded(name: str, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """The model as the engine runs it, made once a session."""
    return wrap(build(name, dtype=dtype), byte_tokenizer(), name)


def ask(prompt: tuple[int, ...] = PROMPT, **changes: Any) -> GenerationRequest:
    """A greedy request of `N_NEW` tokens, or as changed."""
    return GenerationRequest(
        prompt_ids=prompt, **{"max_new_tokens": N_NEW, "sampling": SamplingParams(greedy=True)} | changes
    )


@cache
def greedy(name: str, prefill_chunk: int | None = None, dtype: torch.dtype = torch.float32) -> Trace:
    """The engine's greedy run after `PROMPT`, made once a session."""
    return record(loaded(name, dtype), ask(prefill_chunk=prefill_chunk))


def fed_ids(trace: Trace) -> list[int]:
    """Every token that the model was fed in a run: the prompt and all chosen ones but the last."""
    return [token.id for token in trace.tokens[:-1]]


@dataclass(frozen=True)
class Reference:
    """One full forward pass over T tokens, without a cache, of a model that was never wrapped.

    Attributes:
        logits: [T, V] with the attention that transformers chooses, as is `hidden`.
        attention: [H, T, T] by layer, of a pass in eager mode; layers without attention are left out.
        hidden: [T, C] of every decoder layer, before the final norm.
        normed: [T, C] the last of transformers' `output_hidden_states`.
        given: the others of `output_hidden_states`, without the embeddings: one fewer than `hidden`.
    """

    logits: NDArray[np.float32]
    attention: tuple[NDArray[np.float32], ...]
    hidden: tuple[NDArray[np.float32], ...]
    normed: NDArray[np.float32]
    given: tuple[NDArray[np.float32], ...]


def reference(name: str, ids: list[int], dtype: torch.dtype = torch.float32) -> Reference:
    """What a never wrapped model gives for `ids`."""
    return _reference(name, tuple(ids), dtype)


@cache
def _reference(name: str, ids: tuple[int, ...], dtype: torch.dtype) -> Reference:
    model, hidden = build(name, dtype=dtype), []
    for layer in decoder_layers(model):
        layer.register_forward_hook(lambda module, args, output: hidden.append(_first(output)[0]))
    batch = torch.tensor([ids])
    with torch.no_grad():
        out = model(batch, use_cache=False, output_hidden_states=True)
        eager = build(name, attention="eager", dtype=dtype)(batch, use_cache=False, output_attentions=True)
    given = [_array(state[0]) for state in out.hidden_states[1:]]
    return Reference(
        logits=_array(out.logits[0]),
        attention=tuple(_array(weights[0]) for weights in eager.attentions if weights is not None),
        hidden=tuple(_array(state) for state in hidden),
        normed=given[-1],
        given=tuple(given[:-1]),
    )


class Follow(LogitsProcessor):
    """Makes `generate` choose given ids [T] (prompt included), whatever the logits."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        chosen = self._ids[input_ids.shape[1]]
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([chosen]), 0.0)


def followed(trace: Trace, attention: str | None = None, dtype: torch.dtype = torch.float32) -> Any:
    """What `generate` on a never wrapped model gives on the way of a run: `logits` and, if eager, `attentions`."""
    return build(trace.model.name, attention, dtype).generate(
        torch.tensor([[token.id for token in trace.prompt_tokens]]),
        max_new_tokens=len(trace.steps),
        do_sample=False,
        logits_processor=[Follow([token.id for token in trace.tokens])],
        output_logits=True,
        output_attentions=attention == "eager",
        return_dict_in_generate=True,
    )


def own_attention(name: str) -> str | None:
    """How a reference must run so that its kernels are the engine's."""
    return "eager" if loaded(name).facts.attention == "eager" else None


def decoder_layers(model: PreTrainedModel) -> torch.nn.ModuleList:
    """The decoder layers, found by their number in the outermost list of that length."""
    n_layers = model.config.num_hidden_layers
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == n_layers)


def attention_layers(name: str) -> list[int]:
    """Numbers of the layers that have attention, from the config."""
    config = TINY[name]().config
    kinds = getattr(config, "layer_types", None) or [FULL] * config.num_hidden_layers
    return [index for index, kind in enumerate(kinds) if kind not in (LINEAR, "conv")]


def _first(output: Any) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().float().numpy()
