"""A running app and a real Chromium for the browser tests; each of them gets the marker `browser`."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from inference.conversion import cache_root
from scripts.browser import find

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; the hook sees those of other folders too."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def app_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the app, started once for all browser tests: "http://127.0.0.1:<port>"."""
    port = str(_free_port())
    address = f"http://127.0.0.1:{port}"
    scratch = tmp_path_factory.mktemp("app")
    log = scratch / "streamlit.log"
    # caches of its own, but for the converted model, which is made once
    caches = {"XDG_CACHE_HOME": str(scratch), "INFEROSCOPE_CACHE": str(cache_root().parent)}
    command = [sys.executable, "scripts/serve.py", "--server.port", port]
    with log.open("w") as output:
        server = subprocess.Popen(command, cwd=ROOT, env=os.environ | caches, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_healthy(server, address, log)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(timeout=15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all browser tests."""
    executable = find()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_ARGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1440 x 900 in a browser context of its own, without cookies or cache of other tests."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield context.new_page()
    context.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_healthy(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.fail(f"the app ended with status {server.returncode}:\n{log.read_text()}")
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(0.2)
    pytest.fail(f"the app did not answer within {START_S:.0f} s:\n{log.read_text()}")
