"""The benchmarks' own arithmetic, by hand; what they time is not tested."""

from __future__ import annotations

import pytest

from benchmarks.decode import limit_tok_s, ratios
from inference.kv_memory import KVLayout
from inference.roofline import Costs, Device


def test_the_memorys_limit_reads_all_weights_and_the_growing_cache_once_a_token() -> None:
    # 2 layers of one head of 8 in 4 bytes: 128 bytes of cache a token; 1,000 bytes of weights
    found = Costs(250, 0, 1000, KVLayout.from_geometry(2, 1, 8, query_heads=1), 1, 8, "float32")
    device = Device("by hand", bandwidth=1000.0, flops=1.0)  # so slow that computing would be the limit
    # after a prompt of 3, two decode steps leave 4 and 5 positions: 1.512 s and 1.640 s
    assert limit_tok_s(found, device, n_prompt=3, n_new=3) == pytest.approx(2 / (1.512 + 1.640))


def test_ratios_are_of_the_named_one_to_each_other_one() -> None:
    assert ratios({"recorded": 24.0, "bare": 20.0, "limit": 48.0}, "recorded") == {
        "recorded_to_bare": pytest.approx(1.2),
        "recorded_to_limit": 0.5,
    }
