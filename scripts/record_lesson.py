"""Record the runs that the lesson walks through: one of each teaching model, greedy, with everything kept.

    python -m scripts.record_lesson

Tokens, logits, attention and router choices come out the same each time; the times are those of the machine.
"""

from __future__ import annotations

from pathlib import Path

from inference import GenerationRequest, RecordOptions, SamplingParams, Trace, load_model, record
from inference.catalogue import entries

ASSETS = Path(__file__).resolve().parent.parent / "assets"
LIMITS = {"kitten": 16, "experts": 8}  # most new tokens of each model's run


def recorded(name: str) -> Trace:
    """The run of a teaching model on its own example; a first one warms up and is thrown away."""
    model = load_model(name, device="cpu")
    request = GenerationRequest(
        prompt=entries()[name].example,
        max_new_tokens=LIMITS[name],
        sampling=SamplingParams(greedy=True),
        record=RecordOptions(hidden=False),
    )
    record(model, request)
    return record(model, request)


def main() -> None:
    for name in LIMITS:
        recorded(name).save(ASSETS / f"lesson-{name}.safetensors")


if __name__ == "__main__":
    main()
