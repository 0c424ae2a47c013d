"""What every test shares: hypothesis without a deadline, and no GPU test without a GPU."""

import pytest
from hypothesis import settings

# Timing on a shared machine says nothing about an example.
settings.register_profile("inferoscope", deadline=None)
settings.load_profile("inferoscope")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `gpu` where torch sees no CUDA device."""
    if item.get_closest_marker("gpu"):
        import torch  # takes a second, and few tests need it

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device, and torch sees none")
