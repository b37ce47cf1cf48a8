"""What other workers of a job do, read from the ledger, for the progress of its coordinator."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from logging import getLogger
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from twinstore_backfill.copy.report import outcomes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from twinstore.ledger import Ledger, RangeProgress
    from twinstore_backfill.progress.record import Progress

log = getLogger(__name__)
LOOK_SECONDS: Final = 1.0
# A range is committed some time after its worker has noted the time.
OVERLAP: Final = timedelta(seconds=3)
# Of the time that a look takes; there may be very many small ranges.
REST: Final = 20


class Others:
    """Reports the ranges that other workers finish."""

    def __init__(
        self, ledger: Ledger, job_id: str, worker: str, progress: Progress, now: Callable[[], datetime]
    ) -> None:
        """Take the job, the worker whose ranges are heard of otherwise, and the clock of the server."""
        self._ledger, self._job_id, self._worker, self._progress = ledger, job_id, worker, progress
        self._now, self._latest = now, now()
        # By entity that has begun, from when on it counts; what was live then is known.
        self._since: dict[str, datetime] = {}
        # By number and fence those that may be read again.
        self._heard: dict[tuple[int, int], datetime] = {}
        self._looking = Lock()

    @contextmanager
    def followed(self, notify: Callable[[], None]) -> Generator[None]:
        """Look every second until the block ends, and say when something was finished."""
        over = Event()

        def follow() -> None:
            took = 0.0
            while not over.wait(max(LOOK_SECONDS, REST * took)):
                began = monotonic()
                try:
                    if self.look():
                        notify()
                except Exception as error:  # noqa: BLE001  # progress decides nothing
                    log.info("what other workers do could not be read: %s", type(error).__name__)
                took = monotonic() - began

        thread = Thread(target=follow, name="others", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def begin(self, entity: str) -> None:
        """Count what is finished of an entity from now on."""
        self._since[entity] = self._now()

    def look(self) -> bool:
        """Report what was finished since the last look; return whether anything was."""
        with self._looking:
            found = list(self._ledger.finished_after(self._job_id, self._latest - OVERLAP))
            fresh = [item for item in found if self._is_news(item)]
            for item in fresh:
                self._report(item)
            self._latest = max((item.finished_at or self._latest for item in found), default=self._latest)
            first = self._latest - OVERLAP
            self._heard = {key: moment for key, moment in self._heard.items() if moment >= first}
            return bool(fresh)

    def _is_news(self, item: RangeProgress) -> bool:
        since = self._since.get(item.entity)
        if item.finished_at is None or since is None or item.finished_at <= since:
            return False
        return item.worker != self._worker and (item.number, item.fence) not in self._heard

    def _report(self, item: RangeProgress) -> None:
        if item.tally is None or item.finished_at is None:
            return
        self._heard[item.number, item.fence] = item.finished_at
        outcomes = outcomes_of(item.tally)
        self._progress.advance(item.entity, outcomes.get("read", 0))
        self._progress.count(item.entity, outcomes)
