"""How the C library keeps the memory of this process, if it can be configured.

Documents come and go, and each needs many times its bytes for a moment. By default glibc learns from the
largest of them to keep such blocks for the next one, in every process and for every thread.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


# From malloc.h.
TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
# Blocks from here on go back to the system as soon as they are free. Smaller ones come and go with every
# batch, and to get them from the system each time would take longer.
LARGE_BLOCK: Final = 1_000_000
# The batches of a copy are larger than that, and to get them from the system takes as long as all else that
# is done with them. Whatever makes objects of both sides of a large document has no room for what is kept.
LARGEST_BATCH: Final = 9_000_000
# What a thread keeps of the free memory of its batches; there are five blocks for each.
CACHED_BYTES: Final = 32_000_000
# The same for batches that are smaller than a large block. So much may be kept by each of some ten threads.
SMALL_CACHED_BYTES: Final = 4_000_000


def limit_cached_memory() -> None:
    """Have large blocks go back to the system when they are freed; nothing happens with other C libraries."""
    _set(LARGE_BLOCK, LARGE_BLOCK)


def release_cached_memory() -> None:
    """Have what is kept of free memory go back to the system, and from now on large blocks as well."""
    limit_cached_memory()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def cache_batch_memory() -> Generator[None]:
    """Keep the memory of batches for the next ones until the block ends, as a copy needs it."""
    with _cache_memory(LARGEST_BATCH, CACHED_BYTES):
        yield


@contextmanager
def cache_small_batch_memory() -> Generator[None]:
    """Keep the memory of small batches until the block ends, as digests need it; large documents go back."""
    with _cache_memory(LARGE_BLOCK, SMALL_CACHED_BYTES):
        yield


@contextmanager
def _cache_memory(mapped: int, cached: int) -> Generator[None]:
    _set(mapped, cached)
    try:
        yield
    finally:
        release_cached_memory()


def _set(mapped: int, cached: int) -> None:
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        # Either of them also ends the learning.
        library.mallopt(MMAP_THRESHOLD, mapped)
        library.mallopt(TRIM_THRESHOLD, cached)


# Instead of a few hundred: each collection visits all young objects, and most live as long as their batch.
YOUNG_OBJECTS: Final = 50_000


@contextmanager
def tuned_gc() -> Iterator[None]:
    """Collect garbage rarely: a copy makes many short-lived objects and hardly a cycle."""
    before = gc.get_threshold()
    # Present objects stay to the end; collections need not visit them again. Garbage among them waits too:
    # searching for it costs more than it frees.
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
