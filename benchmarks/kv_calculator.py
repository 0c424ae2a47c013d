"""How fast the memory calculator repaints while a slider is dragged, and how soon its server answers a release.

    python -m benchmarks.kv_calculator

Starts the app and drives it in headless Chromium. The last line is a JSON document; times are milliseconds in one
browser on this machine. A repaint is timed from the slider's event to the frame after the one that painted it.
"""

from __future__ import annotations

import json
import statistics
import time

from playwright.sync_api import Page, sync_playwright

from benchmarks.app import ARGS, ROOT, serve
from benchmarks.measure import machine
from scripts.browser import find

MODELS = {"six factors": "Llama 3.1 8B", "terms of layers": "Gemma 3 27B (text)"}
REPAINTS, RELEASES = 60, 8

# moves the slider of T where each of its places is another number; waits until the frame with the new bytes is out
DRAG = """async (root, repaints) => {
  const slider = root.querySelector('input[type="range"][aria-label="tokens a sequence"]');
  const exact = root.querySelector(".exact");
  const frame = () => new Promise(requestAnimationFrame);
  const times = [];
  for (let i = 1; i <= repaints; i += 1) {
    const before = exact.textContent;
    slider.value = Math.round(slider.max * (0.4 + (0.6 * i) / repaints));
    const began = performance.now();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    while (exact.textContent === before) await frame();
    await frame();
    times.push(performance.now() - began);
  }
  return times;
}"""


def main() -> None:
    """Measure and print."""
    results: dict[str, object] = {"machine": machine()}
    with sync_playwright() as playwright, serve(str(ROOT / "scripts" / "serve.py")) as (address, _server):
        browser = playwright.chromium.launch(executable_path=str(find()), args=ARGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(address)
        page.locator(".js-plotly-plot").first.wait_for(timeout=60_000)
        for name, model in MODELS.items():
            page.goto(f"{address}/memory?preset={model}")
            page.locator(".js-plotly-plot").nth(2).wait_for(timeout=60_000)
            times = page.locator(".kv_calculator").evaluate(DRAG, REPAINTS)
            results[name] = {"repaint_ms": statistics.median(times), "slowest_ms": max(times)}
        results["release_to_answer_ms"] = statistics.median(release(page, 1000 + n) for n in range(RELEASES))
        browser.close()
    print(json.dumps(results))


def release(page: Page, tokens: int) -> float:
    """Milliseconds from a number that is entered to the server's own figures for it."""
    field = page.locator("#calculator-tokens")
    field.fill(str(tokens))
    began = time.perf_counter()
    field.press("Enter")
    page.get_by_text(f"At {tokens:,} tokens a sequence").wait_for(timeout=20_000)
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    main()
