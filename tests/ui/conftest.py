"""What the tests of the pages share: no model is loaded behind their back."""

import pytest

from ui import session


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page starts to load the model in the background; an interpreter that ends meanwhile is aborted by torch."""
    monkeypatch.setattr(session, "WARM_UP_AFTER_S", 3600.0)
