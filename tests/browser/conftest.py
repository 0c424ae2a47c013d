"""A running app and a real Chromium for the browser tests; each of them gets the marker `browser`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from inference.conversion import cache_root
from scripts.browser import find
from tests.browser import servers

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
    scratch = tmp_path_factory.mktemp("app")
    # caches of its own, but for the converted model, which is made once
    caches = {"XDG_CACHE_HOME": str(scratch), "INFEROSCOPE_CACHE": str(cache_root().parent)}
    with servers.app(scratch, caches) as address:
        yield address


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
