"""What a driver is: its description, what it can do, and what it must answer for a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_pascal
from typing_extensions import override

from twinstore.errors import (
    ConfigurationError,
    TransactionAbortedError,
    UnsupportedCapabilityError,
    ValidationError,
)
from twinstore.forks import OwnProcess
from twinstore.redaction import MASK, is_secret_key, mask_secret_url
from twinstore.resources import SharedResources

if TYPE_CHECKING:
    from twinstore.bulk import BulkPort
    from twinstore.clock import Clock
    from twinstore.migrations import Initializer, MigrationDraft
    from twinstore.modules import ModuleSpec
    from twinstore.options import ModuleOptions
    from twinstore.planting import OpenPlanter
    from twinstore.scope import Scope

__all__ = [
    "BACKEND_API_VERSION",
    "BackendSettings",
    "BackendSpec",
    "Capabilities",
    "ModuleBackend",
    "OpenRequest",
    "ReadyWithin",
    "SharedResources",
    "UnitState",
    "write_refused",
    "wrong_handle",
]

# Raised when drivers of the version before no longer fit; since 2 a driver implements ``Access``.
BACKEND_API_VERSION: Final = 2
SESSION_OR_UNIT: Final = "This session or unit of work"

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a driver can do on the server it is connected to.

    Attributes:
        backend: name of the driver.
        server_version: version of the server, empty where there is none.
        transactions: several writes commit or vanish together.
        sessions: reads see earlier writes of the same session.
        server_ttl: the server removes expired rows by itself.
        row_level_security: the server checks the tenant once more.
        server_clock: leases are judged by a clock outside the client.
        cross_process_locks: locks exclude other processes.
        point_in_time_reads: views can read the state as of a position.
        change_stream: changes can be followed.
        bulk: tools can copy and verify; a first driver may do without.
        bulk_target: with ``bulk``: tools can also copy into it. Without, it is a source only.
        time_precision_ms: the finest stored step of an instant, in milliseconds.
        largest_document_bytes: the largest document the server takes, ``None`` for no limit of its own. Our
            calls write rows of up to 16.7 MB on every driver; what others have stored may be larger.
    """

    backend: str
    server_version: str = ""
    transactions: bool = False
    sessions: bool = False
    server_ttl: bool = False
    row_level_security: bool = False
    server_clock: bool = False
    cross_process_locks: bool = False
    point_in_time_reads: bool = False
    change_stream: bool = False
    bulk: bool = False
    # True by default: every driver from before it existed is a target.
    bulk_target: bool = True
    time_precision_ms: int = 1
    largest_document_bytes: int | None = None
    remedy: str = ""

    def __post_init__(self) -> None:
        """Let nothing be a target that tools cannot use at all."""
        if not self.bulk:
            # The class is frozen, and the default of one field follows from another.
            object.__setattr__(self, "bulk_target", False)

    def require(self, name: str) -> None:
        """Do nothing when the capability is there.

        Raises:
            UnsupportedCapabilityError: it is not; names backend, server version and remedy.
            ValueError: no capability has that name.
        """
        if name not in CAPABILITY_NAMES:
            raise ValueError(f"there is no capability {name!r}")  # a programmer's mistake
        if not getattr(self, name):
            server = f" {self.server_version}" if self.server_version else ""
            remedy = self.remedy or "Use a driver or server that has it."
            raise UnsupportedCapabilityError(
                f"{self.backend}{server} has no {name.replace('_', ' ')}. {remedy}", driver=self.backend
            )


# The type is its text, because annotations are postponed in this file.
CAPABILITY_NAMES: Final = frozenset(
    field.name for field in fields(Capabilities) if field.type in {"bool", bool}
)


