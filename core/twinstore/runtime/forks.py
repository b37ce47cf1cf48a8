"""What becomes of open things when a process forks.

A forked child has the memory and the sockets of its parent, but none of its threads. A lock that another
thread held is never released, and two processes that share a socket read each other's answers. What holds
a lock, a thread or a connection starts fresh in the child (:func:`renew_in_child`), and what lives on one
connection (a session, a unit of work, a stream) is refused there (:class:`ProcessGuard`).
"""

from __future__ import annotations

import logging
import os
from _thread import RLock
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, Self, SupportsIndex, TypeVar, cast
from weakref import WeakSet

from typing_extensions import override

from twinstore.errors import ConfigurationError, TransactionAbortedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

__all__ = [
    "ForkSafeLock",
    "NotPicklable",
    "ProcessGuard",
    "Renewable",
    "cleanup_unless_forked",
    "guard_stream",
    "renew_in_child",
    "retain",
]


log = logging.getLogger("twinstore.forks")

T = TypeVar("T")


class Renewable(Protocol):
    """Something that outlives a fork, renewed in the child."""

    __slots__ = ("__weakref__",)

    def renew(self) -> None:
        """Begin again in a forked child: with free locks and without a connection.

        It must not take a lock, wait, raise, or say a word to a server: the connections are the parent's.
        """
        ...


# Weak, so that being renewable keeps no storage alive after its host has dropped it.
_renewed: Final[WeakSet[Renewable]] = WeakSet()
_retained: Final[list[object]] = []


def renew_in_child(thing: Renewable) -> None:
    """Have ``thing`` renewed in every child that this process forks, as long as the thing lives."""
    _renewed.add(thing)


def retain(thing: object) -> None:
    """Keep what a child inherited as long as the child lives: its finaliser would act on the parent's."""
    _retained.append(thing)


def _renew_all() -> None:
    # A copy: what renews itself may drop other members of the set, or make new ones.
    for thing in list(_renewed):
        try:
            thing.renew()
        except Exception:
            # One that fails must not keep the others from letting go of the parent's connections.
            log.exception("%s could not be renewed in a forked child", type(thing).__name__)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class ProcessGuard:
    """Remembers the process in which something was opened."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a forked child of that process."""
        return os.getpid() != self._pid

    def check(self, what: str) -> None:
        """Do nothing in the process that opened it.

        Raises:
            TransactionAbortedError: this is a forked child; ``what`` begins the message.
        """
        if os.getpid() != self._pid:
            raise TransactionAbortedError(
                f"{what} was opened before this process was forked and belongs to the parent process, where "
                "it keeps working; open a new one in this process."
            )


class Reentrant(Protocol):
    """What the interpreter's re-entrant lock has, though its stubs do not say so."""

    def _is_owned(self) -> bool: ...

    def _at_fork_reinit(self) -> None: ...


class NotPicklable:
    """Base of what has connections, of which a pickle would have none."""

    @override
    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse, where a pool of processes would pass it as an argument.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f"A {type(self).__name__} cannot be passed to another process; pass the settings, and open a "
            "storage there, for instance in the initializer of a pool of processes."
        )

    def __copy__(self) -> Self:
        """Return another object with the same attributes, in this process."""
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        return found


class ForkSafeLock(RLock):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]  # final in the stubs only
    """A lock that is free in a forked child, whichever other thread held it in the parent at the fork.

    Re-entrant. Its ``with`` statement is that of the interpreter: with methods in Python, the handler of a
    signal could raise between taking the lock and the block that gives it back.
    """

    def __init__(self) -> None:
        super().__init__()
        renew_in_child(self)

    @property
    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return cast("Reentrant", self)._is_owned()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # its own

    def renew(self) -> None:
        """Be free in a forked child, unless the thread that forked is in the block."""
        if not self.is_mine:
            cast("Reentrant", self)._at_fork_reinit()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # its own


@contextmanager
def cleanup_unless_forked(end: Callable[[], object]) -> Generator[ProcessGuard]:
    """Call ``end`` when the block ends, but not in a forked child: what it would end is the parent's."""
    process = ProcessGuard()
    try:
        yield process
    finally:
        if not process.forked:
            end()


def guard_stream(stream: Iterator[T], what: str) -> Iterator[T]:
    """Yield what a stream yields; in a forked child refuse to go on, because that would take from the parent.

    Raises:
        TransactionAbortedError: the process was forked since the stream was opened.
    """
    process = ProcessGuard()
    for item in stream:
        yield item
        del item  # or a batch would stay in memory while the next one is read
        process.check(what)
