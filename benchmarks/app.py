"""How the app answers: first paint, first token, other controls during a run, and memory over ten runs.

    python -m benchmarks.app

Starts the app and drives it in headless Chromium. The last line is a JSON document; times are seconds in one browser on
this machine, with the ratio to a page that holds one line of text, so that a slow machine hides no fault.
"""

from __future__ import annotations

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from benchmarks.measure import machine
from scripts.browser import find

ROOT = Path(__file__).resolve().parent.parent
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FILLING = 5  # runs until the shelf of the session, made small for this, is full
SMALL_SHELF = {"INFEROSCOPE_SESSION_TRACE_MIB": "16"}
WARM_UP_S = 20.0  # the default model is loaded in the background after the first paint
# looks every 20 ms, in shadow trees too, and notes when the frame after a finding has been painted
LOOK = """(wanted) => {
  window.seen = wanted.map(() => 0);
  const found = wanted.map(() => false);
  const look = () => {
    const trees = [document, ...[...document.querySelectorAll("*")].map((node) => node.shadowRoot).filter(Boolean)];
    wanted.forEach((selector, i) => {
      if (found[i] || !trees.some((tree) => tree.querySelector(selector))) return;
      found[i] = true;
      requestAnimationFrame(() => setTimeout(() => (seen[i] = performance.now())));
    });
    if (!found.every(Boolean)) setTimeout(look, 20);
  };
  look();
}"""
RUN = "/?max_new_tokens={n}&decoding=greedy&prompt=Count+from+one+to+fifty"


def main() -> None:
    """Measure and print."""
    with sync_playwright() as playwright, serve(str(ROOT / "scripts" / "serve.py")) as (address, server):
        browser = playwright.chromium.launch(executable_path=str(find()), args=ARGS)
        results = {"machine": machine(), "first_paint": first_paint(browser, address)}
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        _ready(page, address, 24)
        results["first_run_s"] = first_token(page)
        results["warm_first_token_s"] = statistics.median(first_token(page) for _ in range(3))
        results["control_during_run_s"] = control_during_run(page, address)
        results["server_mib_over_ten_runs"] = memory(page, address, server)
        browser.close()
    print(json.dumps(results))


@contextmanager
def serve(*script: str) -> Iterator[tuple[str, psutil.Process]]:
    """A Streamlit server on a free port of this machine; `script` are the interpreter's arguments."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, *script, "--server.port", str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=os.environ | SMALL_SHELF
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=20)


def first_paint(browser: Browser, address: str) -> dict[str, Any]:
    """Seconds from opening to the demo run's strip and to its first chart, and to a page with one line of text.

    `cold` is the first reader of a server, `new` one with an empty browser cache, `again` one who has been here before.
    """
    figures: dict[str, Any] = {"cold_s": _open(browser.new_context(), address)}
    time.sleep(WARM_UP_S)
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text("import streamlit as st\nst.text('Here it is')\n", encoding="utf-8")
        with serve("-m", "streamlit", "run", str(bare)) as (bare_address, _):
            bare_s = [_open(browser.new_context(), bare_address, "[data-testid=stText]")[0] for _ in range(4)][1:]
    figures["new_s"] = _medians([_open(browser.new_context(), address) for _ in range(5)])
    known = browser.new_context()
    figures["again_s"] = _medians([_open(known, address) for _ in range(6)][1:])
    figures["bare_page_s"] = statistics.median(bare_s)
    return figures | {"strip_to_bare_page": figures["new_s"][0] / figures["bare_page_s"]}


def _medians(rows: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def _open(context: BrowserContext, address: str, *selectors: str) -> list[float]:
    """Seconds from opening to the frame that shows each of the selectors; without any, strip and first chart."""
    page = context.new_page()
    page.set_viewport_size({"width": 1440, "height": 900})
    wanted = selectors or (".player .chip", ".js-plotly-plot .main-svg")
    page.add_init_script(f"({LOOK})({json.dumps(wanted)})")
    page.goto(address, wait_until="commit")
    page.wait_for_function("seen.every((at) => at > 0)", timeout=60_000)
    seconds = [at / 1000 for at in page.evaluate("seen")]
    page.close()
    return seconds


def first_token(page: Page) -> float:
    """Seconds from the click to the first generated token on screen; the form is filled in already."""
    page.get_by_role("button", name="Run", exact=True).click()
    began = time.perf_counter()
    expect(page.get_by_text(re.compile(r"Generating: [1-9]"))).to_be_visible(timeout=120_000)
    seconds = time.perf_counter() - began
    expect(page.get_by_text("Ended by the limit of 24 new tokens.")).to_be_visible(timeout=120_000)
    return seconds


def control_during_run(page: Page, address: str) -> float:
    """Median seconds from a click on a toggle to its server's answer while a run goes on."""
    _ready(page, address, 200)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text(re.compile(r"Generating: [1-9]"))).to_be_visible(timeout=120_000)
    answers = []
    for _ in range(6):
        conversation = page.get_by_role("button", name="Conversation")
        enabled = conversation.is_enabled()
        page.get_by_text("Chat", exact=True).click()
        began = time.perf_counter()
        (expect(conversation).to_be_disabled if enabled else expect(conversation).to_be_enabled)(timeout=20_000)
        answers.append(time.perf_counter() - began)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text(re.compile("Cancelled after|Ended by"))).to_be_visible(timeout=60_000)
    return statistics.median(answers)


def memory(page: Page, address: str, server: psutil.Process) -> list[float]:
    """The server's resident MiB after each of ten runs of one tab, once its shelf is full."""
    _ready(page, address, 24)
    sizes = []
    for _ in range(FILLING + 10):
        first_token(page)
        sizes.append(round(server.memory_info().rss / 2**20, 1))
    return sizes[FILLING:]


def _ready(page: Page, address: str, n: int) -> None:
    page.goto(address + RUN.format(n=n))
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled(timeout=60_000)
    page.locator(".js-plotly-plot").first.wait_for(timeout=60_000)


if __name__ == "__main__":
    main()
