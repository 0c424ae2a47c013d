"""Key names and defaults of the model families: literal tables that the config reader and its tests walk."""

from __future__ import annotations

from collections.abc import Mapping

# The first name that the config has (and that is not null) counts. Decoder names come first: T5 has both.
LAYERS = ("num_decoder_layers", "decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("decoder_attention_heads", "num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num")
HEAD_SIZE = ("head_dim", "d_kv", "attention_head_dim", "kv_channels")
HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "model_max_length", "seq_length")

# Where a language model's config may stand inside the config of a larger model.
NESTED = ("text_config", "language_config", "llm_config", "thinker_config", "decoder")

# What the config classes fill in when config.json leaves it out, where the cache depends on it.
FAMILY_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "sliding_window_pattern": 2},
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
    "gemma3n_text": {"sliding_window_pattern": 5, "num_kv_shared_layers": 15, "head_dim": 256},
    "gemma4_text": {"head_dim": 256, "global_head_dim": 512, "sliding_window_pattern": 6},
    "cohere2": {"sliding_window_pattern": 4},
    "olmo3": {"sliding_window_pattern": 4},
    "gpt_oss": {"sliding_window_pattern": 2, "head_dim": 64},
    "llama4_text": {"sliding_window_pattern": 4, "attention_chunk_size": 8192, "head_dim": 128},
    "qwen3": {"head_dim": 128},
    "qwen3_next": {"full_attention_interval": 4, "head_dim": 256},
    "qwen3_5_text": {"full_attention_interval": 4, "head_dim": 256},
    "t5": {"d_kv": 64},
}
# Read a text as a whole and keep nothing between passes.
ENCODERS = frozenset({"albert", "bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta"})

# Families whose formula was compared with the tensors of a real cache (tests/test_kv_families.py).
_MEASURED = """
bamba bart bloom codegen cohere cohere2 deepseek_v2 deepseek_v3 deepseek_v32 ernie4_5 exaone4 falcon
falcon_h1 falcon_mamba gemma gemma2 gemma3_text gemma3n_text gemma4_text glm glm4 glm4_moe gpt2
gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoehybrid jamba kimi_linear lfm2 llama
llama4_text longcat_flash mamba mamba2 minicpm3 ministral mistral mixtral mpt nemotron_h olmo2 olmo3
olmoe opt phi phi3 qwen2 qwen2_moe qwen3 qwen3_5_text qwen3_moe qwen3_next smollm3 stablelm
starcoder2 t5 zamba2
"""
MEASURED = frozenset(_MEASURED.split())
