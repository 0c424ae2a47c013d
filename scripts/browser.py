"""Find a Chromium for the browser tests, or install one.

In this order: the system's own, an earlier download of Playwright's, Debian's package where it can be had,
a new download by Playwright. `python scripts/browser.py` prints the path of the one that the tests will use.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
USUAL_PLACES = (
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
NOTHING_FOUND = (
    "The browser tests need Chromium, and none that starts was found: not on PATH, not in the usual places, "
    "not among Playwright's downloads. Install Chromium or Google Chrome and run this again."
)
NO_DRIVER = (
    "The browser tests need Playwright, and its driver does not start: `python -m playwright --version` says "
    "why. On Debian it needs the package libatomic1."
)
DOWNLOAD_PATH = (
    "from playwright.sync_api import sync_playwright\n"
    "with sync_playwright() as playwright: print(playwright.chromium.executable_path)"
)


class BrowserNotFoundError(RuntimeError):
    """No Chromium that starts could be found."""


def find(environ: Mapping[str, str] = os.environ, places: Iterable[str] | None = None) -> Path:
    """Return the path of a Chromium that starts.

    `environ` is the environment whose PATH is searched first; `places` are the full paths tried after it, by
    default the usual ones on Linux, macOS and Windows and then Playwright's own download. Raises
    BrowserNotFoundError where none of them is there and starts.
    """
    for candidate in _candidates(environ, places):
        if Path(candidate).is_file() and _starts(candidate):
            return Path(candidate)
    raise BrowserNotFoundError(NOTHING_FOUND)


def ensure() -> Path:
    """Return `find()`, after an installation if need be. Raises BrowserNotFoundError when no way worked."""
    needs = {"libatomic1": _driver_starts, "chromium": _is_there}
    missing = [package for package, works in needs.items() if not works()]
    if missing:
        _install_debian_packages(missing)
        if not _driver_starts():
            raise BrowserNotFoundError(NO_DRIVER)
        if not _is_there():
            _download_with_playwright()
    return find()


def _candidates(environ: Mapping[str, str], places: Iterable[str] | None) -> Iterator[str]:
    for name in NAMES:
        on_path = shutil.which(name, path=environ.get("PATH", ""))
        if on_path:
            yield on_path
    yield from USUAL_PLACES if places is None else places
    if places is None:
        # in a process of its own: the driver may not start, and a caller may have one running
        asked = subprocess.run([sys.executable, "-c", DOWNLOAD_PATH], capture_output=True, check=False, text=True)
        yield asked.stdout.strip()


def _is_there() -> bool:
    try:
        find()
    except BrowserNotFoundError:
        return False
    return True


def _starts(path: str) -> bool:
    """Whether the file runs: Ubuntu's chromium-browser may be a script that only tells of a snap."""
    if not sys.platform.startswith("linux"):
        return True
    return _succeeds([path, "--version"])


def _driver_starts() -> bool:
    return _succeeds([sys.executable, "-m", "playwright", "--version"])


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def _install_debian_packages(packages: list[str]) -> None:
    """Install packages as root or by sudo without a password, and nothing where that cannot be."""
    if not shutil.which("apt-get"):
        return
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if sudo and not (shutil.which("sudo") and _succeeds(["sudo", "-n", "true"])):
        return
    print(f"Installing {' and '.join(packages)} for the browser tests", flush=True)
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    subprocess.run([*apt, "update"], stdout=subprocess.DEVNULL, check=False)
    command = [*apt, "install", "-y", "--no-install-recommends", *packages]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def _download_with_playwright() -> None:
    print("Downloading Playwright's Chromium for the browser tests", flush=True)
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)


def main() -> None:
    """Print the path of the browser, or leave with the sentence that says none was found."""
    try:
        print(f"Browser tests use {ensure()}")
    except BrowserNotFoundError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
