"""How far a unit or session is, and what it refuses after its end."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from twinstore.errors import ConfigurationError, TransactionAbortedError, ValidationError
from twinstore.runtime.forks import ProcessGuard

__all__ = ["SESSION_OR_UNIT", "Lifetime", "ReadyWithin", "UnitState", "write_refused", "wrong_handle"]

SESSION_OR_UNIT: Final = "This session or unit of work"


class UnitState:
    """Whether a session or unit of work can still be used; shared by the repositories bound to it.

    Attributes:
        closed: it has ended; set by the code that ends it.
        aborted: a store error has made it unusable.
    """

    def __init__(self, *, unbound: bool = False) -> None:
        """Start usable.

        Args:
            unbound: the repositories are bound to no connection, so they outlive a fork.
        """
        self.aborted = False
        self.closed = False
        # None for what outlives a fork: a process would refuse its repositories in every child.
        self._process = None if unbound else ProcessGuard()

    def check(self) -> None:
        """Raise ``TransactionAbortedError`` after a store error, after the end, and in a forked child."""
        if self._process is not None:
            self._process.check(SESSION_OR_UNIT)
        if self.closed:
            raise TransactionAbortedError("This session or unit of work has ended; open a new one.")
        if self.aborted:
            raise TransactionAbortedError(
                "This unit of work failed at an earlier call and cannot be used any more; "
                "repeat it as a whole."
            )

    def check_commit(self) -> None:
        """Raise ``TransactionAbortedError`` after a caught error of the store, and in a forked child."""
        if self._process is not None:
            self._process.check(SESSION_OR_UNIT)
        if self.aborted:
            raise TransactionAbortedError(
                "An error of the store was caught inside this unit of work, which was therefore rolled back; "
                "let such errors leave the unit, and repeat it as a whole."
            )

    def abort(self) -> None:
        """Make the unit unusable."""
        self.aborted = True


class Lifetime:
    """Whether a storage is still open; everything that it handed out ends with it."""

    __slots__ = ("_driver", "closed")

    def __init__(self, driver: str | None = None) -> None:
        self.closed = False
        self._driver = driver

    def check(self) -> None:
        """Raise ``ConfigurationError`` after the end: it would reconnect, and nothing would close that."""
        if self.closed:
            raise ConfigurationError("This storage is closed; open a new one.", driver=self._driver)


@runtime_checkable
class ReadyWithin(Protocol):
    """A driver that can say within a given time whether it is ready.

    Without it the storage calls :meth:`ModuleBackend.check_ready` in a separate thread, and abandons that
    thread when the time is over.
    """

    def check_ready_within(self, timeout_ms: int) -> None:
        """Do what :meth:`ModuleBackend.check_ready` does, within some milliseconds.

        Raises:
            UnavailableError: also when the time was not enough; the message says what was waited for.
        """
        ...


def wrong_handle(handle: object, expected: str, driver: str) -> ConfigurationError:
    """Return the error of a handle that belongs to another driver."""
    return ConfigurationError(
        f"{driver} joins {expected}, not {type(handle).__name__}; pass the handle of the configured driver.",
        driver=driver,
    )


def write_refused(driver: str) -> ValidationError:
    """Return the error of a write in a unit of work that was opened for reading; the unit stays usable."""
    return ValidationError(
        "This unit of work is read-only; open one without read_only to write.", driver=driver
    )
