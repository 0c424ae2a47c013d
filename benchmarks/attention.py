"""How the attention page answers for a long prompt: map of heads, a head, zoom, and the size of what is sent.

    python -m benchmarks.attention [--tokens 4000] [--app]

Records the embedded model on a prompt of that many tokens. The last line is a JSON document: median seconds of the
engine alone, the record's size, and with `--app` seconds from click to drawn in headless Chromium and the largest
message that the page got.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from playwright.sync_api import Page, sync_playwright

from benchmarks.app import ARGS, serve
from benchmarks.measure import machine
from inference.attention_rows import Axis, LayerRows, n_fed, pooled
from inference.engine import record
from inference.head_measures import head_map
from inference.models import load_model
from inference.request import GenerationRequest
from inference.sampling import SamplingParams
from inference.trace import Trace
from scripts.browser import find
from scripts.serve import ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import os
import streamlit as st
from inference.trace import Trace
from ui.attention.explorer import explorer
st.set_page_config(layout="wide")
trace = st.cache_resource(Trace.load)(os.environ["INFEROSCOPE_BENCHMARK_RUN"])
st.text("Loaded")
if st.button("Open the page") or st.session_state.get("open"):
    st.session_state["open"] = True
    explorer(trace)
"""

CLICK = """async ([button, at, said]) => {
  const trees = [document, ...[...document.querySelectorAll('*')].map((node) => node.shadowRoot).filter(Boolean)];
  const all = (selector) => trees.flatMap((tree) => [...tree.querySelectorAll(selector)]);
  const [view, where] = [all('.head_view')[0], all('.head_view .where')[0]];
  const began = performance.now();
  all(button)[at].click();
  while (!(view.ariaLabel + where.textContent).includes(said)) {
    if (performance.now() - began > 60000) throw new Error(said);
    await new Promise((done) => setTimeout(done, 4));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return (performance.now() - began) / 1000;
}"""


def main() -> None:
    """Record, measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--app", action="store_true", help="drive the page in a browser too")
    asked = parser.parse_args()
    trace = long_run(asked.tokens)
    results = {"machine": machine(), "tokens": trace.n_prompt, "record_mib": trace.nbytes / 2**20, **engine(trace)}
    if asked.app:
        results |= app(trace)
    print(json.dumps(results))


def long_run(n_tokens: int) -> Trace:
    """The embedded model's run on `n_tokens` token ids of a text, and two new tokens."""
    model = load_model("smollm2-135m")
    words = (ROOT / "README.md").read_text(encoding="utf-8") * 20
    ids = tuple(model.tokenizer.encode(GenerationRequest(prompt=words)).tolist()[:n_tokens])
    return record(model, GenerationRequest(prompt_ids=ids, max_new_tokens=2, sampling=SamplingParams(greedy=True)))


def engine(trace: Trace) -> dict[str, float]:
    """Seconds of what a section computes, without a page."""
    n = n_fed(trace)
    layer = trace.model.n_layers // 2
    return {
        "map_s": seconds(lambda: head_map(trace)),
        "head_s": seconds(lambda: pooled(LayerRows(trace, layer), 1, Axis(0, n), Axis(0, n))),
        "zoom_s": seconds(lambda: pooled(LayerRows(trace, layer), 1, Axis(n - 200, n), Axis(0, 200))),
        "resident_mib": psutil.Process().memory_info().rss / 2**20,
    }


def seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Median of a few rounds after one that is not counted."""
    found = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


def app(trace: Trace) -> dict[str, float]:
    """Seconds from click to drawn, and the largest message that the page got."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run, script = Path(folder) / "run.safetensors", Path(folder) / "page.py"
        trace.save(run)
        script.write_text(SCRIPT, encoding="utf-8")
        os.environ |= {"INFEROSCOPE_BENCHMARK_RUN": str(run), **ENVIRONMENT}  # as `make run` serves
        with serve("-m", "streamlit", "run", str(script)) as (address, _server):
            browser = playwright.chromium.launch(executable_path=str(find()), args=ARGS)
            return drive(browser.new_page(viewport={"width": 1440, "height": 1200}), address)


def drive(page: Page, address: str) -> dict[str, float]:
    """Open the map, other heads and zooms."""
    sizes = [0]
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(frame))))
    page.goto(address)
    page.get_by_text("Loaded").wait_for(timeout=120_000)
    began = time.perf_counter()
    page.get_by_role("button", name="Open the page").click()
    thumbs = page.locator(".head_map .thumb")
    thumbs.first.wait_for(timeout=120_000)
    opened = time.perf_counter() - began
    page.locator(".head_view .chip").first.wait_for(timeout=120_000)
    page.wait_for_timeout(2000)
    heads = [_until(page, ".head_map .thumb", at, f"layer {at // 9} · head {at % 9}") for at in range(3, 9)]
    zooms = []
    for _ in range(3):
        zooms += [_until(page, ".head_view .tool", 0, "keys 1000–"), _until(page, ".head_view .tool", 2, "keys 0–")]
    return {
        "page_map_s": opened,
        "page_head_s": statistics.median(heads),
        "page_zoom_s": statistics.median(zooms),
        "largest_message_mb": max(sizes) / 1e6,
    }


def _until(page: Page, button: str, at: int, said: str) -> float:
    """Seconds from a click in the page to the frame that shows what was asked for."""
    seconds: float = page.evaluate(CLICK, [button, at, said])
    page.wait_for_timeout(1000)
    return seconds


if __name__ == "__main__":
    main()
