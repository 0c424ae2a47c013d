"""The logit lens against transformers' own hidden states, norms and heads; and its way into the run file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from inference import RecordOptions, Trace
from inference.branch import branch
from inference.engine import generate, record
from inference.errors import ModelError, TraceError, TraceFileError
from inference.head import Head, record_of, with_lens
from inference.lens import N_TOP, LensRecord
from inference.models import wrap
from inference.trace_io import dump, load
from tests.scripted import byte_tokenizer, tiny_model
from tests.test_trace_io import parts, rebuilt
from tests.tiny import NAMES, ask, build, fed_ids, greedy, loaded

# architecture -> the final norm's name, and what the model does to the head's output, as its own file writes it
TAILS = {
    "bloom": ("transformer.ln_f", lambda logits, config: logits),
    "cohere2": ("model.norm", lambda logits, config: logits * config.logit_scale),
    "deepseek_v3": ("model.norm", lambda logits, config: logits),
    "gemma2": ("model.norm", lambda logits, config: 30.0 * torch.tanh(logits / 30.0)),
    "gpt2": ("transformer.ln_f", lambda logits, config: logits),
    "gpt_neox": ("gpt_neox.final_layer_norm", lambda logits, config: logits),
    "granite": ("model.norm", lambda logits, config: logits / config.logits_scaling),
    "lfm2": ("model.embedding_norm", lambda logits, config: logits),
    "llama": ("model.norm", lambda logits, config: logits),
    "mixtral": ("model.norm", lambda logits, config: logits),
    "opt": ("model.decoder.final_layer_norm", lambda logits, config: logits),
    "phi": ("model.final_layernorm", lambda logits, config: logits),
    "qwen3_next": ("model.norm", lambda logits, config: logits),
}
SCALES = {"cohere2": ("logit_scale", 0.3), "granite": ("logits_scaling", 4.0)}
WITHOUT = {"gemma3n_text"}  # its layers hand on four streams at once


def changed(name: str):
    """A fresh model, with a scale on its logits that shows."""
    model = build(name)
    if name in SCALES:
        setting, value = SCALES[name]
        setattr(model, setting, value)
        setattr(model.config, setting, value)
    return model


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("name", sorted(TAILS))
def test_each_layer_says_what_norm_and_head_make_of_the_hidden_states_that_transformers_gives(name: str) -> None:
    trace = record(wrap(changed(name), byte_tokenizer(), name), ask(max_new_tokens=4, record=RecordOptions(lens=True)))
    hf, (norm, after) = changed(name), TAILS[name]
    with torch.no_grad():
        hidden = hf(torch.tensor([fed_ids(trace)]), use_cache=False, output_hidden_states=True).hidden_states[1:-1]
        logits = [after(hf.get_output_embeddings()(hf.get_submodule(norm)(h))[0], hf.config).numpy() for h in hidden]
    for step in trace.steps:
        at = trace.n_prompt - 1 + step.index
        for layer, of_layer in enumerate(logits):
            probs = softmax(of_layer[at])
            expected = np.sort(probs)[::-1][:N_TOP]
            # float32 through other kernels, on logits of about 10
            np.testing.assert_allclose(step.lens.probs[layer], expected, rtol=2e-4)
            np.testing.assert_allclose(step.lens.probs[layer], probs[step.lens.ids[layer]], rtol=2e-4)
            assert step.lens.chosen_probs[layer] == pytest.approx(probs[step.token_id], rel=2e-4)
            assert step.lens.chosen_ranks[layer] == 1 + np.count_nonzero(of_layer[at] > of_layer[at][step.token_id])


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITHOUT))
def test_the_last_layer_is_the_steps_own_distribution_in_every_architecture(name: str) -> None:
    trace = greedy(name)
    computed = Head(loaded(name))(np.stack([step.hidden[-1] for step in trace.steps])).numpy()
    with_logits = with_lens(loaded(name), trace.steps)
    without = with_lens(loaded(name), [replace(step, logits=None) for step in trace.steps])
    for step, other, logits in zip(with_logits, without, computed, strict=True):
        np.testing.assert_allclose(logits, step.logits.values, atol=2e-5)  # rows of a batch round differently
        ids, probs = step.logits.top(N_TOP)
        assert step.lens.ids[-1].tolist() == ids.tolist()
        assert step.lens.probs[-1].tolist() == probs.tolist()
        assert (step.lens.chosen_ranks[-1], step.lens.chosen_probs[-1]) == (
            step.decision.rank,
            np.float32(step.decision.raw_prob),
        )
        np.testing.assert_allclose(other.lens.probs[-1], probs, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.bfloat16, 2.0**-4), (torch.float16, 2.0**-7)], ids=str)
@pytest.mark.parametrize("name", ["gemma2", "gpt2", "llama", "mixtral"])
def test_hidden_states_of_half_precision_go_back_to_the_model_unchanged(
    name: str, dtype: torch.dtype, unit: float
) -> None:
    trace = greedy(name, None, dtype)
    logits = Head(loaded(name, dtype))(np.stack([step.hidden[-1] for step in trace.steps])).numpy()
    expected = np.stack([step.logits.values for step in trace.steps])
    np.testing.assert_allclose(logits, expected, rtol=0, atol=unit)  # the last place of logits up to 16
    assert all(step.lens is not None for step in with_lens(loaded(name, dtype), trace.steps))


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITHOUT))
def test_computing_it_leaves_the_model_as_it_was(name: str) -> None:
    before = greedy(name)
    Head(loaded(name))(before.steps[0].hidden)
    again = record(loaded(name), ask(max_new_tokens=3))
    assert [s.token_id for s in again.steps] == [s.token_id for s in before.steps[:3]]
    assert again.steps[2].logits.values.tolist() == before.steps[2].logits.values.tolist()


def test_a_model_that_hands_on_several_streams_says_so_and_its_run_goes_on() -> None:
    model = loaded("gemma3n_text")
    with pytest.raises(ModelError, match="no logit lens"):
        Head(model)
    trace = record(model, ask(max_new_tokens=2, record=RecordOptions(lens=True)))
    assert [step.lens for step in trace.steps] == [None, None]
    assert [str(note) for note in trace.left_out] == [
        "There is no logit lens: this model's layers hand on no single hidden state."
    ]


def test_a_head_that_does_not_give_the_models_own_logits_is_refused_and_the_run_is_kept() -> None:
    steps = [
        replace(s, logits=replace(s.logits, values=s.logits.values + np.float32(1))) for s in greedy("llama").steps
    ]
    with pytest.raises(ModelError, match="does not give its own logits"):
        with_lens(loaded("llama"), steps)


def test_top_tokens_ranks_and_the_layer_that_takes_the_lead_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.5, 0.3], [0.1, 0.4, 0.5]]))
    lens = record_of(logits, chosen=2)
    assert lens.ids.tolist() == [[1, 2, 0], [0, 2, 1], [1, 2, 0], [2, 1, 0]]
    np.testing.assert_allclose(lens.probs, [[0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.5, 0.4, 0.1]])
    assert lens.chosen_ranks.tolist() == [2, 2, 2, 1]
    np.testing.assert_allclose(lens.chosen_probs, [0.3, 0.3, 0.3, 0.5])
    assert lens.ranks(1).tolist() == [1, 3, 1, 2]
    assert lens.lead == 3
    assert record_of(logits[[2, 0, 1, 2, 0]], chosen=1).lead == 3
    assert record_of(logits[[2, 0]], chosen=1).lead == 0


def test_equal_logits_stand_in_id_order() -> None:
    lens = record_of(torch.tensor([[1.0, 3.0, 1.0, 1.0]]), chosen=2)
    assert lens.ids.tolist() == [[1, 0, 2, 3]]
    assert lens.chosen_ranks.tolist() == [3]


def test_a_token_outside_the_highest_has_no_rank_but_the_chosen_one_has() -> None:
    logits = torch.arange(50, dtype=torch.float32)[None]
    lens = record_of(logits, chosen=3)
    assert lens.ids.shape == (1, N_TOP)
    assert (lens.ranks(3).tolist(), lens.ranks(49).tolist(), lens.chosen_ranks.tolist()) == ([0], [1], [47])


def test_it_takes_what_the_budget_says_and_can_stay_without_its_hidden_states() -> None:
    options = RecordOptions(hidden=False, lens=True)
    run = generate(tiny_model(), ask(max_new_tokens=5, ignore_eos=True, record=options))
    planned = dict(run.plan.nbytes)
    list(run)
    trace = run.trace()
    assert all(step.hidden is None for step in trace.steps)
    assert sum(step.lens.nbytes for step in trace.steps) == planned["lens"] == 5 * 2 * (20 * 8 + 8)
    assert trace.nbytes == run.plan.total_bytes - planned["hidden"]


def test_it_is_left_out_first_where_the_record_would_not_fit() -> None:
    full = record(tiny_model(), ask(ignore_eos=True))
    limited = RecordOptions(lens=True, max_trace_bytes=full.nbytes)
    trace = record(tiny_model(), ask(ignore_eos=True, record=limited))
    assert [str(note).split(",")[0] for note in trace.left_out] == ["The logit lens was left out"]
    assert trace.steps[0].hidden is not None


def test_it_comes_back_from_the_run_file_and_so_does_a_part_of_it() -> None:
    trace = record(tiny_model(), ask(record=RecordOptions(logits=5, lens=True), max_new_tokens=6, ignore_eos=True))
    part = replace(trace, steps=(*trace.steps[:2], replace(trace.steps[2], lens=None), *trace.steps[3:]))
    for one in (trace, part):
        back = load(dump(one))
        for before, after in zip(one.steps, back.steps, strict=True):
            assert (before.lens is None) == (after.lens is None)
            if before.lens is not None:
                for name in ("ids", "probs", "chosen_probs", "chosen_ranks"):
                    assert getattr(after.lens, name).tolist() == getattr(before.lens, name).tolist()
                    assert getattr(after.lens, name).dtype == getattr(before.lens, name).dtype
        token = back.vocabulary.token(int(trace.steps[0].lens.ids[0, 15]))
        assert token.data == trace.vocabulary.token(token.id).data  # the small vocabulary of the file has it


def test_the_demo_run_holds_it_for_every_step_and_layer() -> None:
    trace = Trace.load(Path(__file__).resolve().parent.parent / "assets" / "demo.safetensors")
    for step in trace.steps:
        assert step.lens.ids.shape == (trace.model.n_layers, N_TOP)
        assert step.lens.ids[-1].tolist() == step.logits.ids[:N_TOP].tolist()
        assert step.lens.chosen_ranks[-1] == step.decision.rank
        assert step.lens.chosen_probs[-1] == pytest.approx(step.decision.raw_prob)


def test_a_file_of_the_version_before_opens_and_has_no_lens() -> None:
    header, tensors = parts(dump(record(tiny_model(), ask(max_new_tokens=2))))
    del header["request"]["record"]["lens"]
    back = load(rebuilt(header | {"version": 1}, tensors))
    assert [step.lens for step in back.steps] == [None, None]
    assert back.request.record.lens is False


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("lens/ids", lambda a: a[:, :, :0]),
        ("lens/ids", lambda a: a - 300),
        ("lens/probs", lambda a: a[:, :1]),
        ("lens/probs", lambda a: a.astype(np.float64)),
        ("lens/chosen_ranks", lambda a: a[:1]),
        ("lens/steps", lambda a: a[:-1]),
    ],
)
def test_a_damaged_lens_in_a_file_is_refused(name: str, change) -> None:
    header, tensors = parts(dump(record(tiny_model(), ask(max_new_tokens=3, record=RecordOptions(lens=True)))))
    with pytest.raises(TraceFileError, match="damaged"):
        load(rebuilt(header, tensors | {name: np.ascontiguousarray(change(tensors[name]))}))


def test_it_is_computed_afterwards_for_the_steps_that_lack_it_with_its_progress() -> None:
    asked = record(tiny_model(), ask(max_new_tokens=6, ignore_eos=True, record=RecordOptions(lens=True)))
    plain = [replace(step, lens=None) for step in asked.steps]
    shares: list[float] = []
    later = with_lens(tiny_model(), [*asked.steps[:2], *plain[2:]], shares.append)
    assert later[0].lens is asked.steps[0].lens
    for before, after in zip(asked.steps, later, strict=True):
        assert after.lens.ids.tolist() == before.lens.ids.tolist()
    assert shares[-1] == 1
    assert with_lens(tiny_model(), plain, cancelled=lambda: True) is None
    with pytest.raises(TraceError, match="holds no hidden states"):
        with_lens(tiny_model(), [replace(step, hidden=None) for step in plain])


def test_a_branch_has_the_lens_of_its_own_tokens() -> None:
    trace = record(tiny_model(), ask(max_new_tokens=6, ignore_eos=True, record=RecordOptions(lens=True)))
    other = int(trace.steps[3].logits.top(7)[0][6])
    with branch(tiny_model(), trace, 3, other) as run:
        list(run)
        new: Trace = run.trace()
    assert all(isinstance(step.lens, LensRecord) for step in new.steps)
    assert new.steps[3].lens.chosen_ranks[-1] == 7
    assert new.steps[3].lens.ids.tolist() == trace.steps[3].lens.ids.tolist()


def test_a_run_that_is_cancelled_keeps_its_steps_without_it() -> None:
    run = generate(tiny_model(), ask(max_new_tokens=6, ignore_eos=True, record=RecordOptions(lens=True, hidden=False)))
    for step in run:
        if step.index == 2:
            run.cancel()
    assert [step.lens for step in run.trace().steps] == [None] * 3
    assert [step.hidden for step in run.trace().steps] == [None] * 3
