"""The loop: what it records, when it stops, how it fails, and that runs cannot see each other."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import numpy as np
import pytest
import torch

from inference import GenerationRequest, RecordOptions, SamplingParams
from inference.engine import Generation, generate, record
from inference.errors import MemoryLimitError, NumericalError, RequestError, SamplingError
from tests.scripted import CONTEXT, END, EOS, VOCAB, byte_tokenizer, saying, scripted, tiny_model

GREEDY = SamplingParams(greedy=True)


def ask(prompt: str = "abc", **changes) -> GenerationRequest:
    return GenerationRequest(prompt=prompt, **{"sampling": GREEDY, "max_new_tokens": 8} | changes)


def ids_of(text: str) -> list[int]:
    return list(text.encode())


def test_the_trace_knows_tokens_positions_phases_and_what_was_fed() -> None:
    trace = record(saying(ids_of("xyz")), ask(max_new_tokens=3))
    assert [t.data for t in trace.tokens] == [b"a", b"b", b"c", b"x", b"y", b"z"]
    assert [s.phase for s in trace.steps] == ["prefill", "decode", "decode"]
    assert [s.fed_ids.tolist() for s in trace.steps] == [ids_of("abc"), ids_of("x"), ids_of("y")]
    # the token just chosen is not in the cache yet: prompt + N - 1 positions after N new tokens
    assert trace.kv.positions.tolist() == [[3, 3], [4, 4], [5, 5]]
    assert trace.kv.added.tolist() == [[3, 3], [1, 1], [1, 1]]
    assert not trace.kv.dropped.any()


def test_kv_bytes_are_those_of_the_tensors() -> None:
    trace = record(tiny_model(), ask(max_new_tokens=2))
    per_position = 2 * 2 * 8 * 4  # key and value, 2 KV heads, head dim 8, float32
    assert trace.kv.nbytes.tolist() == [[3 * per_position] * 2, [4 * per_position] * 2]


def test_any_of_several_eos_ids_stops_and_is_named_and_not_shown() -> None:
    for eos in (EOS, END):
        trace = record(saying([*ids_of("hi"), eos]), ask())
        assert (trace.finish.reason, trace.finish.token_id) == ("eos", eos)
        assert trace.text == "hi"
        assert trace.tokens[-1].id == eos


def test_eos_in_the_prompt_does_not_stop_and_can_be_ignored_when_generated() -> None:
    trace = record(saying(ids_of("hi")), GenerationRequest(prompt_ids=(97, EOS), max_new_tokens=2, sampling=GREEDY))
    assert trace.text == "hi"
    trace = record(saying([104, EOS, 105]), ask(ignore_eos=True, max_new_tokens=3))
    assert (trace.text, trace.finish.reason) == ("hi", "length")


def test_a_stop_string_that_straddles_tokens_is_cut_and_named_with_its_place() -> None:
    opera = byte_tokenizer().encode("opera")
    assert len(opera) == 1
    trace = record(saying([*ids_of("so st"), *opera]), ask(stop_strings=("stop",)))
    assert trace.text == "so "
    assert (trace.finish.reason, trace.finish.text, trace.finish.at) == ("stop_string", "stop", 3)
    kept = record(saying([*ids_of("so st"), *opera]), ask(stop_strings=("stop",), include_stop_string=True))
    assert kept.text == "so stop"


def test_a_stop_string_in_the_prompt_alone_does_not_stop() -> None:
    assert record(saying(ids_of("op")), ask("st", stop_strings=("stop",), max_new_tokens=2)).finish.reason == "length"


def test_streamed_text_never_shows_half_a_character_and_joins_to_the_whole() -> None:
    data = "中文 é🙂".encode()
    with generate(saying(list(data)), ask(max_new_tokens=len(data))) as run:
        pieces = [step.text for step in run]
    assert pieces[:4] == ["", "", "中", ""]
    assert "".join(pieces) == "中文 é🙂"


def test_a_character_that_is_never_finished_is_shown_as_a_replacement_at_the_end() -> None:
    trace = record(saying(list("猫".encode()[:2])), ask(max_new_tokens=2))
    assert trace.text == b"\xe7\x8c".decode("utf-8", "replace") == byte_tokenizer().decode([0xE7, 0x8C])


def test_the_run_ends_where_the_context_ends() -> None:
    trace = record(saying(ids_of("x")), ask("a" * (CONTEXT - 3), max_new_tokens=50))
    assert (trace.finish.reason, len(trace.steps)) == ("context", 3)


def test_a_prompt_past_the_context_is_refused_with_both_numbers_before_the_model_is_called() -> None:
    model = saying(ids_of("x"))
    with pytest.raises(RequestError, match=rf"{CONTEXT + 6} tokens; tiny reads at most {CONTEXT}.*by 7 tokens"):
        generate(model, ask("a" * (CONTEXT + 6)))
    assert model.forward.calls == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"chat": True}, "no chat template"),
    ],
)
def test_a_request_that_cannot_be_run_is_refused_at_once(changes: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        generate(tiny_model(), ask(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be"),
        ({"prefill_chunk": 0}, "prefill_chunk must be"),
        ({"prompt": "a\ud83d"}, r"U\+D83D"),
        ({"prompt": (("user", "hi"),)}, "needs the chat template"),
    ],
)
def test_a_request_that_makes_no_sense_cannot_be_made(changes: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ask(**changes)


def test_nan_logits_are_an_error_that_names_the_step_and_the_next_run_works() -> None:
    def script(call: int, logits: torch.Tensor) -> torch.Tensor:
        return torch.full_like(logits, torch.nan) if call == 2 else logits

    model = scripted(script)
    run = generate(model, ask())
    with pytest.raises(NumericalError, match=r"^Step 2: .*token 0 is nan"):
        list(run)
    trace = run.trace()
    assert (len(trace.steps), trace.finish.reason) == (2, "error")
    assert "nan" in trace.finish.text
    assert len(record(model, ask()).steps) == 8


def test_an_empty_kept_set_is_an_error_that_names_the_step_and_the_setting() -> None:
    everything = SamplingParams(greedy=True, no_repeat_ngram_size=1, suppress_tokens=tuple(range(1, VOCAB)))
    run = generate(saying([0]), GenerationRequest(prompt_ids=(5,), sampling=everything, max_new_tokens=5))
    with pytest.raises(SamplingError, match=r"^Step 1: (suppress_tokens|no_repeat_ngram_size) removed every token"):
        list(run)


def test_running_out_of_memory_is_a_named_error_gives_memory_back_and_the_next_run_works() -> None:
    held: list[int] = []

    def script(call: int, logits: torch.Tensor) -> torch.Tensor:
        if call == 1:
            ballast = torch.zeros(8 * 2**20)  # held by the failing frame, as the failed pass's own tensors are
            held.append(ballast.data_ptr())
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
        return logits

    model = scripted(script)
    run = generate(model, ask())
    with pytest.raises(
        MemoryLimitError, match=r"^Step 1: There was not enough memory on cpu to feed 1 positions"
    ) as info:
        list(run)
    assert held
    assert info.value.__cause__ is None
    assert info.value.__context__ is None or info.value.__suppress_context__
    del info
    run.close()
    assert not [t for t in gc.get_objects() if type(t) is torch.Tensor and t.numel() == 8 * 2**20]
    assert len(record(model, ask()).steps) == 8


def test_an_error_of_the_model_that_is_no_memory_error_is_not_hidden() -> None:
    def script(call: int, logits: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        record(scripted(script), ask())


def test_closing_a_run_cancels_it_and_keeps_what_was_recorded() -> None:
    with generate(tiny_model(), ask(ignore_eos=True)) as run:
        next(run)
        next(run)
    trace = run.trace()
    assert (len(trace.steps), trace.finish.reason) == (2, "cancelled")
    assert trace.attention(1, 0).shape == (4, 1, 4)


def test_cancelling_from_outside_ends_a_run_between_two_chunks_of_its_prefill() -> None:
    run: Generation
    calls = []

    def script(call: int, logits: torch.Tensor) -> torch.Tensor:
        calls.append(call)
        if call == 1:
            run.cancel()
        return logits

    run = generate(scripted(script), ask("abcdefgh", prefill_chunk=2))
    assert list(run) == []
    assert (run.trace().finish.reason, calls) == ("cancelled", [0, 1])


def test_a_prefill_in_chunks_gives_the_same_record_as_a_whole_one() -> None:
    whole = record(tiny_model(), ask("abcdefgh", ignore_eos=True))
    chunks = record(tiny_model(), ask("abcdefgh", ignore_eos=True, prefill_chunk=3))
    assert [s.token_id for s in chunks.steps] == [s.token_id for s in whole.steps]
    assert [len(s.timing.passes_s) for s in chunks.steps][:2] == [3, 1]
    for layer in range(2):
        np.testing.assert_array_equal(chunks.visible(0, layer), whole.visible(0, layer))
        # float32 sums in another order: 1e-5 on weights of at most 1
        np.testing.assert_allclose(chunks.attention(0, layer), whole.attention(0, layer), atol=1e-5)
    assert chunks.kv.positions.tolist() == whole.kv.positions.tolist()


def test_one_seed_gives_one_text_and_a_drawn_seed_is_recorded_and_replays() -> None:
    sampling = SamplingParams(temperature=1.5, seed=7)
    first, second = (record(tiny_model(), ask(sampling=sampling, ignore_eos=True)) for _ in range(2))
    assert [s.decision for s in first.steps] == [s.decision for s in second.steps]
    drawn = record(tiny_model(), ask(sampling=SamplingParams(temperature=1.5), ignore_eos=True))
    assert drawn.sampling.seed is not None
    replayed = record(tiny_model(), ask(sampling=drawn.sampling, ignore_eos=True))
    assert [s.decision for s in replayed.steps] == [s.decision for s in drawn.steps]
    other = record(tiny_model(), ask(sampling=SamplingParams(temperature=1.5, seed=8), ignore_eos=True))
    assert [s.decision.draw_u for s in other.steps] != [s.decision.draw_u for s in first.steps]


def test_runs_that_take_turns_or_run_in_threads_give_what_they_give_alone() -> None:
    requests = [ask(text, sampling=SamplingParams(temperature=1.0, seed=3), ignore_eos=True) for text in ("ab", "xyz!")]
    alone = [record(tiny_model(), request) for request in requests]
    turns = [generate(tiny_model(), request) for request in requests]
    for _ in range(8):
        for run in turns:
            next(run)
    threaded: dict[int, object] = {}
    threads = [
        threading.Thread(target=lambda i=i, r=r: threaded.update({i: record(tiny_model(), r)}))
        for i, r in enumerate(requests)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, expected in enumerate(alone):
        for trace in (turns[index].trace(), threaded[index]):
            assert [s.token_id for s in trace.steps] == [s.token_id for s in expected.steps]
            for layer in range(2):
                np.testing.assert_allclose(trace.attention(7, layer), expected.attention(7, layer), atol=1e-6)
            assert [len(s.hidden) for s in trace.steps] == [2] * 8


def test_what_is_not_asked_for_is_not_recorded() -> None:
    nothing = RecordOptions(logits=False, attention=False, hidden=False, router=False)
    step = record(tiny_model(), ask(record=nothing)).steps[0]
    assert (step.logits, step.attention, step.hidden, step.router, step.nbytes) == (None, None, None, (), 0)
    some = record(tiny_model(), ask(record=RecordOptions(logits=5, attention=(1,))))
    assert some.steps[0].logits.ids.shape == (5,)
    assert some.attention(0, 1).shape == (4, 3, 3)
    full = record(tiny_model(), ask())
    ids, probs = full.steps[0].logits.top(5)
    assert some.steps[0].logits.ids.tolist() == ids.tolist()
    np.testing.assert_allclose(some.steps[0].logits.top(5)[1], probs, rtol=1e-6)


def test_what_does_not_fit_is_left_out_in_order_and_said_and_the_run_goes_on() -> None:
    full = record(tiny_model(), ask(ignore_eos=True))
    limited = RecordOptions(max_trace_bytes=full.nbytes - 1)
    trace = record(tiny_model(), ask(ignore_eos=True, record=limited))
    assert [str(note)[:13] for note in trace.left_out] == ["Hidden states"]
    assert trace.steps[0].hidden is None
    assert trace.steps[0].attention is not None
    tight = record(tiny_model(), ask(ignore_eos=True, record=RecordOptions(max_trace_bytes=0)))
    assert len(tight.steps) == 8
    assert tight.nbytes == 0
    assert [str(note).split(" ")[0] for note in tight.left_out] == ["Hidden", "Attention", "Logits"]


def test_the_need_computed_before_the_run_is_what_the_records_take() -> None:
    run = generate(tiny_model(), ask(ignore_eos=True))
    planned = run.plan.total_bytes
    for _ in run:
        pass
    assert run.trace().nbytes == planned


def test_times_add_up_and_the_first_token_comes_after_the_prefill() -> None:
    ticks = iter(range(10_000))
    run = Generation(tiny_model(), ask(max_new_tokens=2), clock=lambda: float(next(ticks)))
    trace = Generation.trace(run) if list(run) else None
    timing = trace.timing
    # began 0, tokenised 1; step: began, pass began, pass ended, forwarded, sampled, recorded
    assert timing.tokenise_s == 1
    assert timing.forward_s.tolist() == [3, 3]
    assert timing.sampling_s.tolist() == [1, 1]
    assert timing.recording_s.tolist() == [1, 1]
    assert timing.at_s.tolist() == [6, 12]
    assert trace.steps[0].timing.passes_s == (1,)


def test_ten_runs_leave_no_memory_behind() -> None:
    record(tiny_model(), ask(ignore_eos=True))
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(10):
        record(tiny_model(), ask(ignore_eos=True))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 200_000  # one trace of this model alone holds more
