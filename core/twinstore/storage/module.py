"""The storage of a module: sessions and units of work over one driver, whatever the module stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, ParamSpec, Self, TypeVar

from twinstore.access.nested_units import OpenUnits
from twinstore.access.retry import retry
from twinstore.access.scope import bound_scope, flag_argument, function_argument, whole_argument
from twinstore.access.unit_state import Lifetime, ReadyWithin
from twinstore.errors import Outcome, TimeoutExceededError
from twinstore.observing.observer import observed, observed_session
from twinstore.plugins.access_backend import AccessBackend
from twinstore.plugins.options import ModuleOptions
from twinstore.runtime.forks import NotPicklable
from twinstore.runtime.single_flight import SingleFlight

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from twinstore.bulk.port import BulkPort
    from twinstore.clock import Clock
    from twinstore.migrations.migration import Initializer
    from twinstore.observing.observer import Notifier
    from twinstore.plugins.backend import Capabilities, ModuleBackend
    from twinstore.plugins.resources import SharedResources

__all__ = ["ModuleStorage", "SessionFactory"]


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")

# Of a driver that does not say how many.
DEFAULT_CONCURRENCY: Final = 10


class OpenGuard:
    """Makes the calls of a part that was handed out, as long as the storage is open."""

    def __init__(self, lifetime: Lifetime, notifier: Notifier | None = None) -> None:
        self._lifetime = lifetime
        self._notifier = notifier

    def run(self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call.

        Raises:
            ConfigurationError: the storage is closed; the part would reconnect, and nothing would close that.
        """
        self._lifetime.check()
        if self._notifier is None:
            return call(*args, **kwargs)
        return self._notifier.run(name, call, *args, **kwargs)


class SessionFactory(NotPicklable, Generic[R_co, S_co]):
    """Opens sessions: what ``storage.sessions`` is, for every module and driver."""

    def __init__(
        self,
        backend: ModuleBackend[R_co],
        make: Callable[[R_co], S_co],
        lifetime: Lifetime,
        notifier: Notifier | None = None,
        *,
        without_tenant: bool = False,
    ) -> None:
        """Take the driver, what makes a session over its repositories, and whether the storage is open.

        ``without_tenant``: whether a session may name neither a tenant nor a purpose.
        """
        self._without_tenant = without_tenant
        self._backend = backend
        self._make = make
        self._lifetime = lifetime
        self.notifier = notifier

    def open(
        self, tenant_id: str | None = None, *, causal_consistency: bool = True, purpose: str | None = None
    ) -> AbstractContextManager[S_co]:
        """Open a session: a read through it sees every earlier write through it.

        Threads may use it one after the other; a call during a call of another thread is refused.

        Args:
            tenant_id: the one tenant of the session.
            causal_consistency: whether reads wait, if they must, for the earlier writes of the session. No
                effect on drivers that always read their writes.
            purpose: why all tenants are needed; opens system scope and excludes ``tenant_id``.

        Raises:
            TenantScopeError: both of tenant and purpose are given, or neither where every row has a tenant.
            UnsupportedCapabilityError: the server has no sessions.
        """
        block = self.unobserved(tenant_id, causal_consistency=causal_consistency, purpose=purpose)
        return block if self.notifier is None else self.notifier.block("session", block)

    @contextmanager
    def unobserved(
        self, tenant_id: str | None = None, *, causal_consistency: bool = True, purpose: str | None = None
    ) -> Generator[S_co]:
        """Open a session like :meth:`open`; the caller reports its duration to the observers."""
        self._lifetime.check()
        flag_argument(causal_consistency, "causal_consistency")
        scope = bound_scope(tenant_id, purpose, self.notifier, without_tenant=self._without_tenant)
        with self._backend.session(scope, causal_consistency=causal_consistency) as repositories:
            yield self._make(repositories)


