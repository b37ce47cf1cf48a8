"""Where a worker is: a ticket says which two stores, and the process opens them by its own settings.

A ticket has no address and no secret. Only child processes on this host get the settings of their parent,
through a pipe.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from twinstore_backfill.alike import RELEASE, digest_of
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.process.memory import tuned_gc
from twinstore_backfill.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.stores import Store, StoreSpec

    Sides = tuple[Store, Store]
    Specs = tuple[StoreSpec, StoreSpec]

# How long stores stay open after the last task that needed them; the next one follows soon or never.
LINGER_SECONDS: Final = 30.0


class Ticket(NamedTuple):
    """What a worker has to know, and to have alike, before it touches anything.

    Attributes:
        drivers, identities: of source and target.
        job: the job to copy; empty for a verification.
        descriptions: the digest of how the entities are described.
    """

    module: str
    drivers: tuple[str, str]
    identities: tuple[str, str]
    descriptions: str
    job: str = ""
    release: str = RELEASE

    @classmethod
    def of(cls, source: Store, target: Store, entities: Iterable[Entity], job: str = "") -> Self:
        """Return the ticket for work between two stores."""
        return cls(
            source.module,
            (source.backend, target.backend),
            (source.bulk.identity, target.bulk.identity),
            digest_of(entities),
            job,
        )

    def check(self, source: Store, target: Store, entities: Iterable[Entity]) -> None:
        """Refuse a place that is not the one of the ticket.

        Raises:
            PreflightError: a store, the release or a description is another one.
        """
        here = Ticket.of(source, target, entities, self.job)
        differing = [what for what, mine, theirs in zip(NAMES, here, self, strict=True) if mine != theirs]
        if differing:
            raise PreflightError(
                f"This work cannot be done from here, where this differs: {', '.join(differing)}. Every "
                "process needs the same settings, release and module."
            )


# As the fields of a ticket are ordered.
NAMES: Final = (
    "the module",
    "a driver",
    "a store",
    "the description of an entity",
    "the job",
    "the release of twinstore",
)


class Site:
    """Two stores that the tasks of this process share; they are closed some time after the last of them."""

    def __init__(self, ticket: Ticket, specs: Specs | None) -> None:
        self.users = 0
        self.timer: Timer | None = None
        with ExitStack() as stack:
            stack.enter_context(tuned_gc())
            if specs is None:
                source = stack.enter_context(open_store(ticket.module, ticket.drivers[0], read_only=True))
                target = stack.enter_context(open_store(ticket.module, ticket.drivers[1]))
            else:
                source, target = (stack.enter_context(spec.open()) for spec in specs)
            self.sides = source, target
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close both stores."""
        self._stack.close()


_sites: Final[dict[tuple[object, ...], Site]] = {}
_lock: Final = Lock()


@contextmanager
def opened(ticket: Ticket, specs: Specs | None = None) -> Iterator[Sides]:
    """Open the stores of a ticket, or go on with those that this process has open.

    Args:
        ticket: what they must be.
        specs: how the parent of this process has opened them; ``None``: as the settings here say.

    Raises:
        PreflightError: they are not those of the ticket.
        ConfigurationError: the settings here do not lead to them.
        UnavailableError: a server cannot be reached.
    """
    key = ticket.module, ticket.drivers, ticket.identities
    with _lock:
        site = _sites.get(key)
        if site is None:
            site = _sites[key] = Site(ticket, specs)
        site.users += 1
        if site.timer is not None:
            site.timer.cancel()
    try:
        yield site.sides
    finally:
        with _lock:
            site.users -= 1
            if not site.users:
                site.timer = Timer(LINGER_SECONDS, _close_idle, (key, site))
                site.timer.daemon = True
                site.timer.start()


def _close_idle(key: tuple[object, ...], site: Site) -> None:
    with _lock:
        if site.users or _sites.get(key) is not site:
            return
        del _sites[key]
    site.close()
