"""What every test shares: one thread a process, hypothesis without a deadline, and no GPU test without a GPU."""

import os

import pytest
from hypothesis import settings

# Two workers, a server and a browser share the cores: threads that wait for each other would take them from the rest.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Timing on a shared machine says nothing about an example.
settings.register_profile("inferoscope", deadline=None)
settings.load_profile("inferoscope")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `gpu` where torch sees no CUDA device."""
    if item.get_closest_marker("gpu"):
        import torch  # takes a second, and few tests need it

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device, and torch sees none")
