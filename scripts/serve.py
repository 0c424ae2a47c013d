"""Start the app on a warm server: what the first page needs is imported before its first reader comes.

    python scripts/serve.py [options of `streamlit run`]

`streamlit run app.py` starts the same app, and its first reader waits for the imports.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# NumPy's products run on one thread: more of them wait for a core that the browser, another reader or a run is using,
# which takes longer than the product. PyTorch has threads of its own.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
os.environ |= {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}

from streamlit.runtime.pages_manager import PagesManager  # noqa: E402
from streamlit.web import cli  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from charts.base import Palette  # noqa: E402
from charts.distribution import distribution  # noqa: E402
from charts.kv_growth import kv_growth  # noqa: E402
from inference.trace import Trace  # noqa: E402


def warm() -> None:
    """Draw two charts of the demo run: Plotly and pandas read most of themselves at their first use."""
    run = Trace.load(ROOT / "assets" / "demo.safetensors")
    for draw in (distribution, kv_growth):
        draw(run, 0, palette=Palette.light(), t=str).figure.to_json()


def main() -> None:
    """Warm up, then hand over to Streamlit's own command line."""
    os.chdir(ROOT)
    warm()
    # Streamlit takes a folder named pages for an app of its own kind until app.py has run once: the first reader of a
    # server who opened any page but the first would be told that it was not found
    PagesManager.uses_pages_directory = False
    cli.main(["run", "app.py", *sys.argv[1:]], prog_name="streamlit")


if __name__ == "__main__":
    main()
