"""The hook of a host, and how the library calls it without depending on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from twinstore.errors import ConfigurationError
from twinstore.forks import ForkSafeLock
from twinstore.observing.events import call_of

if TYPE_CHECKING:
    from twinstore.observing.events import Call, LockWait, Operation, SystemScopeOpening

__all__ = ["SYSTEMS", "Ending", "Observer", "Observers"]

log = logging.getLogger("twinstore.observing")
E = TypeVar("E")

# What a span calls the database of a driver, by the name of the driver in lower case.
SYSTEMS: Final[dict[str, str]] = {}
# Once, because it may fail in every call.
FAILED: Final = "The observer %s failed; the call goes on, and further failures of it are not logged."

METHODS: Final = ("started", "lock_waited", "system_scope_opened")

Ending = Callable[["Call"], object]
"""Told when a call has ended."""


class Observer(Protocol):
    """Is told what a storage does. Derive from it, and write the methods of interest.

    A call has a beginning and an end, so that an observer can put a span around it. They are two plain
    functions and no context manager: that is the cheapest form, the end is a record and no exception, and an
    observer cannot take an exception away from the caller.

    The methods run in the thread and the context of the call, so context variables are those of the caller,
    and several run at the same time. They must be short and must not call the storage that they observe. What
    they raise is logged once for each observer and never reaches the caller.
    """

    def started(self, operation: Operation) -> Ending | None:
        """A call begins; return what is told its end, ``None`` where nobody is interested in that."""
        del operation
        return None

    def lock_waited(self, wait: LockWait) -> None:
        """An attempt to acquire a lock has ended, in which the caller may have waited for another holder."""
        del wait

    def system_scope_opened(self, opening: SystemScopeOpening) -> None:
        """System scope was opened, for one call or for a session or unit of work."""
        del opening


class Observers:
    """All observers of a storage. Thread-safe."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        """Take them; at a beginning they are told in this order, at an end in the opposite one.

        Raises:
            ConfigurationError: one of them is no observer.
        """
        self._observers = checked(observers)
        self._failed: set[int] = set()
        self._lock = ForkSafeLock()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._observers)

    def started(self, operation: Operation) -> list[tuple[Observer, Ending]]:
        """Tell that a call begins; return who wants to know its end."""
        found: list[tuple[Observer, Ending]] = []
        for observer in self._observers:
            try:
                ending = observer.started(operation)
            except Exception:
                if self._fails_first(observer):
                    log.exception(FAILED, type(observer).__name__)
            except BaseException as error:
                # An interrupt, which ends the call before it is made: what has begun for it must end.
                self.ended(found, call_of(operation, 0.0, error))
                raise
            else:
                if ending is not None:
                    found.append((observer, ending))
        return found

    def ended(self, endings: list[tuple[Observer, Ending]], call: Call) -> None:
        """Tell that a call has ended."""
        # The last one first: what it put around the call lies inside what the others did.
        while endings:
            observer, ending = endings.pop()
            try:
                self._tell(observer, ending, call)
            except BaseException:
                # An interrupt; the others have things to end too.
                self.ended(endings, call)
                raise

    def lock_waited(self, wait: LockWait) -> None:
        """Tell how long a caller waited for a lock."""
        for observer in self._observers:
            self._tell(observer, observer.lock_waited, wait)

    def system_scope_opened(self, opening: SystemScopeOpening) -> None:
        """Tell that system scope was opened."""
        for observer in self._observers:
            self._tell(observer, observer.system_scope_opened, opening)

    def _tell(self, observer: Observer, hear: Callable[[E], object], event: E) -> None:
        try:
            hear(event)
        except Exception:
            if self._fails_first(observer):
                log.exception(FAILED, type(observer).__name__)

    def _fails_first(self, observer: Observer) -> bool:
        with self._lock:
            first = id(observer) not in self._failed
            self._failed.add(id(observer))
        return first


def checked(observers: object) -> tuple[Observer, ...]:
    """Return what a host gave, which no type checker may have seen.

    Raises:
        ConfigurationError: it is no list, or one of it is no observer; it would fail in every call.
    """
    if not isinstance(observers, Iterable):
        name = type(observers).__name__
        raise ConfigurationError(f"Argument observers should be a list of observers, not one {name}.")
    # Safe, because each is looked at before it is used.
    found = tuple(cast("Iterable[object]", observers))
    for observer in found:
        if isinstance(observer, type):
            name = observer.__name__
            raise ConfigurationError(f"The observer {name} is a class; give an object, such as {name}().")
        for method in METHODS:
            if not callable(getattr(observer, method, None)):
                name = type(observer).__name__
                raise ConfigurationError(
                    f"The observer {name} has no method {method}; derive it from Observer."
                )
    return cast("tuple[Observer, ...]", found)