class ModuleStorage(NotPicklable, ABC, Generic[R_co, S_co]):
    """What an application holds of a module. It connects on first use and closes only what it opened.

    ``R`` is the set of repositories of the module, ``S`` its session: repositories and services by attribute.
    The storage of a module derives from this class and defines what a session is made of. If it also derives
    from its session, a dataclass, it has the parts of the unbound session as properties.
    """

    def __init_subclass__(cls) -> None:
        """Give a storage that derives from its session the parts of the unbound one."""
        super().__init_subclass__()
        kind: type[object] = cls
        for part in fields(kind) if is_dataclass(kind) else ():
            if is_part_of_storages(part.name):
                raise TypeError(
                    f"{cls.__name__}: each storage has a {part.name!r}; name this part of the session "
                    "otherwise"
                )
            if part.name not in vars(cls):
                setattr(cls, part.name, property(attrgetter(f"unbound.{part.name}")))

    def __init__(
        self,
        backend: ModuleBackend[R_co],
        clock: Clock,
        owned: SharedResources | None = None,
        options: ModuleOptions | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        """Take the parts of a storage; nothing is connected yet.

        Args:
            backend: the module on a driver.
            clock: the clock of the services.
            owned: the resources to close with this storage; ``None``: none.
            options: what the application has tuned; ``None``: the defaults of the module.
            notifier: calls the observers of the application; ``None``: there are none, and nothing is between
                a caller and the repositories.
        """
        self._backend = backend
        self._clock = clock
        self._owned = owned
        self._options = options
        self._notifier = notifier
        # Made once: every call of a host that opens no session goes through it.
        self._unbound = self._observed_over(backend.repositories)
        self._lifetime = Lifetime(backend.driver)
        self.sessions = SessionFactory(
            backend, self._observed_over, self._lifetime, notifier, without_tenant=self.admits_no_tenant
        )
        self.open_units = backend.open_units if isinstance(backend, AccessBackend) else OpenUnits()
        self._ready_check: SingleFlight[None] = SingleFlight()

    @property
    def admits_no_tenant(self) -> bool:
        """Whether a session may name neither tenant nor purpose; it is then about rows without tenant."""
        return False

    @abstractmethod
    def session_over(
        self,
        repositories: R_co,  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]  # no caller hands in others
        *,
        in_unit: bool = False,
    ) -> S_co:
        """Return the session over the repositories of a driver.

        Args:
            repositories: unbound, or bound to a session or unit of work.
            in_unit: they belong to a transaction, in which nothing can be repeated after it lost.
        """

    def _observed_over(
        self,
        repositories: R_co,  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]  # no caller hands in others
        *,
        in_unit: bool = False,
    ) -> S_co:
        """Return the session over the repositories of a driver, observed if there are observers."""
        session = self.session_over(repositories, in_unit=in_unit)
        return session if self._notifier is None else observed_session(session, self._notifier)

    @property
    def driver(self) -> str:
        """The name of the driver."""
        return self._backend.driver

    @property
    def concurrency(self) -> int:
        """How many calls the driver can serve at the same time, as it says itself; it does not connect."""
        found = getattr(self._backend, "concurrency", None)
        return found if isinstance(found, int) and found > 0 else DEFAULT_CONCURRENCY

    @property
    def _open(self) -> ModuleBackend[R_co]:
        """The driver, while the storage is open."""
        self._lifetime.check()
        return self._backend

    @property
    def unbound(self) -> S_co:
        """The repositories and services; each call is independent."""
        self._lifetime.check()
        return self._unbound

    @property
    def capabilities(self) -> Capabilities:
        """What the driver can do on the connected server."""
        return self._open.capabilities

    @property
    def initializer(self) -> Initializer:
        """Creates and upgrades the schema."""
        return observed(self._open.initializer, OpenGuard(self._lifetime, self._notifier))

    @property
    def bulk(self) -> BulkPort:
        """Export, import and scan for tools, in system scope.

        Raises:
            UnsupportedCapabilityError: the driver does without.
        """
        return observed(self._open.bulk, OpenGuard(self._lifetime))

    def transaction(
        self, tenant_id: str | None = None, *, purpose: str | None = None, read_only: bool = False
    ) -> AbstractContextManager[S_co]:
        """Open a unit of work: commit at normal exit, roll back on any exception.

        It reads one state, that of its first call, and its own writes. The first writer of a row wins:
        writing a row that another transaction has written meanwhile is refused, so no update is lost. Two
        units that read the same rows and write different ones may both commit (write skew): let them write a
        common row.

        Units do not nest. A call on the storage itself does not see what the unit wrote; a write there by the
        thread or task that opened the unit is refused. Threads may use a unit one after the other; a call
        during a call of another thread is refused.

        Raises:
            TenantScopeError: both of tenant and purpose are given, or neither where every row has a tenant.
            TransactionAbortedError: an error of the store was caught inside and the unit went on.
            ConfigurationError: the storage was closed before the end of the unit, which is rolled back.
            ValidationError: this thread or task has a unit of this storage open; or inside, at a write in a
                unit opened with ``read_only``.
            ConcurrencyError: the unit lost against another one; repeat it as a whole, or use ``transact``.
            UnsupportedCapabilityError: the server has no transactions.
        """
        block = self.unobserved_transaction(tenant_id, purpose=purpose, read_only=read_only)
        return block if self._notifier is None else self._notifier.block("transaction", block)

    @contextmanager
    def unobserved_transaction(
        self, tenant_id: str | None = None, *, purpose: str | None = None, read_only: bool = False
    ) -> Generator[S_co]:
        """Open a unit like :meth:`transaction`; the caller reports its duration to the observers."""
        flag_argument(read_only, "read_only")
        scope = bound_scope(tenant_id, purpose, self._notifier, without_tenant=self.admits_no_tenant)
        # Noted before the driver opens anything: a second unit could wait for rows of the first one for ever.
        with self.open_units.opened(), self._open.transaction(scope, read_only=read_only) as repositories:
            yield self._observed_over(repositories, in_unit=True)

    def transact(
        self,
        fn: Callable[[S_co], T],
        *,
        tenant_id: str | None = None,
        purpose: str | None = None,
        attempts: int | None = None,
    ) -> T:
        """Run ``fn`` in a unit of work and repeat both after ``ConcurrencyError``, with growing pauses.

        ``fn`` may run more than once; its effects outside the unit must bear that. What it reads and writes
        back changed is never lost.

        Args:
            fn: gets the unit.
            tenant_id: the one tenant of the unit.
            purpose: as for :meth:`transaction`.
            attempts: at most so many; the repetitions end after 10 s in any case.

        Raises:
            ConcurrencyError: the unit lost against others at every attempt.
            ValidationError: ``attempts`` is less than 1, or units would nest.
        """
        function_argument(fn, "fn")

        def once() -> T:
            with self.transaction(tenant_id, purpose=purpose) as unit:
                return fn(unit)

        if self._notifier is None:
            return retry(once, attempts=attempts)
        return self._notifier.run("transact", retry, once, attempts=attempts)

    def bind(self, handle: object, tenant_id: str | None = None) -> S_co:
        """Join a caller's own psycopg connection or pymongo client session, inside its transaction.

        The handle is never committed or closed.

        Raises:
            TenantScopeError: no tenant is given where every row has one.
        """
        scope = bound_scope(tenant_id, None, without_tenant=self.admits_no_tenant)
        repositories = self._open.bind(handle, scope)
        return self._observed_over(repositories, in_unit=True)

    def check_ready(self, *, timeout_ms: int | None = None) -> None:
        """Connect and check server, roles and schema; see :meth:`ModuleBackend.check_ready`.

        Args:
            timeout_ms: after how many milliseconds the store counts as not ready, for a probe that waits no
                longer itself; by default five seconds for a server to be found, and for each question to it
                what any call may take.

        Raises:
            MigrationError: a migration is pending.
            ConfigurationError: an unsafe role or an unsuitable server.
            UnavailableError: the server cannot be reached, or was not in time.
        """
        if timeout_ms is not None:
            whole_argument(timeout_ms, "timeout_ms")
        if self._notifier is None:
            self._check_ready(timeout_ms)
        else:
            self._notifier.run("check_ready", lambda: self._check_ready(timeout_ms))

    def _check_ready(self, timeout_ms: int | None) -> None:
        backend = self._open
        if timeout_ms is None:
            backend.check_ready()
        elif isinstance(backend, ReadyWithin):
            backend.check_ready_within(timeout_ms)
        else:
            self._check_ready_in_thread(backend, timeout_ms)

    def _check_ready_in_thread(self, backend: ModuleBackend[R_co], timeout_ms: int) -> None:
        """Check in another thread, one for all callers, because the driver takes no time limit."""
        try:
            self._ready_check.run(backend.check_ready, timeout_ms / 1000)
        except TimeoutError:
            raise TimeoutExceededError(
                f"{backend.driver} did not answer within {timeout_ms} ms whether it is ready.",
                outcome=Outcome.NOT_APPLIED,
                driver=backend.driver,
            ) from None

    def close(self) -> None:
        """Close what this storage opened; a second call does nothing, another one is refused."""
        # First, so that no thread connects again through a resource that is about to be closed.
        self._lifetime.closed = True
        try:
            self._backend.close()
        finally:
            if self._owned is not None:
                self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what this storage opened."""
        self.close()


def is_part_of_storages(name: str) -> bool:
    """Whether each storage has an attribute of a name, which no part of a session can have then."""
    return name in {*vars(ModuleStorage), "open_units", "sessions"}
