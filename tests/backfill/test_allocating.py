"""What of its free memory a process keeps while it reads digests: that of small batches, and no large one."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from twinstore_backfill import allocating
from twinstore_backfill.cli import verifying
from twinstore_mongo.bulk_digests import UNASKED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE: Final = 4096
ROUNDS: Final = 40
# Of one thread at the same time: what was received, and what is made of it.
BLOCKS: Final = 3
# Pages that are got from the system, by a thread that takes blocks and frees them again and again.
PROGRAM: Final = f"""
import resource, sys
from threading import Thread
from twinstore_backfill.allocating import give_memory_back, small_batches_kept

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

give_memory_back()
before = pages()
with small_batches_kept():
    kept = pages()
print(before, kept, pages())
"""


def pages(size: int) -> list[int]:
    """Return how many pages were got before, while, and after batches are kept."""
    command = [sys.executable, "-c", PROGRAM, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told")
def test_the_memory_of_small_batches_is_kept_for_the_next_ones() -> None:
    each = BLOCKS * UNASKED_BYTES // PAGE
    before, kept, after = pages(UNASKED_BYTES)
    assert min(before, after) > each * ROUNDS // 2
    assert kept < each * 5


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told")
def test_the_memory_of_large_documents_goes_back_all_the_same() -> None:
    each = BLOCKS * 3 * allocating.LARGE_BLOCK // PAGE
    assert min(pages(3 * allocating.LARGE_BLOCK)) > each * ROUNDS // 2


def test_a_verification_keeps_small_batches_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    report = object()

    def run(*_: object) -> object:
        told.append((0, 0))
        return report

    def tell(mapped: int, kept: int) -> None:
        told.append((mapped, kept))

    monkeypatch.setattr(allocating, "_set", tell)
    monkeypatch.setattr(verifying, "run_verify", run)
    sides, progress = nullcontext(cast("Any", (None, None))), cast("Callable[[], Any]", nullcontext)
    telling = cast("Any", type("Telling", (), {"progress": staticmethod(progress)}))
    assert verifying.verified(sides, cast("Any", None), None, cast("Any", None), telling) is report
    large = allocating.LARGE_BLOCK
    assert told == [(large, allocating.KEPT_OF_SMALL), (0, 0), (large, large)]
    assert UNASKED_BYTES < large <= allocating.KEPT_OF_SMALL
