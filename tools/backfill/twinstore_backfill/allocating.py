"""How the C library keeps the memory of this process, where it can be told.

Documents come and go, and each takes many times its bytes for a moment. By default glibc learns from the
largest of them to keep such blocks for the next one, in every process and for every thread.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

__all__ = ["give_memory_back"]

# From malloc.h.
TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
# Blocks from here on go back to the system as soon as they are free. Those of batches are smaller: they come
# and go all the time, and to get them from the system takes as long as all else that is done with them.
LARGE_BLOCK: Final = 9_000_000
# What a thread keeps of the free memory of its batches; there are five blocks for each.
KEPT: Final = 32_000_000


def give_memory_back() -> None:
    """Have large blocks go back to the system when they are freed; nothing happens with other C libraries."""
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        # Either of them also ends the learning.
        library.mallopt(MMAP_THRESHOLD, LARGE_BLOCK)
        library.mallopt(TRIM_THRESHOLD, KEPT)