class BackendSettings(BaseModel):
    """Base of the settings of a driver; keys are PascalCase in files, snake_case in Python."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_pascal,
        validate_by_alias=True,
        validate_by_name=True,
        # What was refused may be a password or an URL that holds one.
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )

    @override
    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    @override
    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())

    @override
    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        """Show values without a secret, also where the author of a driver has taken plain text for it."""
        for name, field in type(self).model_fields.items():
            # `model_construct` leaves values out.
            value = getattr(self, name, None)
            if isinstance(value, str):
                value = MASK if is_secret_key(name) else mask_secret_url(value)
            if field.repr:
                yield name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """What the factory of a driver gets. It must not connect yet.

    Attributes:
        module: the module to open, with its catalog, repositories and migrations.
        settings: the settings of the driver, as its specification describes them.
        options: what a host may tune whichever driver answers.
        resources: clients and pools that the modules of one storage share.
        clock: the clock of the storage.
        special: whether the driver may use its own statements for hot operations; off, every operation goes
            the general way and gives the same answer.
        read_only: nothing will be written, and everything read in system scope, as from the source of a copy.
            A role that is safe for a service is not asked for then, and a driver that can keeps the server
            from taking a write.
    """

    module: ModuleSpec[object]
    settings: BackendSettings
    options: ModuleOptions
    resources: SharedResources
    clock: Clock
    special: bool = True
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """The description of a driver, returned by its plug-in without importing its client library.

    Attributes:
        name: value of the switch, compared without case.
        schemes: URL schemes of its connection strings.
        api_version: the :data:`BACKEND_API_VERSION` it was written for.
        modules: the modules it stores; ``None`` for every one, because it knows entities by description.
        settings: model of its settings sections.
        factory: opens one module; connects on first use only.
        extra: the extra of twinstore (or the name of a distribution) that brings its client library.
        requires: import names which that extra brings.
        draft: compares the description of a module with its shipped migrations; opens nothing.
        planter: changes rows past the driver, for the self-test of the verification; ``None`` for a driver
            whose verification cannot be tested that way.
    """

    name: str
    schemes: tuple[str, ...]
    api_version: int
    settings: type[BackendSettings]
    factory: Callable[[OpenRequest], ModuleBackend[object]]
    extra: str
    requires: tuple[str, ...] = ()
    modules: frozenset[str] | None = None
    draft: Callable[[ModuleSpec[object]], MigrationDraft] | None = None
    planter: OpenPlanter | None = None


class UnitState:
    """Whether a session or unit of work can still be used; shared by the repositories bound to it."""

    def __init__(self, *, unbound: bool = False) -> None:
        """Start usable.

        Args:
            unbound: the repositories are bound to no connection, so they outlive a fork.
        """
        self.aborted = False
        self.closed = False
        # None for what outlives a fork: a process would refuse its repositories in every child.
        self._process = None if unbound else OwnProcess()

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
        """Take the name of the driver, for the message."""
        self.closed = False
        self._driver = driver

    def check(self) -> None:
        """Raise ``ConfigurationError`` after the end: it would connect again, and nobody would close that."""
        if self.closed:
            raise ConfigurationError("This storage is closed; open a new one.", driver=self._driver)


class ModuleBackend(Protocol[R_co]):
    """One module on one driver. ``R`` is the set of repositories of the module.

    The constructor does no I/O; every property but ``driver`` may connect.
    """

    @property
    def driver(self) -> str:
        """The name of the driver, for messages."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the driver can do on the connected server."""
        ...

    @property
    def repositories(self) -> R_co:
        """The repositories, each call on its own; methods documented as atomic open their own unit."""
        ...

    @property
    def initializer(self) -> Initializer:
        """Creates and upgrades the schema of the module."""
        ...

    @property
    def bulk(self) -> BulkPort:
        """Export, import and scan for tools, in system scope.

        Raises:
            UnsupportedCapabilityError: the driver does without.
        """
        ...

    def session(self, scope: Scope, *, causal_consistency: bool) -> AbstractContextManager[R_co]:
        """Open repositories bound to one session: reads see earlier writes of the session.

        Raises:
            UnsupportedCapabilityError: the server has no sessions.
        """
        ...

    def transaction(self, scope: Scope, *, read_only: bool) -> AbstractContextManager[R_co]:
        """Open repositories bound to one transaction; commit at normal exit, roll back on any exception.

        It reads one state, that of its first call, and its own writes. The first writer of a row wins: to
        write a row that was written by another open transaction, or committed since this one began, is a
        ``ConcurrencyError``; the driver may wait for the other one to end before. Core sees to it that one
        thread or task opens one at a time.

        Any error of the store inside makes the unit unusable: later calls and the commit raise
        ``TransactionAbortedError``.

        Raises:
            UnsupportedCapabilityError: the server has no transactions.
            ConcurrencyError: the transaction lost against another one; it may be repeated as a whole.
        """
        ...

    def bind(self, handle: object, scope: Scope) -> R_co:
        """Return repositories that join a caller's own connection or client session.

        The handle is never committed or closed.

        Raises:
            ConfigurationError: the handle is of another driver.
        """
        ...

    def check_ready(self) -> None:
        """Connect and check that the server, the roles and the schema are usable.

        Raises:
            MigrationError: a migration is pending.
            ConfigurationError: an unsafe role or an unsuitable server.
            UnavailableError: the server cannot be reached.
        """
        ...

    def close(self) -> None:
        """Release what this module opened and does not share; a second call does nothing.

        Every later call through what it handed out is a ``ConfigurationError``.
        """
        ...


@runtime_checkable
class ReadyWithin(Protocol):
    """A driver that can say within a given time whether it is ready.

    Without it the storage asks :meth:`ModuleBackend.check_ready` on a thread of its own, and leaves it there
    when the time is over.
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
