"""The catalogue and the expected figures that the calculator's tests share."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
CATALOGUE = {entry["model"]: entry for entry in json.loads((ROOT / "assets/models.json").read_text("utf-8"))["models"]}
CASES = json.loads((ROOT / "tests/data/kv_cases.json").read_text("utf-8"))
