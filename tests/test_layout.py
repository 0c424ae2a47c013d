"""The layout of weights changes how fast they are read and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import layout
from inference.engine import record
from inference.layout import arrange
from inference.models import load_model
from tests.embedded import MODEL_ID, embedded, gravity


def two_layers() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 64))


@pytest.mark.parametrize(("ratio", "changed"), [(2.0, True), (1.0, False)])
def test_a_shape_is_laid_out_anew_only_where_that_is_faster(
    ratio: float, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = two_layers()
    before = model[0].weight.detach().clone()
    seconds = iter([ratio, 1.0])
    monkeypatch.setattr(layout, "_seconds", lambda weights: next(seconds))
    assert arrange(model) == ({(1024, 1024): 2.0} if changed else {})
    assert model[0].weight.is_contiguous() != changed
    assert model[1].weight.is_contiguous()  # too small to matter
    torch.testing.assert_close(model[0].weight, before, rtol=0, atol=0)


def test_weights_in_another_element_type_are_left_alone() -> None:
    assert arrange(two_layers().to(torch.bfloat16)) == {}


def test_a_tied_head_gets_a_copy_and_the_embedding_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding, head = torch.nn.Embedding(4096, 256), torch.nn.Linear(256, 4096, bias=False)
    head.weight = embedding.weight
    seconds = iter([2.0, 1.0])
    monkeypatch.setattr(layout, "_seconds", lambda weights: next(seconds))
    arrange(torch.nn.ModuleList([embedding, head]))
    assert embedding.weight.is_contiguous()
    assert head.weight.data_ptr() != embedding.weight.data_ptr()
    torch.testing.assert_close(head.weight, embedding.weight, rtol=0, atol=0)


def test_the_embedded_model_says_the_same_in_either_layout() -> None:
    plain = record(load_model(MODEL_ID, device="cpu", fast=False), gravity().request)
    assert [s.token_id for s in plain.steps] == [s.token_id for s in gravity().steps]
    assert plain.model == embedded().facts
    for one, other in zip(plain.steps, gravity().steps, strict=True):
        # float32 sums in another order, through 30 layers: logits of up to about 25
        np.testing.assert_allclose(one.logits.values, other.logits.values, atol=2e-3)
