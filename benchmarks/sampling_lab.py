"""How the sampling lab answers: a repaint while a slider is dragged, and the server's answer after its release.

    python -m benchmarks.sampling_lab

Drives the component in headless Chromium, with all penalties off and on. The last line is a JSON document: medians in
milliseconds, from the slider's event to the painted frame, and from its release to the confirmed answer in the page.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from benchmarks.app import ARGS, ROOT, serve
from benchmarks.measure import machine
from scripts.browser import find

SIZES = (49_152, 262_144)
ROUNDS = 40
STATUS = ".sampling_lab .status"
LAB = """
const all = [...document.querySelectorAll('*')].map((node) => node.shadowRoot).filter(Boolean);
const lab = [document, ...all].map((tree) => tree.querySelector('.sampling_lab .controls')).find(Boolean).parentNode;
const slider = lab.querySelector('[data-name="temperature"] .slider');
const painted = () => new Promise((done) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done(performance.now());
  channel.port2.postMessage(0);
}));
const move = (at) => {
  slider.value = 0.5 + 0.05 * (at % 20);
  slider.dispatchEvent(new Event("input"));
};
"""
DRAG = f"""async (rounds) => {{ {LAB}
const times = [];
for (let at = 0; at < rounds; at += 1) {{
  const began = performance.now();
  move(at);
  times.push(await painted() - began);
}}
return times;
}}"""
RELEASE = f"""async (rounds) => {{ {LAB}
const status = lab.querySelector(".status");
const times = [];
for (let at = 0; at < rounds; at += 1) {{
  move(at + 1);
  await painted();
  const began = performance.now();
  slider.dispatchEvent(new Event("change"));
  while (!status.classList.contains("agrees")) {{
    if (performance.now() - began > 20000) throw new Error(status.textContent);
    await new Promise((done) => setTimeout(done, 2));
  }}
  times.push(performance.now() - began);
}}
return times;
}}"""


def main() -> None:
    """Measure and print."""
    results: dict[str, object] = {"machine": machine()}
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        script = Path(folder) / "lab.py"
        script.write_text((ROOT / "tests" / "browser" / "sampling_lab_app.py").read_text(encoding="utf-8"))
        browser = playwright.chromium.launch(executable_path=str(find()), args=ARGS)
        with serve("-m", "streamlit", "run", str(script)) as (address, _):
            for size in SIZES:
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(f"{address}/?size={size}")
                results[str(size)] = measure(page)
                page.close()
        browser.close()
    print(json.dumps(results))


def measure(page: Page) -> dict[str, float]:
    """Medians in milliseconds for the vocabulary on the page."""
    expect(page.locator(STATUS)).to_have_class("status agrees", timeout=60_000)
    figures = {"drag_ms": _median(page, DRAG, ROUNDS), "release_ms": _median(page, RELEASE, 10)}
    for name, value in {"top_p": "0.95", "repetition_penalty": "1.2", "presence_penalty": "0.5"}.items():
        field = page.locator(f'.control[data-name="{name}"] .number')
        field.fill(value)
        field.press("Enter")
    page.get_by_role("button", name="llama.cpp").click()  # compared with transformers' order: two pipelines a repaint
    expect(page.locator(STATUS)).to_have_class("status agrees", timeout=60_000)
    return figures | {
        "drag_penalties_two_orders_ms": _median(page, DRAG, ROUNDS),
        "release_penalties_two_orders_ms": _median(page, RELEASE, 10),
    }


def _median(page: Page, script: str, rounds: int) -> float:
    return round(statistics.median(page.evaluate(script, rounds)), 1)


if __name__ == "__main__":
    main()
