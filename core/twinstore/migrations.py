"""Schema migrations as tools and hosts see them; the drivers implement :class:`Initializer`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Initializer", "MigrationReport", "MigrationState", "MigrationStatus"]


class MigrationState(StrEnum):
    """Where one migration stands."""

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


class Initializer(Protocol):
    """Creates and upgrades everything of one module on one driver."""

    def ensure_migrations(self, *, release: bool = False) -> MigrationReport:
        """Apply what is pending and bring indexes in line; safe from several processes at once.

        Repeated call: does nothing. Each migration is one transaction where the server can do that.

        Args:
            release: also apply the migrations of the category ``release``, which an operator asks for.

        Raises:
            MigrationChecksumError: an applied migration was changed afterwards.
            MigrationMissingError: an applied migration is not shipped: the schema is newer than this library.
            MigrationError: a migration failed, or duplicates stand in the way of a unique index.
        """
        ...

    def status(self) -> tuple[MigrationStatus, ...]:
        """Return the shipped and the applied migrations by name; writes nothing."""
        ...

    def verify(self) -> tuple[str, ...]:
        """Return how the real schema differs from the wanted one, one sentence each; writes nothing."""
        ...

    def export(self) -> str:
        """Return the migrations as text for an administrator: SQL, or a shell script."""
        ...
