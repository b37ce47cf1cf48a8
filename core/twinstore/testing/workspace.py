"""The workspace of a test: storages on one deployment, an exclusive tenant, and models for it."""

from __future__ import annotations

import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from threading import Barrier
from typing import TYPE_CHECKING, Final, Generic, Self, cast
from uuid import uuid4

from typing_extensions import TypeVar

from twinstore.errors import ConcurrencyError, TwinstoreError
from twinstore.storage.module import ModuleStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import FrameType

    from twinstore.access.paging import Page
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.testing.probe import Deployment, RawProbe

__all__ = ["AnyStorage", "Workspace", "all_pages", "in_thread", "outcomes", "race", "unique"]

AnyStorage = ModuleStorage[object, object]
A = TypeVar("A")
S_co = TypeVar("S_co", bound=AnyStorage, covariant=True, default=AnyStorage)
T = TypeVar("T")
TIMEOUT_SECONDS: Final = 60
SWITCH_SECONDS: Final = 1e-6
SWITCH_PROBABILITY: Final = 0.04
ROUNDS: Final = 20
MAX_CONCURRENCY: Final = 8


def unique(prefix: str) -> str:
    """Return a unique text."""
    return f"{prefix}-{uuid4().hex[:12]}"


@dataclass(frozen=True, slots=True)
class Workspace(Generic[S_co]):
    """What a contract test of a module works with; ``S`` is the class of its storage.

    Attributes:
        deployment: where the data is.
        storage: a storage on it.
        tenant: the tenant of this test.
        foreign: another one.
    """

    deployment: Deployment
    storage: S_co
    tenant: str = field(default_factory=lambda: unique("tenant"))
    foreign: str = field(default_factory=lambda: unique("foreign"))
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def probe(self) -> RawProbe:
        """The probe of the deployment."""
        return self.deployment.probe

    @property
    def elsewhere(self) -> Self:
        """The same workspace seen by the foreign tenant."""
        return replace(self, tenant=self.foreign, foreign=self.tenant)

    def on(self, storage: AnyStorage) -> Self:
        """Return the same workspace with another storage."""
        return replace(self, storage=cast("S_co", storage))

    def id(self, name: str) -> str:
        """Return an id that no other tenant uses."""
        return f"{name}@{self.tenant}"

    def next_id(self) -> str:
        """Return another id at every call."""
        return f"n{next(self.numbers)}@{self.tenant}"

    def count(self, entity: Entity) -> int:
        """Return how many rows of the tenant are really stored."""
        return self.probe.count(entity, self.tenant)

    @contextmanager
    def storages(self, number: int) -> Generator[list[S_co]]:
        """Open more storages on the same data."""
        with ExitStack() as stack:
            yield [cast("S_co", stack.enter_context(self.deployment.open())) for _ in range(number)]

    def race(self, action: Callable[[S_co, A], T], items: Sequence[A]) -> list[T | TwinstoreError]:
        """Run the action with every item at the same moment, on two more storages; see :func:`race`."""
        with self.storages(2) as storages:
            pairs = list(zip(cycle(storages), items, strict=False))
            return race(lambda pair: action(*pair), pairs, remote=is_remote(self.deployment))

    def rounds(
        self, action: Callable[[S_co, A], T], items: Callable[[int], Sequence[A]]
    ) -> list[list[T | TwinstoreError]]:
        """Race again and again on the same two storages; ``items`` makes those of a round before any begins.

        Most rounds of a fast store end before the threads meet, so one round says little.
        """
        often = switching_often(remote=is_remote(self.deployment))
        with self.storages(2) as storages, ThreadPoolExecutor(MAX_CONCURRENCY) as pool, often:
            rounds = [
                list(zip(cycle(storages), items(round_number), strict=False))
                for round_number in range(ROUNDS)
            ]
            return [run_at_once(pool, lambda pair: action(*pair), pairs) for pairs in rounds]

    def stamp(self, entity: Entity, key: Key) -> object:
        """Return the stamp of a stored row; a probe without one could not show whether it was written."""
        stamp = self.probe.stamp(entity, key)
        assert stamp is not None, f"the probe has no stamp of the stored {entity.singular} {key}"
        return stamp


def all_pages(page: Callable[[str | None], Page[T]]) -> list[T]:
    """Return the items of all pages; ``page`` gets the token of the one before."""
    items: list[T] = []
    token: str | None = None
    met: set[str] = set()
    while True:
        current = page(token)
        items += current
        token = current.next_page_token
        if token is None:
            assert current.items or current.undecodable or not met, "an empty page follows a full one"
            return items
        assert current.items, "a page with a successor is not empty"
        assert token not in met, "a token leads back to a page that was seen"
        met.add(token)


def is_remote(deployment: Deployment) -> bool:
    """Whether every call of the driver under test waits for a server; a deployment that says nothing: no."""
    return bool(getattr(deployment, "remote", False))


def race(action: Callable[[A], T], items: Sequence[A], *, remote: bool = False) -> list[T | TwinstoreError]:
    """Run the action with every item at the same moment, each in a thread.

    Args:
        action: what each of them does.
        items: what it is done with.
        remote: every call waits for a server, so that the threads take turns by themselves.

    Returns:
        The results, or the errors of the library, in the order of the items.
    """
    with ThreadPoolExecutor(len(items)) as pool, switching_often(remote=remote):
        return run_at_once(pool, action, items)


def run_at_once(
    pool: ThreadPoolExecutor, action: Callable[[A], T], items: Sequence[A]
) -> list[T | TwinstoreError]:
    """Run the action with every item at the same moment; the pool has a thread for each."""
    barrier = Barrier(len(items))

    def started(item: A) -> T | TwinstoreError:
        barrier.wait(TIMEOUT_SECONDS)
        try:
            return action(item)
        except TwinstoreError as error:
            return error

    return list(pool.map(started, items, timeout=TIMEOUT_SECONDS))


def until_it_wins(action: Callable[[], T]) -> T:
    """Repeat an action that loses its race, for a minute: on a busy machine 10 s may not do for a crowd."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return action()
        except ConcurrencyError:
            if time.monotonic() > end:
                raise


@contextmanager
def switching_often(*, remote: bool = False) -> Generator[None]:
    """Switch threads that are started inside within a call of the store, not only between calls.

    A call in memory takes less than the time slice of a thread: the calls would run one after the other. A
    call that waits for a server lets the others run at each of its messages, and needs no extra delay.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    if not remote:
        threading.setprofile(maybe_switch_thread)
    try:
        yield
    finally:
        threading.setprofile(None)
        sys.setswitchinterval(before)


def maybe_switch_thread(frame: FrameType, event: str, argument: object) -> None:
    """Let another thread go on, now and then, before a function is called."""
    del frame, argument
    if event == "call" and random.random() < SWITCH_PROBABILITY:
        time.sleep(0)


def in_thread(action: Callable[[], T]) -> Callable[[], T | TwinstoreError]:
    """Start the action in a separate thread; the returned function waits for its result or error."""
    pool = ThreadPoolExecutor(1)
    running = pool.submit(action)
    pool.shutdown(wait=False)

    def result() -> T | TwinstoreError:
        try:
            return running.result(TIMEOUT_SECONDS)
        except TwinstoreError as error:
            return error

    return result


def outcomes(results: Sequence[object]) -> dict[str, int]:
    """Count results by kind: the class name of an error, ``ok`` for everything else."""
    kinds = [type(item).__name__ if isinstance(item, TwinstoreError) else "ok" for item in results]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}
