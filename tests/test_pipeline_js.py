"""The pipeline in the browser against the server's: every given case, and random ones of every setting and any size."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from playwright.sync_api import sync_playwright

from inference.errors import NumericalError, SamplingError
from inference.sampling import SamplerStage, SamplingParams, choose, run_pipeline
from inference.sampling_steps import ORDERS, STEPS
from scripts.browser import find

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "assets" / "components" / "pipeline.js"
CASES = json.loads((ROOT / "tests" / "data" / "sampling_cases.json").read_text())
GIVEN = {case["id"]: case for case in CASES["cases"] if "logits" in case["input"]}
# S47 is about llama.cpp's window, S65 about hiding a NaN: settings that this engine does not have
WITH_PROBS = [c for c, case in GIVEN.items() if case["expected"].get("probs") is not None and c not in {"S47", "S65"}]

# Answers a case, as JSON text, with the stages' names and arrays in base64, the tokens chosen, or the error.
SOLVE = """
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const text = (array) => {
  let out = "";
  for (const byte of new Uint8Array(array.slice().buffer)) out += String.fromCharCode(byte);
  return btoa(out);
};
const solve = (line) => {
  const given = JSON.parse(line);
  try {
    const { prepare, runPipeline, choose } = pipeline;
    const prepared = prepare(new Float32Array(bytes(given.logits).buffer), given.context);
    for (const [settings, order] of given.before) {
      try { runPipeline(prepared, settings, order); } catch (error) { if (!error.kind) throw error; }
    }
    const stages = runPipeline(prepared, given.settings, given.order);
    return JSON.stringify({
      stages: stages.map(({ name, ids, scores, probs }) => [name, text(ids), text(scores), text(probs)]),
      chosen: given.us.map((u) => choose(stages.at(-1), u)),
    });
  } catch (error) {
    if (!error.kind) throw error;
    return JSON.stringify({ error: error.kind, step: error.step, id: error.id });
  }
};
"""
MODULE = "data:text/javascript;base64," + base64.b64encode(SCRIPT.read_bytes()).decode()
NODE = f"""
import {{ createInterface }} from "node:readline";
const pipeline = await import("{MODULE}");
{SOLVE}
for await (const line of createInterface({{ input: process.stdin }})) process.stdout.write(solve(line) + "\\n");
"""

Solve = Callable[[str], str]


@pytest.fixture(scope="module")
def solve() -> Iterator[Solve]:
    """Solves a case under Node, or in Chromium on a machine without Node."""
    yield from _in_node() if shutil.which("node") else _in_chromium()


def _in_node() -> Iterator[Solve]:
    command = ["node", "--input-type=module", "--eval", NODE]
    node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert node.stdin
    assert node.stdout

    def ask(line: str) -> str:
        node.stdin.write(line + "\n")
        node.stdin.flush()
        return node.stdout.readline()

    try:
        yield ask
    finally:
        node.stdin.close()
        node.wait(timeout=15)


def _in_chromium() -> Iterator[Solve]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page()
        page.evaluate(f"async () => {{ const pipeline = await import('{MODULE}'); {SOLVE} globalThis.solve = solve; }}")
        yield lambda line: page.evaluate("(line) => solve(line)", line)
        chromium.close()


def in_browser(
    solve: Solve, logits: Any, params: SamplingParams, context: Any = (), n_prompt: int = 0, eos: Any = (), us: Any = ()
) -> dict[str, Any]:
    order = ORDERS[params.order] if isinstance(params.order, str) else params.order
    named = asdict(params)
    # runs that begin alike come first, so that what is kept of them is used
    before = [(named | {"temperature": 1.3, "greedy": False}, order), (named, order[-1:] + order[:-1])]
    given = {
        "before": before if len(logits) < 1000 else [],
        "logits": base64.b64encode(np.asarray(logits, dtype=np.float32).tobytes()).decode(),
        "settings": named,
        "order": order,
        "context": {"ids": [int(i) for i in context], "nPrompt": n_prompt, "eosIds": list(eos)},
        "us": list(us),
    }
    answer = solve(json.dumps(given))
    assert answer, "the script ended"
    found: dict[str, Any] = json.loads(answer)
    return found


def on_server(logits: Any, params: SamplingParams, *context: Any) -> tuple[list[SamplerStage], dict[str, Any]]:
    """The server's stages, or what its error says in the browser's words."""
    try:
        return run_pipeline(np.asarray(logits, dtype=np.float32), params, *context), {}
    except SamplingError as error:
        return [], {"error": "empty", "step": error.values["step"]}
    except NumericalError as error:
        return [], {"error": "not_finite", "id": error.values["token_id"]}


def array(text: str, dtype: Any) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


def assert_equal(
    solve: Solve, logits: Any, params: SamplingParams, context: Any = (), n_prompt: int = 0, eos: Any = ()
) -> None:
    """Every stage has the server's name, kept set, order of tokens, scores and probabilities; or the same error."""
    us = [0.0, 0.1, 0.37, 0.5, 0.72, 0.9, 0.99, 0.9999]
    found = in_browser(solve, logits, params, context, n_prompt, eos, us)
    stages, refusal = on_server(logits, params, context, n_prompt, eos)
    if refusal:
        assert found == refusal
        return
    assert [name for name, *_ in found["stages"]] == [stage.name for stage in stages]
    for stage, (name, *arrays_of) in zip(stages, found["stages"], strict=True):
        ids, scores, probs = (array(a, d) for a, d in zip(arrays_of, (np.int32, np.float32, np.float32), strict=True))
        np.testing.assert_array_equal(np.sort(ids), np.flatnonzero(stage.kept), err_msg=name)
        kept = np.flatnonzero(stage.kept)
        np.testing.assert_array_equal(ids, kept[np.argsort(-stage.logits[kept], kind="stable")], err_msg=name)
        np.testing.assert_array_equal(scores, stage.logits[ids], err_msg=name)
        np.testing.assert_allclose(probs, stage.probs[ids], atol=1e-6, rtol=2e-7, err_msg=name)
    assert found["chosen"] == [choose(stages, u) for u in us]


