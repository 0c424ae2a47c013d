"""One answer to a pass that does not fit into memory."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from inference.errors import N_, MemoryLimitError

if TYPE_CHECKING:
    from inference.models import LoadedModel

T = TypeVar("T")

TO_FEED = N_("There was not enough memory on {device} to feed {n} positions.")
FEED_LESS = N_("Use a shorter prompt, prefill in chunks, or a smaller model.")


def within_memory(model: LoadedModel, n: int, run: Callable[[], T], what: str = TO_FEED, remedy: str = FEED_LESS) -> T:
    """What passes over `n` positions give.

    Args:
        what, remedy: the templates of the error.

    Raises:
        MemoryLimitError: they did not fit; the tensors that their frames held are free by then.
    """
    try:
        return run()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)
    raise MemoryLimitError(what, remedy, device=model.facts.device, n=n)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU (which torch reports as a RuntimeError)."""
    import torch

    text = str(error)
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        sign in text for sign in ("DefaultCPUAllocator", "out of memory", "can't allocate memory")
    )
