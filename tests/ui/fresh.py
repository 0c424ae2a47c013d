"""Code run in a new interpreter, where nothing has been imported yet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPENED = "import sys; import ui.session; from streamlit.testing.v1 import AppTest\nui.session.WARM_UP_AFTER_S = 600\n"
NO_TORCH = "assert not {'torch', 'transformers'} & set(sys.modules)\n"


def runs_without_torch(code: str) -> None:
    """Run code that has `AppTest`; in the end neither torch nor transformers may have been imported.

    The app's own warm-up, which imports torch once a page stands, is put off.
    """
    whole = OPENED + code.rstrip() + "\n" + NO_TORCH
    done = subprocess.run([sys.executable, "-c", whole], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def every_part_opens_without_torch(page: str, key: str, parts: Sequence[str], title: str) -> None:
    """Open each part of a page, by its state's key, in an app of its own."""
    runs_without_torch(
        f"for part in {list(parts)!r}:\n"
        "    app = AppTest.from_file('app.py', default_timeout=60)\n"
        f"    app.session_state[{key!r}] = part\n"
        f"    app.run().switch_page({page!r}).run()\n"
        "    assert not app.exception, app.exception\n"
        f"    assert app.title[0].value == {title!r}\n"
    )