# ---- given cases ----------------------------------------------------------------------------------------------------


def params_of(case: dict[str, Any], **changes: Any) -> SamplingParams:
    named = {**case["settings"], **changes}
    if "do_sample" in named:
        named["greedy"] = not named.pop("do_sample")
    return SamplingParams(**{name: value for name, value in named.items() if name in SamplingParams.__slots__})


def numbers(values: list[Any]) -> np.ndarray:
    return np.array([float(value) for value in values], dtype=np.float32)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case_id", GIVEN)
def test_a_given_case_comes_out_as_on_the_server(case_id: str, order: str, solve: Solve) -> None:
    case = GIVEN[case_id]
    ids = case["input"].get("input_ids", [])
    try:
        params = params_of(case, order=order)
    except SamplingError:  # refused before any pipeline runs
        assert case_id in {"S06", "S25"}
        return
    assert_equal(
        solve,
        numbers(case["input"]["logits"]),
        params,
        ids,
        case["input"].get("prompt_len", len(ids)),
        case["input"].get("eos", []),
    )


@pytest.mark.parametrize("case_id", WITH_PROBS)
def test_a_given_case_has_its_given_probabilities_in_the_browser(case_id: str, solve: Solve) -> None:
    case = GIVEN[case_id]
    ids = case["input"].get("input_ids", [])
    n_prompt = case["input"].get("prompt_len", len(ids))
    found = in_browser(solve, numbers(case["input"]["logits"]), params_of(case), ids, n_prompt)["stages"]
    _, kept, _, probs = found[-2] if found[-1][0] == "greedy" else found[-1]
    whole = np.zeros(len(case["input"]["logits"]))
    whole[array(kept, np.int32)] = array(probs, np.float32)
    np.testing.assert_allclose(whole, case["expected"]["probs"], atol=1e-6)


