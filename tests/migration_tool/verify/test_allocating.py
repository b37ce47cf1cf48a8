"""What of its free memory a process keeps while it reads digests: that of small batches, and no large one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Final, cast

import pytest

from twinstore_backfill.process import memory
from twinstore_backfill.verify.digest_ranges import DigestReader
from twinstore_backfill.verify.memory_lock import LARGE_BYTES
from twinstore_mongo.bulk.digests import EXHAUST_BYTES

PAGE: Final = 4096
# PR_SET_THP_DISABLE of linux/prctl.h.
NO_HUGE_PAGES: Final = 41
# The environment variables with which the caller of a process configures glibc.
TOLD: Final = ("MALLOC_", "GLIBC_TUNABLES")
ROUNDS: Final = 40
# Of one thread at the same time: what was received, and what is made of it.
BLOCKS: Final = 3
# Pages that are got from the system, by a thread that takes blocks and frees them again and again.
PROGRAM: Final = f"""
import ctypes, resource, sys
from threading import Thread
from twinstore_backfill.process.memory import limit_cached_memory, cache_small_batch_memory

# Huge pages would come with one fault for all of their pages.
ctypes.CDLL(None).prctl({NO_HUGE_PAGES}, 1, 0, 0, 0)

def work():
    for _ in range({ROUNDS}):
        blocks = [bytearray(int(sys.argv[1])) for _ in range({BLOCKS})]
        del blocks

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = Thread(target=work)
    thread.start()
    thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

limit_cached_memory()
before = pages()
with cache_small_batch_memory():
    kept = pages()
print(before, kept, pages())
"""


def pages(size: int) -> list[int]:
    """Return how many pages were got before, while, and after batches are kept."""
    command = [sys.executable, "-c", PROGRAM, str(size)]
    untold = {name: value for name, value in os.environ.items() if not name.startswith(TOLD)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=untold)
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has this limit")
def test_the_memory_of_small_batches_is_kept_for_the_next_ones() -> None:
    before, kept, after = pages(EXHAUST_BYTES)
    assert kept * 4 < min(before, after)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has this limit")
def test_the_memory_of_large_documents_goes_back_all_the_same() -> None:
    before, kept, after = pages(3 * memory.LARGE_BLOCK)
    assert kept * 5 > max(before, after) * 4
    assert kept > BLOCKS * 3 * memory.LARGE_BLOCK // PAGE * ROUNDS // 2


def reading(monkeypatch: pytest.MonkeyPatch, *largest: int | None) -> list[tuple[int, int]]:
    """Return the settings that the C library gets while digests of such rows are read."""
    told: list[tuple[int, int]] = []

    def tell(mapped: int, kept: int) -> None:
        told.append((mapped, kept))

    monkeypatch.setattr(memory, "_set", tell)
    with DigestReader(cast("Any", None), 1, cast("Any", None), cast("Any", None)) as reader:
        reader.largest.expect(len(largest))
        for size in largest:
            reader.largest.add(size)
            told.append((0, 0))
    return told


LARGE: Final = (memory.LARGE_BLOCK, memory.LARGE_BLOCK)
SMALL: Final = (memory.LARGE_BLOCK, memory.SMALL_CACHED_BYTES)


def test_what_reads_digests_keeps_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    told = reading(monkeypatch, 700, LARGE_BYTES - 1)
    assert told[:4] == [SMALL, (0, 0), (0, 0), LARGE]
    assert EXHAUST_BYTES < memory.LARGE_BLOCK < memory.SMALL_CACHED_BYTES


@pytest.mark.parametrize("largest", [LARGE_BYTES, None])
def test_it_keeps_nothing_once_a_row_may_be_large(
    monkeypatch: pytest.MonkeyPatch, largest: int | None
) -> None:
    assert reading(monkeypatch, 700, largest)[:4] == [SMALL, (0, 0), LARGE, (0, 0)]
