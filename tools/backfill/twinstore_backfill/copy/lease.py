"""Holding a job: its lease, taken over from a dead process at once, and a sign of life while we work."""

from __future__ import annotations

from logging import getLogger
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Self

from twinstore.errors import LeaseLostError, TwinstoreError
from twinstore.ledger import RangeState
from twinstore_backfill.copy.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from types import TracebackType

    from twinstore.ledger import Lease, Ledger
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["LeaseKeeper", "acquire", "dismiss_dead_workers"]

log = getLogger(__name__)


def acquire(ledger: Ledger, job_id: str, worker: str, duration: timedelta) -> Lease:
    """Take the lease of a job, also from a process of this host that is gone.

    Raises:
        LeaseLostError: somebody else holds it; names holder and expiry.
    """
    try:
        return ledger.acquire(job_id, worker, duration)
    except LeaseLostError as error:
        previous = Holder.parse(error.key or "")
        # Only a process that certainly ran here and is gone; of any other host only time can tell.
        if previous is None or not previous.dead:
            raise
        log.info("process %d, which held the lease, is gone; taking over", previous.pid)
        return ledger.acquire(job_id, worker, duration, dead=error.key)


def dismiss_dead_workers(ledger: Ledger, job_id: str) -> None:
    """Free the ranges of workers whose process ran here and is gone, before their time is up."""
    held = {item.worker for item in ledger.ranges(job_id, state=RangeState.COPYING)}
    for worker in held - {None}:
        holder = Holder.parse(worker or "")
        if worker is not None and holder is not None and holder.dead:
            log.info("process %d, which copied a range, is gone; its ranges are free", holder.pid)
            ledger.leave(job_id, worker)


class LeaseKeeper:
    """Every third of the lease renews it and says for all threads of this process that their worker lives.

    Losing the lease to somebody stops the run. Who is only late goes on: a server that stood still for longer
    than a lease takes nothing from anybody, and the commit of a range is decided by the fence of the range.
    """

    def __init__(
        self, ledger: Ledger, lease: Lease, worker: str, duration: timedelta, stop: StopSwitch
    ) -> None:
        """Take the lease and the worker; ``stop`` is flipped when the lease is lost."""
        self.lease = lease
        self.lost: LeaseLostError | None = None
        self._ledger = ledger
        self._worker = worker
        self._duration = duration
        self._stop = stop
        self._renewing = Lock()
        self._done = Event()
        self._thread = Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Start renewing."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop renewing, leave and release; a server that is away only delays others by the lease."""
        self._done.set()
        self._thread.join()
        # The worker first: its ranges are free then when the next coordinator gets the lease.
        _try("left", lambda: self._ledger.sign_off(self.lease.job_id, self._worker))
        _try("released", lambda: self._ledger.release(self.lease))

    def refresh(self) -> Lease:
        """Renew the lease now and return it.

        Raises:
            LeaseLostError: somebody else has taken it.
        """
        with self._renewing:
            try:
                self.lease = self._ledger.renew(self.lease, self._duration)
            except LeaseLostError:
                # It may only have run out; then it is ours until somebody asks for it.
                self.lease = self._ledger.regain(self.lease, self._duration)
            return self.lease

    def _keep(self) -> None:
        # A third, so that one renewal may fail and the next still comes in time.
        while not self._done.wait(self._duration.total_seconds() / 3):
            try:
                self.refresh()
                self._ledger.beat(self.lease.job_id, self._worker, self._duration)
            except LeaseLostError as error:
                self.lost = error
                # Another coordinator may reopen ranges and complete the job now; this one must not go on.
                self._stop.request()
                return
            except TwinstoreError as error:
                log.warning("the lease could not be renewed, trying again: %s", error)
            except Exception as error:  # noqa: BLE001  # a thread that ends in silence would lose the lease
                log.warning("the lease could not be renewed, trying again: %s", type(error).__name__)


def _try(what: str, action: Callable[[], None]) -> None:
    try:
        action()
    except TwinstoreError as problem:
        log.warning("the job could not be %s; its lease expires by itself: %s", what, problem)
