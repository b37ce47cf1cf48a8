"""A module on a driver that implements ``Access``: repositories, sessions, units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from twinstore.access.guard import NO_LOCK, GuardedAccess, OneCallAtATime
from twinstore.access.nested_units import OpenUnits
from twinstore.access.unit_state import Lifetime

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.access.scope import Scope
    from twinstore.bulk.port import BulkPort
    from twinstore.plugins.backend import Capabilities
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["AccessBackend"]


R = TypeVar("R")

# The same for all that join one handle.
_joined: Final[WeakKeyDictionary[object, OneCallAtATime]] = WeakKeyDictionary()


class AccessBackend(ABC, Generic[R]):
    """Base of a driver's ``ModuleBackend``: the four that hand out repositories."""

    def __init__(self, module: ModuleSpec[R]) -> None:
        self._module = module
        self._repositories: R | None = None
        self._lifetime = Lifetime(self.driver)
        self.open_units = OpenUnits()

    @property
    @abstractmethod
    def driver(self) -> str:
        """The name of the driver, for messages."""

    @abstractmethod
    def unbound(self) -> Access:
        """Return the access whose calls are independent; no I/O yet."""

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
            self._repositories = self._guarded(self.unbound(), NO_LOCK, self.open_units)
        return self._repositories

    def close(self) -> None:
        """Refuse every later call; a driver that has something to release does that besides."""
        self._lifetime.closed = True

    @contextmanager
    def session(self, scope: Scope, *, causal_consistency: bool) -> Generator[R]:
        """Open repositories bound to one session; see :meth:`ModuleBackend.session`."""
        self._lifetime.check()
        opening, calls = self.open_session(scope, causal_consistency=causal_consistency), OneCallAtATime()
        with calls.during(opening) as access:
            yield self._guarded(access, calls, self.open_units)

    @contextmanager
    def transaction(self, scope: Scope, *, read_only: bool) -> Generator[R]:
        """Open repositories bound to one transaction; see :meth:`ModuleBackend.transaction`."""
        self._lifetime.check()
        opening, calls = self.open_transaction(scope, read_only=read_only), OneCallAtATime()
        with calls.during(opening) as access:
            yield self._guarded(access, calls, None)
            # Some drivers could still commit, and others could not.
            self._lifetime.check()

    def bind(self, handle: object, scope: Scope) -> R:
        """Return repositories that join a caller's own handle; see :meth:`ModuleBackend.bind`."""
        return self._guarded(self.join(handle, scope), call_guard_of(handle), self.open_units)

    def _guarded(self, access: Access, calls: AbstractContextManager[object], units: OpenUnits | None) -> R:
        return self._over(GuardedAccess(access, self._lifetime, calls, units))

    def _over(self, access: GuardedAccess) -> R:
        return self._module.repositories(access)


def call_guard_of(handle: object) -> OneCallAtATime:
    """Return what the calls of a caller's connection or client session enter."""
    try:
        return _joined.setdefault(handle, OneCallAtATime())
    except TypeError:
        # A connection that nothing can refer to weakly, such as that of sqlite3: each join has its own.
        return OneCallAtATime()
