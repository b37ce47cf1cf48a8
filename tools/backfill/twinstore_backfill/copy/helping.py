"""What another process does that helps with a copy: it copies ranges and tells its parent through a pipe."""

from __future__ import annotations

import pickle
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from logging import getLogger
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore_backfill.allocating import batches_kept
from twinstore_backfill.children import begin_child
from twinstore_backfill.copy.control import Control
from twinstore_backfill.copy.holder import worker_id
from twinstore_backfill.copy.limiter import RateLimiter
from twinstore_backfill.copy.limits import Limits
from twinstore_backfill.copy.patience import Patience
from twinstore_backfill.copy.queue import RangeQueue
from twinstore_backfill.copy.reading import SourceRows
from twinstore_backfill.copy.retention import expiry_test
from twinstore_backfill.copy.worker import CopyContext, copy_ranges, tuned_collector
from twinstore_backfill.progress import Progress
from twinstore_backfill.stopping import StopSwitch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from datetime import timedelta
    from multiprocessing.connection import Connection

    from twinstore.ledger import CopyJob, Ledger, RangeTally
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.messages import Messages
    from twinstore_backfill.stores import Store, StoreSpec

__all__ = [
    "Advanced",
    "Assignment",
    "Begun",
    "Changed",
    "Echo",
    "Ended",
    "Finished",
    "Stop",
    "Tallied",
    "help_to_copy",
]

log = getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a helper is told when it starts; ``share`` is its part of the rate."""

    source: StoreSpec
    target: StoreSpec
    job_id: str
    entities: tuple[str, ...]
    options: CopyOptions
    threads: int
    share: float
    messages: Messages


@dataclass(frozen=True, slots=True)
class Begun:
    """The first word of a helper: from here on it obeys."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """Rows of an entity were copied, or taken back."""

    entity: str
    count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A range is live."""

    entity: str
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tallied:
    """What a range that is live amounts to, for the limits."""

    tally: RangeTally
    waiting: int


@dataclass(frozen=True, slots=True)
class Echo:
    """Comes back when everything before it has been told."""

    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop was requested."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A range was finished or opened elsewhere."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The last word of a helper."""

    failures: Mapping[int, str] = field(default_factory=dict[int, str])
    rows: int = 0
    packed: int = 0
    error: Exception | None = None


class Voice:
    """What a helper tells its parent, from several threads."""

    def __init__(self, connection: Connection) -> None:
        """Take the pipe."""
        self._connection, self._lock = connection, Lock()

    def tell(self, message: object) -> None:
        """Tell it; a parent that is gone ends this process by itself."""
        with self._lock, suppress(OSError):
            self._connection.send(message)

    def obey(self, stop: StopSwitch, changed: Callable[[], None]) -> None:
        """Do what the parent says, until it says nothing any more."""
        with suppress(EOFError, OSError):
            while True:
                message: object = self._connection.recv()
                if isinstance(message, Stop):
                    stop.request()
                elif isinstance(message, Changed):
                    changed()
                else:
                    self.tell(message)


class ToldProgress(Progress):
    """Progress that the parent shows; it begins and ends the parts itself."""

    def __init__(self, voice: Voice) -> None:
        """Take how the parent is told."""
        self._voice = voice

    @override
    def start(self, name: str, total: int, done: int = 0) -> None:
        """Leave it to the parent."""

    @override
    def advance(self, name: str, count: int) -> None:
        """Tell the parent."""
        self._voice.tell(Advanced(name, count))

    @override
    def finish(self, name: str) -> None:
        """Leave it to the parent."""

    @override
    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        """Tell the parent."""
        self._voice.tell(Finished(name, dict(outcomes)))


class ToldLimits(Limits):
    """Limits that the parent keeps, which counts the ranges of all."""

    def __init__(self, options: CopyOptions, stop: StopSwitch, voice: Voice) -> None:
        """Take how the parent is told."""
        super().__init__(options, stop)
        self._voice = voice

    @override
    def add(self, tally: RangeTally, waiting: int = 0) -> None:
        """Tell the parent."""
        self._voice.tell(Tallied(tally, waiting))


def help_to_copy(connection: Connection, assignment: Assignment) -> None:
    """Copy ranges of a job until none is left or the parent says stop: all that a helper does."""
    begin_child(assignment.messages)
    voice = Voice(connection)
    try:
        with (
            assignment.source.open() as source,
            assignment.target.open() as target,
            tuned_collector(),
            batches_kept(),
        ):
            voice.tell(helped(source, target, assignment, voice))
    except Exception as error:  # the parent raises it
        log.debug("a helper failed", exc_info=error)
        voice.tell(Ended(error=sendable(error)))


def helped(source: Store, target: Store, assignment: Assignment, voice: Voice) -> Ended:
    """Copy ranges; return what is to be said at the end."""
    options, ledger, stop, worker = assignment.options, target.ledger, StopSwitch(), worker_id()
    job = ledger.find(assignment.job_id)
    if job is None:
        raise LookupError(assignment.job_id)
    limiter = RateLimiter(None if job.max_rate is None else float(job.max_rate), stop)
    limiter.set_share(assignment.share)
    patience = Patience(stop)
    entities = [entity for entity in source.bulk.entities() if entity.name in assignment.entities]
    queue = RangeQueue(
        ledger,
        job.id,
        worker,
        entities,
        lease=options.lease,
        stop=stop,
        patience=patience,
        control=Control(limiter, job),
        begin=lambda _: None,
        settle=lambda _: False,
        end=lambda _: None,
    )
    context = CopyContext(
        source=SourceRows(source.bulk, options),
        target=target.bulk,
        ledger=ledger,
        queue=queue,
        limits=ToldLimits(options, stop, voice),
        limiter=limiter,
        patience=patience,
        stop=stop,
        progress=ToldProgress(voice),
        entities={entity.name: entity for entity in entities},
        expired={entity.name: expiry_test(entity, target.options, job.as_of) for entity in entities},
        on_conflict=options.on_conflict,
    )
    Thread(target=voice.obey, args=(stop, queue.returned), daemon=True).start()
    voice.tell(Begun())
    with alive(ledger, job, worker, options.lease):
        copy_ranges(context, assignment.threads)
    return Ended(context.failures, context.share.rows, context.share.packed)


@contextmanager
def alive(ledger: Ledger, job: CopyJob, worker: str, duration: timedelta) -> Generator[None]:
    """Say every third of the lease that a worker lives; its ranges are free at the end."""
    ended = Event()

    def beat() -> None:
        while not ended.wait(duration.total_seconds() / 3):
            try:
                ledger.beat(job.id, worker, duration)
            except Exception as error:  # noqa: BLE001  # a thread that ends in silence would lose the ranges
                log.warning("no sign of life could be given, trying again: %s", type(error).__name__)

    thread = Thread(target=beat, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(TwinstoreError):
            ledger.sign_off(job.id, worker)


def sendable(error: Exception) -> Exception:
    """Return an error as another process can read it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # what was written here
    except Exception:  # noqa: BLE001  # whatever a class of errors does
        return TwinstoreError(f"A process of the copy failed: unexpected {type(error).__name__}.")
    return error
