"""The roofline by hand: loads of passes, the crossover batch, published GPUs; and the probe on a turned clock."""

from __future__ import annotations

import numpy as np
import pytest

from inference.device_probe import READ_BYTES, SIDE, costs, measure_roof, probe_device
from inference.kv_memory import KVLayout
from inference.roofline import Costs, Device, Load
from tests.scripted import tiny_model
from tests.tiny import build, loaded

# Llama 3.1 8B: 128 KiB of KV cache a token in 16 bits
LLAMA = Costs.of_figures(KVLayout.from_geometry(32, 8, 128, query_heads=32), 8_030_261_248, "bfloat16")
H100 = Device("H100", 3350e9, 989e12)


def test_a_decode_step_reads_all_weights_and_the_cache_once() -> None:
    load = LLAMA.decode(4096)
    assert load.bytes == 2 * 8_030_261_248 + 512 * 2**20
    assert load.flops == 2 * 8_030_261_248 + 4 * 32 * 128 * 4096 * 32
    assert H100.bandwidth / load.bytes == pytest.approx(201.84, abs=0.01)  # 3350e9 ÷ 16,597,393,408


def test_a_batch_reads_the_weights_once_and_each_cache_for_itself() -> None:
    load = LLAMA.decode(4096, batch=32)
    assert load.bytes == 2 * 8_030_261_248 + 16 * 2**30
    assert load.flops == 32 * LLAMA.decode(4096).flops


def test_a_prefill_meets_every_pair_once_and_the_head_only_at_its_end() -> None:
    made = Costs(1000, 50, 4200, KVLayout.from_geometry(2, 1, 8, query_heads=2), 2, 8, "float32")
    load = made.prefill(3)
    assert load.flops == 2 * (3 * 1000 + 50) + 4 * 2 * 8 * (1 + 2 + 3) * 2
    assert load.bytes == 4200 + 2 * 2 * 3 * 8 * 4


def test_a_window_limits_the_keys_that_are_read() -> None:
    made = Costs(0, 0, 1, KVLayout.from_geometry(1, 1, 8, window=2, query_heads=1), 1, 8, "float32")
    assert made.decode(100).flops == 4 * 8 * 2
    assert made.prefill(4).flops == 4 * 8 * (1 + 2 + 2 + 2)


def test_seconds_are_the_longer_of_reading_and_computing() -> None:
    device = Device("by hand", bandwidth=100.0, flops=1000.0)
    assert device.ridge == 10.0
    assert Load(500, 100).seconds(device) == 1.0
    assert Load(5000, 100).seconds(device) == 5.0
    assert (device.ceiling(2), device.ceiling(10), device.ceiling(99)) == (200, 1000, 1000)


def test_at_the_crossover_batch_reading_takes_as_long_as_computing() -> None:
    batch = LLAMA.crossover(H100, 128)
    assert batch is not None
    load = LLAMA.decode(128)
    reading = (LLAMA.weight_bytes + batch * LLAMA.kv_bytes(128)) / H100.bandwidth
    assert reading == pytest.approx(batch * load.flops / H100.flops)
    assert 295 < batch < 450  # without a cache it is 989e12 ÷ 3350e9 = 295 FLOPs a byte, one a 16-bit weight


def test_a_long_context_is_bound_by_reading_at_every_batch() -> None:
    assert LLAMA.crossover(H100, 128_000) is None
    assert LLAMA.crossover(Device("no figure", 400e9, None), 128) is None


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2", "qwen3"])
def test_weights_of_a_model_are_counted_on_its_tensors(name: str) -> None:
    model = build(name)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    expected = sum(p.numel() for p in model.parameters())
    expected -= 0 if tied else model.get_input_embeddings().weight.numel()
    found = costs(loaded(name))
    assert found.body + found.head == expected
    assert found.head == model.get_output_embeddings().weight.numel()
    assert found.weight_bytes == 4 * expected


def test_of_experts_only_those_count_that_a_token_is_sent_to() -> None:
    model = build("mixtral")
    config = model.config
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    others = sum(p.numel() for name, p in model.named_parameters() if ".experts." not in name)
    assert experts > 0
    share = config.num_experts_per_tok / config.num_local_experts
    assert share < 1
    found = costs(loaded("mixtral"))
    assert found.body + found.head == pytest.approx(
        others + share * experts - model.get_input_embeddings().weight.numel()
    )


def test_the_probe_divides_what_it_read_and_computed_by_the_fastest_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READ_BYTES, "cpu", 4096)
    monkeypatch.setitem(SIDE, "cpu", 16)
    # six rounds a kernel, two readings each; the first round does not count, the fastest of the others does
    lasting = [0.001, 2.0, 0.5, 1.0, 3.0, 4.0] * 2
    readings = iter(np.cumsum([part for s in lasting for part in (1.0, s)]).tolist())
    device = probe_device(tiny_model(), lambda: False, lambda: next(readings))
    assert device is not None
    assert device.bandwidth == pytest.approx(4096 / 0.5)
    assert device.flops == pytest.approx(2 * 16**3 / 0.5)


def test_the_measured_roof_holds_both_passes_and_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READ_BYTES, "cpu", 2**20)
    monkeypatch.setitem(SIDE, "cpu", 64)
    shares: list[float] = []
    roof = measure_roof(tiny_model(), np.array([1, 2, 3]), 16, shares.append)
    assert roof is not None
    assert [one.phase for one in roof.passes] == ["prefill", "decode"]
    for one in roof.passes:
        assert one.share == pytest.approx(one.load.seconds(roof.device) / one.seconds)
    assert roof.passes[0].load.intensity > roof.passes[1].load.intensity
    assert shares[-1] == pytest.approx(1.0)
    assert measure_roof(tiny_model(), np.array([1, 2, 3]), 16, cancelled=lambda: True) is None
