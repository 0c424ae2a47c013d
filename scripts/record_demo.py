"""Record the run that the app opens with anew: the same request on this machine, the calmest of a few runs.

    python -m scripts.record_demo [--tries 3]

Tokens, logits, attention and the logit lens come out the same each time; the times are those of the machine, which
the run names.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from inference import Trace, load_model, record

DEMO = Path(__file__).resolve().parent.parent / "assets" / "demo.safetensors"
MODEL = "smollm2-135m"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=3)
    tries = parser.parse_args().tries
    before, model = Trace.load(DEMO), load_model(MODEL, device="cpu")
    runs = [record(model, before.request) for _ in range(tries + 1)][1:]  # the first one warms up
    for run in runs:
        sys.stderr.write(f"median {step_s(run):.4f} s, slowest {run.timing.forward_s[1:].max():.4f} s a decode step\n")
    calmest = min(runs, key=step_s)
    if [token.id for token in calmest.tokens] != [token.id for token in before.tokens]:
        raise SystemExit("this machine chose other tokens than the run that is there")
    calmest.save(DEMO)


def step_s(run: Trace) -> float:
    """Median seconds of a decode step."""
    return float(np.median(np.diff(run.timing.at_s)))


if __name__ == "__main__":
    main()
