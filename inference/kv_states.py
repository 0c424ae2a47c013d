"""The constant state of layers without a growing cache: gated delta nets, Mamba, Mamba 2, short convolutions.

Shapes as transformers 5.24 allocates them: a convolution state [channels, kernel] and a recurrent state.
"""

from __future__ import annotations

from collections.abc import Mapping

from inference.kv_layers import MAX_HEADS, MAX_STATE, MAX_WIDTH, KVLayer, whole

Config = Mapping[str, object]

MAX_KERNEL = 1024


def state_record(config: Config, index: int, name: str) -> KVLayer:
    """The state's record; one without sizes where the config's keys are not known."""
    if name == "conv":  # LFM2
        return _record(index, _get(config, MAX_WIDTH, "hidden_size"), _get(config, MAX_KERNEL, "conv_L_cache"), 0)
    if _has(config, "linear_num_value_heads", "linear_num_heads"):
        return _delta_net(config, index)
    if _has(config, "mamba_n_groups", "mamba_ngroups", "n_groups"):
        return _mamba2(config, index)
    if _has(config, "mamba_d_state", "state_size"):
        return _mamba(config, index)
    return KVLayer(index, "state")


def _delta_net(config: Config, index: int) -> KVLayer:
    """Gated DeltaNet (Qwen3-Next) and KDA (Kimi): queries, keys and values each pass a convolution."""
    key_heads = _get(config, MAX_HEADS, "linear_num_key_heads", "linear_num_heads")
    value_heads = _get(config, MAX_HEADS, "linear_num_value_heads", "linear_num_heads")
    key_dim = _get(config, MAX_WIDTH, "linear_key_head_dim", "linear_head_dim")
    value_dim = _get(config, MAX_WIDTH, "linear_value_head_dim", "linear_head_dim")
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    return _record(
        index, channels, _get(config, MAX_KERNEL, "linear_conv_kernel_dim"), value_heads * key_dim * value_dim
    )


def _mamba2(config: Config, index: int) -> KVLayer:
    heads = _get(config, MAX_HEADS, "mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    width = _get(config, MAX_WIDTH, "mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
    groups = _get(config, MAX_HEADS, "mamba_n_groups", "mamba_ngroups", "n_groups")
    size = _get(config, MAX_WIDTH, "mamba_d_state", "ssm_state_size", "state_size")
    channels = heads * width + 2 * groups * size
    return _record(index, channels, _kernel(config), heads * width * size)


def _mamba(config: Config, index: int) -> KVLayer:
    inner = _get(config, MAX_WIDTH, "mamba_expand", "expand") * _get(config, MAX_WIDTH, "hidden_size")
    if config.get("state_size") and config.get("intermediate_size"):
        inner = _get(config, MAX_WIDTH, "intermediate_size")  # Falcon Mamba's differs from expand · hidden
    return _record(index, inner, _kernel(config), inner * _get(config, MAX_WIDTH, "mamba_d_state", "state_size"))


def _record(index: int, channels: int, kernel: int, recurrent: int) -> KVLayer:
    return KVLayer(index, "state", conv_channels=channels, conv_kernel=kernel, recurrent_elements=recurrent)


def _kernel(config: Config) -> int:
    return _get(config, MAX_KERNEL, "mamba_d_conv", "conv_kernel")


def _has(config: Config, *keys: str) -> bool:
    return any(config.get(key) is not None for key in keys)


def _get(config: Config, high: int, *keys: str) -> int:
    key = next((key for key in keys if config.get(key) is not None), keys[0])
    return whole(config.get(key), key, high=min(high, MAX_STATE))
