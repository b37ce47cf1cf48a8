"""What a driver is: its description, what it can do, and what it must answer for a module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from twinstore.errors import UnsupportedCapabilityError
from twinstore.plugins.resources import SharedResources
from twinstore.plugins.settings import BackendSettings

if TYPE_CHECKING:
    from twinstore.access.scope import Scope
    from twinstore.bulk.corruption import CorruptionWriter
    from twinstore.bulk.port import BulkPort
    from twinstore.clock import Clock
    from twinstore.migrations.migration import Initializer, MigrationDraft
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.plugins.options import ModuleOptions

__all__ = [
    "BACKEND_API_VERSION",
    "BackendSpec",
    "Capabilities",
    "ModuleBackend",
    "OpenCorruptionWriter",
    "OpenRequest",
]


# Raised when drivers of the version before no longer fit; since 2 a driver implements ``Access``.
BACKEND_API_VERSION: Final = 2

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
        row_level_security: the server checks the tenant again.
        server_clock: leases are judged by a clock outside the client.
        cross_process_locks: locks exclude other processes.
        point_in_time_reads: views can read the state as of a position.
        change_stream: changes can be followed.
        bulk: tools can copy and verify; a first driver may do without.
        bulk_target: with ``bulk``: tools can also copy into it. Without, it is a source only.
        time_precision_ms: the finest stored step of an instant, in milliseconds.
        largest_document_bytes: the largest document the server takes, ``None`` for no limit. Our
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
        corruption_writer: changes rows past the driver, for the self-test of the verification; ``None`` for a
            driver whose verification cannot be tested that way.
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
    corruption_writer: OpenCorruptionWriter | None = None


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


OpenCorruptionWriter = Callable[["BackendSettings"], AbstractContextManager["CorruptionWriter"]]
"""Opens a corruption writer with the settings of a driver; connects at once."""
