"""A module on a driver that implements :class:`~twinstore.access.Access`: repositories, sessions, units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from twinstore.apart import ApartAccess, UnitsOfCallers
from twinstore.backend import Lifetime
from twinstore.guard import GuardedAccess
from twinstore.serial import SerialAccess, one_at_a_time, turn_of

if TYPE_CHECKING:
    from twinstore.access import Access
    from twinstore.backend import Capabilities
    from twinstore.bulk import BulkPort
    from twinstore.modules import ModuleSpec
    from twinstore.scope import Scope

__all__ = ["AccessBackend"]

R = TypeVar("R")


class AccessBackend(ABC, Generic[R]):
    """Base of a driver's :class:`~twinstore.backend.ModuleBackend`: the four that hand out repositories."""

    def __init__(self, module: ModuleSpec[R]) -> None:
        """Take the module whose repositories are handed out."""
        self._module = module
        self._repositories: R | None = None
        self._lifetime = Lifetime(self.driver)
        self._units = UnitsOfCallers()

    @property
    @abstractmethod
    def driver(self) -> str:
        """The name of the driver, for messages."""

    @abstractmethod
    def unbound(self) -> Access:
        """Return the access whose calls stand on their own; no I/O yet."""

    @abstractmethod
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> AbstractContextManager[Access]:
        """Open the access of a session; its state is closed at the end."""

    @abstractmethod
    def open_transaction(self, scope: Scope, *, read_only: bool) -> AbstractContextManager[Access]:
        """Open the access of one transaction: commit at normal exit, roll back on any exception."""

    @abstractmethod
    def join(self, handle: object, scope: Scope) -> Access:
        """Return an access that joins a caller's own connection or client session."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the driver can do on the connected server."""

    @property
    def bulk(self) -> BulkPort:
        """Refuse: a driver without bulk says so in its capabilities and writes nothing for it.

        Raises:
            UnsupportedCapabilityError: always.
        """
        self.capabilities.require("bulk")
        # Met by programmers only: it is declared all the same.
        raise NotImplementedError(f"{type(self).__name__} declares bulk and has none")

    @property
    def repositories(self) -> R:
        """The repositories, each call on its own; methods documented as atomic open their own unit."""
        # At first use, because the constructor of the driver has not ended when this base's runs.
        if self._repositories is None:
            self._repositories = self._over(ApartAccess(self.unbound(), self._units))
        return self._repositories

    def close(self) -> None:
        """Refuse every later call; a driver that has something to release does that besides."""
        self._lifetime.closed = True

    @contextmanager
    def session(self, scope: Scope, *, causal_consistency: bool) -> Generator[R]:
        """Open repositories bound to one session; see :meth:`ModuleBackend.session`."""
        self._lifetime.check()
        opening = self.open_session(scope, causal_consistency=causal_consistency)
        with one_at_a_time(opening) as (access, turn):
            yield self._over(SerialAccess(ApartAccess(access, self._units), turn))

    @contextmanager
    def transaction(self, scope: Scope, *, read_only: bool) -> Generator[R]:
        """Open repositories bound to one transaction; see :meth:`ModuleBackend.transaction`."""
        self._lifetime.check()
        opening = self.open_transaction(scope, read_only=read_only)
        with self._units.opened() as rows, one_at_a_time(opening) as (access, turn):
            yield self._over(SerialAccess(ApartAccess(access, self._units, rows), turn))
            # Some drivers could still commit, and others could not.
            self._lifetime.check()

    def bind(self, handle: object, scope: Scope) -> R:
        """Return repositories that join a caller's own handle; see :meth:`ModuleBackend.bind`."""
        access = ApartAccess(self.join(handle, scope), self._units)
        return self._over(SerialAccess(access, turn_of(handle)))

    def _over(self, access: Access) -> R:
        return self._module.repositories(GuardedAccess(access, self._lifetime))
