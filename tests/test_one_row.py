"""A single row is multiplied in blocks where that is faster, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import one_row
from inference.engine import record
from inference.models import load_model
from inference.one_row import OneRowLinear, speed_up
from tests.embedded import MODEL_ID, gravity


def two_layers() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(1024, 1536), torch.nn.Linear(1536, 64))


def sped_up(gain: float, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], float]:
    """What happens to a model when the trial finds this gain for every shape."""
    monkeypatch.setattr(one_row, "_gain", lambda weights, n_blocks: gain)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    return speed_up(model)


@pytest.mark.parametrize(("gain", "changed"), [(2.0, True), (1.0, False)])
def test_a_shape_is_multiplied_in_blocks_only_where_that_is_faster(
    gain: float, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = two_layers()
    assert sped_up(gain, model, monkeypatch) == ({(1536, 1024): 2.0} if changed else {})
    assert isinstance(model[0], OneRowLinear) == changed
    assert not isinstance(model[1], OneRowLinear)  # too small to matter


@pytest.mark.parametrize("n_rows", [1, 2, 7])
@pytest.mark.parametrize("bias", [True, False])
def test_the_product_is_the_same_for_any_number_of_rows(
    n_rows: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = torch.nn.Linear(1024, 1530, bias=bias)  # 1530 is no multiple of 8: six blocks
    rows = torch.randn(1, n_rows, 1024)
    # float64 as the judge: both ways round in float32, in different orders
    right = rows.double() @ plain.weight.data.double().T + (plain.bias.data.double() if bias else 0)
    model = torch.nn.Sequential(plain)
    sped_up(2.0, model, monkeypatch)
    assert model[0].blocks.shape == (6, 1024, 255)
    with torch.inference_mode():
        found = model(rows)
    assert found.shape == (1, n_rows, 1530)
    np.testing.assert_allclose(found.numpy(), right.numpy(), atol=1e-5)


def test_blocks_are_a_view_so_that_a_tied_head_stays_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding, head = torch.nn.Embedding(8192, 256), torch.nn.Linear(256, 8192, bias=False)
    head.weight = embedding.weight
    sped_up(2.0, torch.nn.ModuleList([embedding, head]), monkeypatch)
    assert head.weight is embedding.weight
    assert head.blocks.untyped_storage().data_ptr() == embedding.weight.untyped_storage().data_ptr()


def test_weights_in_another_element_type_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sped_up(2.0, two_layers().to(torch.bfloat16), monkeypatch) == {}


def test_with_one_thread_there_is_nothing_to_share_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert speed_up(two_layers()) == {}


def test_the_embedded_model_says_the_same_in_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = record(load_model(MODEL_ID, device="cpu", fast=False), gravity().request)
    monkeypatch.setattr(one_row, "_gain", lambda weights, n_blocks: 2.0)
    model = load_model(MODEL_ID, device="cpu")
    in_blocks = record(model, gravity().request)
    assert sum(isinstance(module, OneRowLinear) for module in model.forward.model.modules()) == 30 * 7 + 1
    assert [s.token_id for s in plain.steps] == [s.token_id for s in in_blocks.steps]
    assert plain.model == in_blocks.model
    for one, other in zip(plain.steps, in_blocks.steps, strict=True):
        # float32 sums in another order, through 30 layers: logits of up to about 25
        np.testing.assert_allclose(one.logits.values, other.logits.values, atol=2e-3)
