"""Schema migrations as tools and applications see them; the drivers implement :class:`Initializer`.

A part of a schema can make the server act on existing rows: a TTL index removes old ones, a validator refuses
others the next time they are written, row-level security hides them from clients that do not know of it. Each
such :class:`Effect` is counted before, and needs a :class:`Consent`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, runtime_checkable

from twinstore.errors import (
    DESTRUCTIVE_EFFECTS,
    ConsentRequiredError,
    Effect,
    EffectKind,
    MigrationError,
    ValidationError,
)
from twinstore.runtime.service_log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from datetime import datetime


__all__ = [
    "COUNTED_ROWS",
    "Consent",
    "ExportsPartitions",
    "Initializer",
    "MigrationDraft",
    "MigrationReport",
    "MigrationState",
    "MigrationStatus",
    "ReportsDefaults",
    "SchemaSnapshot",
    "SessionDefaults",
    "TakesSnapshots",
    "consent_required",
    "logs_migration",
    "migration_problems",
    "no_migrations",
    "without_consent",
]


# If more rows than this are refused or hidden, the exact number is of no use, and it costs a full scan.
COUNTED_ROWS: Final = 10_000


class MigrationState(StrEnum):
    """The status of one migration."""

    APPLIED = "applied"
    PENDING = "pending"
    CHANGED = "changed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationStatus:
    """One migration: shipped, applied, or both."""

    name: str
    category: str
    checksum: str
    state: MigrationState
    applied_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """What ``ensure_migrations`` did. ``changes`` are indexes, retention and validators brought in line."""

    module: str
    backend: str
    applied: tuple[str, ...] = ()
    already_applied: tuple[str, ...] = ()
    changes: tuple[str, ...] = field(default=())
    unknown: tuple[str, ...] = field(default=())


def migration_problems(statuses: Iterable[MigrationStatus], remedy: str) -> tuple[str, ...]:
    """Return a sentence for each migration that is not applied as shipped; ``remedy`` applies others."""
    remedies = {
        MigrationState.PENDING: remedy,
        MigrationState.CHANGED: "restore the shipped file by reinstalling twinstore",
        MigrationState.MISSING: "upgrade twinstore",
    }
    return tuple(
        f"Migration {item.name} is {item.state}. To fix: {remedies[item.state]}"
        for item in statuses
        if item.state in remedies
    )


def no_migrations(module: str, driver: str) -> MigrationError:
    """Return the error of a module that ships no migration for a driver yet."""
    return MigrationError(
        f"Module {module} has no migrations for {driver} yet. Its author writes the first one with "
        f"`twinstore dev migration {module} create_{module}`.",
        module=module,
        driver=driver,
    )


@dataclass(frozen=True, slots=True)
class Consent:
    """Agreement to one effect.

    Attributes:
        name: the collection or table.
        rows: at most so many rows, so that a number that has grown needs a new decision. ``None``: however
            many; not for the removal of rows, which cannot be undone.
    """

    kind: EffectKind
    name: str
    rows: int | None = None

    def __post_init__(self) -> None:
        """Refuse what would agree to any removal."""
        if self.kind in DESTRUCTIVE_EFFECTS and self.rows is None:
            raise ValidationError(
                f"A consent to remove rows of {self.name} must say how many; give the number "
                "that the plan shows."
            )

    def covers(self, effect: Effect) -> bool:
        """Return whether this is the consent that an effect needs."""
        if (self.kind, self.name) != (effect.kind, effect.name):
            return False
        # Fewer rows than agreed to are fine: the server may have removed some since the plan was printed.
        return self.rows is None or (not effect.more and effect.rows <= self.rows)


def without_consent(effects: Iterable[Effect], accept: AbstractSet[Consent]) -> tuple[Effect, ...]:
    """Return the effects that no consent covers."""
    return tuple(item for item in effects if not any(consent.covers(item) for consent in accept))


def consent_required(
    effects: tuple[Effect, ...], done: str, *, module: str, driver: str
) -> ConsentRequiredError:
    """Return the error that names every effect and how to agree to it; ``done`` says what was changed."""
    options = " ".join(item.option for item in effects)
    return ConsentRequiredError(
        f"Migrating {module} would let {driver} {', '.join(item.text for item in effects)}. {done} "
        f"If that is right, run `twinstore migrate run --module {module} --backend {driver} {options}`, or "
        "call ensure_migrations(accept={Consent(...)}) with the same.",
        effects=effects,
        module=module,
        driver=driver,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationDraft:
    """What the descriptions of a module require of a kind of store and no shipped migration creates.

    Attributes:
        folder: the folder of that kind of store in the migrations of a module.
        suffix: how the names of its files end, such as ``.sql``.
        text: the next migration, for a person to read; ``None`` when nothing is missing.
        contradictions: what a shipped migration creates otherwise than described, one sentence each.
        repeats: names of the files that already create a part of ``text``, which the snapshot next to them
            does not show yet.
    """

    folder: str
    suffix: str
    text: str | None
    contradictions: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSnapshot:
    """What a server holds when every migration of a module has been applied; shipped next to them.

    Attributes:
        folder: the folder of that kind of store in the migrations of a module.
        name: the name of the file.
        text: its text.
    """

    folder: str
    name: str
    text: str


@runtime_checkable
class TakesSnapshots(Protocol):
    """The initialiser of a driver whose migrations are compared with a snapshot of the schema."""

    def snapshot(self) -> SchemaSnapshot:
        """Return what the connected server holds."""
        ...


@runtime_checkable
class ExportsPartitions(Protocol):
    """The initialiser of a driver whose tables can be divided into partitions by the hash of their key."""

    def export_partitioned(self, counts: Mapping[str, int]) -> str:
        """Return all migrations as ``export`` does, with some tables in partitions.

        Args:
            counts: the number of partitions by table, 2 to 1024.

        Raises:
            ConfigurationError: no such table, another number, or a unique index without the key of the table.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDefaults:
    """The settings with which sessions of a database begin, without their values.

    Attributes:
        unsafe: a sentence for each that switches protection off, with the statement that repairs it.
        allowed: the name of each other one, and for what it is set.
        unknown: a sentence for each thing that could not be read, with what to do.
        client: a sentence for each mechanism of the driver that this release of the client library does not
            carry, with what is different without it.
        remarks: a sentence for each other thing about the server that a copy should know.
    """

    unsafe: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@runtime_checkable
