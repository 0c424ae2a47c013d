"""Servers for the browser tests: the app itself, or a script with a few components of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0


@contextmanager
def app(scratch: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of the app on a server of its own, as `make run` starts it."""
    with _served(["scripts/serve.py"], scratch, environment or {}) as address:
        yield address


@contextmanager
def page_of(script: Path, scratch: Path) -> Iterator[str]:
    """The address of a page that a script makes, with the app's fonts; it may import what tests may."""
    copy = scratch / script.name
    copy.write_text(script.read_text())
    (scratch / "static").symlink_to(ROOT / "static")
    with _served(["-m", "streamlit", "run", str(copy)], scratch, {"PYTHONPATH": str(ROOT)}) as address:
        yield address


@contextmanager
def _served(command: list[str], scratch: Path, environment: Mapping[str, str]) -> Iterator[str]:
    port, log = str(_free_port()), scratch / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, *command, "--server.port", port],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_healthy(server, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(timeout=15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_healthy(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.fail(f"the server ended with status {server.returncode}:\n{log.read_text()}")
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(0.2)
    pytest.fail(f"the server did not answer within {START_S:.0f} s:\n{log.read_text()}")
