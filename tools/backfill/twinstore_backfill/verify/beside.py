"""Comparing lists while the ranges are compared, in threads of their own.

How many rows a page may have follows from the largest row. That of the source is known as soon as its digests
are, and where all rows are small already from their count. Where a row turns out to be larger in the end,
they are asked for once more.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore_backfill.verify.digesting import readers_at_once
from twinstore_backfill.verify.tasks import ListResult, ListTask
from twinstore_backfill.verify.turns import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from twinstore_backfill.progress import Progress
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.verify.digesting import LargestRow
    from twinstore_backfill.verify.tasks import VerifyContext

__all__ = ["LARGEST_PAGE", "LISTS", "ListsBeside", "page_of", "quick_turns"]

# What progress calls them.
LISTS: Final = "lists"

# The default limit of most lists, and so what a service reads.
LARGEST_PAGE: Final = 50
# Both sides hold a page at the same time; this bounds it also where documents are near their largest size.
PAGE_BYTES: Final = 500_000
# Lists are Python for the most part: more threads would only wait for each other.
MOST_THREADS: Final = 2
TURN_SECONDS: Final = 0.0005
# What a row takes as text, of what it takes as it is stored, hardly ever more.
SPREAD: Final = 2
# Connections of a side for whatever compares rows meanwhile, and whatever cuts ranges.
BESIDES: Final = 2


def page_of(largest: int) -> int:
    """Return the rows per page: fewer where documents are large, so that memory stays bounded."""
    return max(1, min(LARGEST_PAGE, PAGE_BYTES // max(largest, 1)))


@contextmanager
def quick_turns() -> Generator[None]:
    """Let threads take turns more often, while some read digests and others lists.

    What reads digests needs the interpreter for moments, but would wait at each of them as long as a thread
    that decodes lists may keep it.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class ListsBeside(AbstractContextManager["ListsBeside"]):
    """The lists of one verification, as soon as anybody knows how many rows a page may have."""

    def __init__(self, context: VerifyContext, jobs: int, progress: Progress, stop: StopSwitch) -> None:
        """Take both sides, how much may go on at the same time, and who is told."""
        self._context, self._progress, self._stop = context, progress, stop
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lists")
        self._jobs, self._threads = jobs, min(jobs, MOST_THREADS)
        self._ended = Event()
        self._found: Future[tuple[int, ListResult] | None] | None = None

    def begin(
        self,
        largest: LargestRow,
        counted: int | None,
        tenants: Sequence[str | None],
        entities: tuple[str, ...],
    ) -> None:
        """Begin when the largest row is known, or at once where the count says that all rows are small.

        Args:
            largest: learns how large it is.
            counted: the bytes of the largest row as it is stored, ``None`` where no count tells them.
            tenants: whose lists are asked for, ``None`` for those over all tenants.
            entities: those that were asked for.
        """
        early = counted is not None and self._has_room() and page_of(SPREAD * counted) == LARGEST_PAGE
        known = (lambda: counted) if early else largest.wait
        self._found = self._pool.submit(self._compare, known, tenants, entities)

    def _has_room(self) -> bool:
        """Whether lists, digests, and what compares rows or cuts ranges have a connection each."""
        needed = self._threads + readers_at_once(self._jobs) + BESIDES
        return all(
            side.storage.concurrency >= needed for side in (self._context.source, self._context.target)
        )

    def ask(self, page: int, tenants: Sequence[str | None], entities: tuple[str, ...]) -> ListResult:
        """Compare the lists now, by pages of that size."""
        whole = ListResult([])
        self._progress.start(LISTS, len(tenants))
        with ThreadPoolExecutor(self._threads, thread_name_prefix="list") as pool:
            tasks = [ListTask(tenant, page, entities=entities) for tenant in tenants]
            for result in pool.map(self._run, tasks):
                whole.add(result)
                self._progress.advance(LISTS, 1)
        return whole

    def take(self, page: int) -> ListResult | None:
        """Wait for the lists; return them, ``None`` where they were not asked for by pages of that size."""
        found = None if self._found is None else self._found.result()
        return None if found is None or found[0] != page else found[1]

    def _compare(
        self, wait: Callable[[], int | None], tenants: Sequence[str | None], entities: tuple[str, ...]
    ) -> tuple[int, ListResult] | None:
        known = wait()
        # Lists of such rows are asked for one by one, when nothing else takes memory.
        if known is None or known >= LARGE_BYTES or self._unwanted():
            return None
        page = page_of(known)
        whole = self.ask(page, tenants, entities)
        return None if self._unwanted() else (page, whole)

    def _run(self, task: ListTask) -> ListResult:
        # Nothing is raised: after a stop or a failure nobody asks for the lists.
        return ListResult([]) if self._unwanted() else task.run(self._context)

    def _unwanted(self) -> bool:
        return self._ended.is_set() or self._stop.requested

    @override
    def __exit__(self, *_: object) -> None:
        """Begin with no other list, and wait for those that are asked for."""
        self._ended.set()
        self._pool.shutdown()