class ReportsDefaults(Protocol):
    """The initialiser of a driver whose server gives sessions settings before their first statement.

    So is that of a driver which uses more of its client library than the documentation of that promises.
    """

    def session_defaults(self) -> SessionDefaults | None:
        """Return those of the database, ``None`` for no setting; connects, and writes nothing."""
        ...


class Initializer(Protocol):
    """Creates and upgrades everything of one module on one driver."""

    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Apply what is pending and bring indexes in line; safe from several processes at once.

        Repeated call: does nothing. Each migration is one transaction where the server can do that.
        Without consent to an effect, what has none may have been applied (plain indexes), and nothing else.

        Args:
            release: also apply the migrations of the category ``release``, which an operator asks for.
            accept: what the server may do to existing rows; what is not needed has no effect.

        Raises:
            ConsentRequiredError: the server would remove, refuse or hide rows, or more than were agreed to.
            MigrationChecksumError: an applied migration was changed afterwards.
            MigrationMissingError: an applied migration is not shipped: the schema is newer than this library.
            MigrationError: a migration failed, duplicates prevent a unique index, or tables of another
                application have the names of ours.
        """
        ...

    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        """Return what ``ensure_migrations`` would need consent for, by kind and name; writes nothing.

        Nothing pending, or no row concerned: empty.

        Args:
            release: as for :meth:`ensure_migrations`.
        """
        ...

    def status(self) -> tuple[MigrationStatus, ...]:
        """Return the shipped and the applied migrations by name; writes nothing."""
        ...

    def verify(self, *, additions: bool = True) -> tuple[str, ...]:
        """Return how the real schema differs from the wanted one, one sentence each; writes nothing.

        Args:
            additions: also name objects that exist in addition to the wanted schema and do not change any
                answer or write, such as an index that others added for speed.
        """
        ...

    def export(self, names: Collection[str] | None = None) -> str:
        """Return the migrations as text for an administrator: SQL, or a shell script.

        Args:
            names: only these, by the names that :meth:`status` has; default: all.
        """
        ...


P = ParamSpec("P")


def logs_migration(migrate: Callable[P, MigrationReport]) -> Callable[P, MigrationReport]:
    """Return a function that brings a schema up to date and says what it has done."""

    @wraps(migrate)
    def logged(*args: P.args, **kwargs: P.kwargs) -> MigrationReport:
        begun = time.monotonic()
        report = migrate(*args, **kwargs)
        log_migration(report, time.monotonic() - begun)
        return report

    return logged


def log_migration(report: MigrationReport, seconds: float) -> None:
    """Say what was done to a schema."""
    log.info(
        "schema of %s on %s: %d migrations applied now%s, %d before, %d other changes, %.1f s",
        report.module,
        report.backend,
        len(report.applied),
        f" ({', '.join(report.applied)})" if report.applied else "",
        len(report.already_applied),
        len(report.changes),
        seconds,
        extra={
            "twinstore_module": report.module,
            "twinstore_driver": report.backend,
            "twinstore_applied": list(report.applied),
            "twinstore_already_applied": len(report.already_applied),
            "twinstore_changes": len(report.changes),
            "twinstore_seconds": seconds,
        },
    )