@pytest.mark.parametrize("row", CASES["top_p_boundary_study"], ids=lambda r: f"{r['probs']} p={r['top_p']}")
def test_top_p_on_a_boundary_keeps_the_exact_count_in_the_browser(row: dict[str, Any], solve: Solve) -> None:
    found = in_browser(solve, np.log(np.array(row["probs"])), SamplingParams(top_p=row["top_p"]))
    assert len(array(found["stages"][-1][1], np.int32)) == row["exact_rational_kept"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_logit_that_is_no_number_is_refused_with_its_id(bad: float, solve: Solve) -> None:
    assert_equal(solve, [0.0, bad, 1.0], SamplingParams())
    assert in_browser(solve, [0.0, bad, 1.0], SamplingParams()) == {"error": "not_finite", "id": 1}


def test_settings_that_remove_every_token_are_named(solve: Solve) -> None:
    params = SamplingParams(suppress_tokens=(0, 1))
    assert_equal(solve, [0.0, 1.0], params)
    assert in_browser(solve, [0.0, 1.0], params) == {"error": "empty", "step": "suppress_tokens"}
    assert in_browser(solve, [-np.inf], SamplingParams()) == {"error": "empty", "step": "raw"}


# ---- random ones ----------------------------------------------------------------------------------------------------

small = st.integers(0, 5)
any_settings = st.fixed_dictionaries(
    {},
    optional={
        "greedy": st.booleans(),
        "temperature": st.floats(0, 4),
        "top_k": st.integers(0, 70),
        "top_p": st.floats(0, 1),
        "min_p": st.floats(0, 1),
        "typical_p": st.floats(0, 1),
        "epsilon_cutoff": st.floats(0, 0.5),
        "eta_cutoff": st.floats(0, 0.5),
        "top_h": st.floats(0, 1),
        "repetition_penalty": st.floats(0.2, 3),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "no_repeat_ngram_size": st.integers(0, 4),
        "bad_words_ids": st.lists(st.lists(small, min_size=1, max_size=3), max_size=3),
        "suppress_tokens": st.lists(small, max_size=3),
        "sequence_bias": st.lists(st.tuples(st.lists(small, min_size=1, max_size=2), st.floats(-9, 9)), max_size=3),
        "min_new_tokens": st.integers(0, 8),
    },
)
any_order = st.one_of(st.sampled_from(list(ORDERS)), st.permutations(list(STEPS)).map(tuple))
logits_of_any_size = arrays(
    np.float32, st.integers(2, 80), elements=st.floats(-30, 30, width=16).map(float) | st.just(-np.inf)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(
    logits=logits_of_any_size,
    named=any_settings,
    order=any_order,
    context=st.lists(small, max_size=12),
    n_prompt=st.integers(0, 12),
    eos=st.lists(small, max_size=2),
)
def test_every_setting_in_any_order_comes_out_as_on_the_server(
    solve: Solve, logits: Any, named: dict[str, Any], order: Any, context: list[int], n_prompt: int, eos: list[int]
) -> None:
    context = [i for i in context if i < len(logits)]
    assert_equal(solve, logits, SamplingParams(**named, order=order), context, min(n_prompt, len(context)), eos)


PENALTIES = {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.7}
TAILS = (
    {"top_p": 0.99999}, {"top_p": 0.9, "temperature": 1.7}, {"typical_p": 0.9999}, {"typical_p": 0.3}, {"min_p": 1e-5},
    {"epsilon_cutoff": 1e-6}, {"eta_cutoff": 1e-5}, {"top_h": 0.8}, {"top_k": 40_000, "temperature": 3.3},
    PENALTIES | {"temperature": 0.81, "top_p": 0.9999},
)  # fmt: skip


@pytest.mark.parametrize("params", TAILS, ids=lambda p: "-".join(p))
@pytest.mark.parametrize(("size", "dtype"), [(49_152, np.float16), (262_144, np.float32)])  # float16: thousands of ties
def test_a_whole_vocabulary_is_cut_at_the_same_token_of_the_tail(
    size: int, dtype: Any, params: dict[str, Any], solve: Solve
) -> None:
    random = np.random.default_rng(size)
    logits = random.normal(0, 3, size).astype(dtype)
    context = random.integers(0, size, 2000)
    for order in ORDERS if params is TAILS[-1] else ["transformers"]:
        assert_equal(solve, logits, SamplingParams(**params, order=order), context, 500)


def test_a_uniform_and_a_two_valued_vocabulary_come_out_as_on_the_server(solve: Solve) -> None:
    flat = np.zeros(20_000, dtype=np.float32)
    flat[::3] = -0.0
    for logits in (flat, np.arange(20_000, dtype=np.float32) % 2):
        for params in (*TAILS, {"top_k": 5}):
            assert_equal(solve, logits, SamplingParams(**params), [5, 7, 7], 1)
