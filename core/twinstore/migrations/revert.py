"""Reverting a migration: what it created is dropped, and its row is removed from the ledger.

Only a migration for which the module ships a file in the folder ``revert`` next to its migrations can be
reverted. The driver cannot see whether the rows exist anywhere else, so each table that holds some needs a
:class:`~twinstore.migrations.migration.Consent` of the kind ``drop``, with their number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from twinstore.errors import ConsentRequiredError, Effect, EffectKind, MigrationError, ValidationError
from twinstore.migrations.migration import without_consent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from importlib.resources.abc import Traversable

    from twinstore.migrations.migration import Consent

FOLDER: Final = "revert"
NUMBER: Final = re.compile(r"\d{3}_")


@dataclass(frozen=True, slots=True)
class RevertFile:
    """What a module ships to take one migration back; ``name`` is that of the migration, without suffix."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """What taking back a migration drops.

    Attributes:
        migration: its name, as the ledger has it.
        applied: whether the ledger has it.
        rows: the rows of each table or collection that is there, parents first.
        done: whether it was taken back; false for a question, and where there was nothing to do.
    """

    module: str
    backend: str
    migration: str
    applied: bool
    rows: Mapping[str, int]
    done: bool = False

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What needs consent: the tables that hold rows."""
        return tuple(
            Effect(kind=EffectKind.DROP, name=name, rows=rows) for name, rows in self.rows.items() if rows
        )


@runtime_checkable
class RevertsMigrations(Protocol):
    """The initialiser of a driver that can take migrations back."""

    def reversal(self, migration: str) -> Reversal:
        """Return what :meth:`revert` would drop; writes nothing.

        Args:
            migration: its name, with or without suffix, or its number.

        Raises:
            ValidationError: the module ships no way back for it.
            MigrationError: the ledger is newer than this library or was changed, or an applied migration
                needs what this one made.
        """
        ...

    def revert(self, migration: str, *, accept: AbstractSet[Consent] = frozenset()) -> Reversal:
        """Drop what a migration created and remove its row from the ledger.

        No migration runs meanwhile, and no row is added between counting and dropping. A migration that is
        not applied: does nothing. Repeated call: the same. Killed in the middle: may be repeated, or the
        migration applied again. On PostgreSQL one transaction.

        Args:
            migration: as for :meth:`reversal`.
            accept: for each table or collection with rows, that so many may be dropped.

        Raises:
            ConsentRequiredError: rows without consent would be lost; nothing was dropped.
            ValidationError: as for :meth:`reversal`.
            MigrationError: as for :meth:`reversal`.
        """
        ...


def revert_files(migrations: Traversable) -> tuple[RevertFile, ...]:
    """Return what a module ships next to the migrations in this folder, by name; none if it ships none."""
    folder = migrations / FOLDER
    entries = [entry for entry in folder.iterdir() if NUMBER.match(entry.name)] if folder.is_dir() else []
    found = (
        RevertFile(entry.name.rpartition(".")[0], entry.read_text(encoding="utf-8")) for entry in entries
    )
    return tuple(sorted(found, key=lambda file: file.name))


def revert_of(files: Iterable[RevertFile], migration: str, *, module: str, driver: str) -> RevertFile:
    """Return the file of a migration, which is named in full, without suffix or by its number.

    Raises:
        ValidationError: none is shipped for it.
    """
    known = {file.name: file for file in files}
    wanted = migration.rpartition(".")[0] or migration
    found = known.get(wanted) or next((known[name] for name in known if name[:3] == wanted), None)
    if found is None:
        raise ValidationError(
            f"The module {module} ships no way to take back the migration {migration!r} for {driver}. "
            f"It can take back: {', '.join(known) or 'none'}.",
            module=module,
            driver=driver,
        )
    return found


def check_not_needed(migration: str, others: Iterable[str], *, module: str, driver: str) -> None:
    """Refuse to take back what applied migrations need.

    Raises:
        MigrationError: names them.
    """
    names = ", ".join(others)
    if names:
        raise MigrationError(
            f"The migration {migration} cannot be taken back: applied ones use what it made: {names}; "
            "nothing was changed. Take those back first.",
            module=module,
            driver=driver,
        )


def check_consent(reversal: Reversal, accept: AbstractSet[Consent]) -> None:
    """Refuse to drop rows without consent.

    Raises:
        ConsentRequiredError: names each table or collection, its rows, and how to agree.
    """
    missing = without_consent(reversal.effects, accept)
    if not missing:
        return
    options = " ".join(item.option for item in reversal.effects)
    raise ConsentRequiredError(
        f"Taking back {reversal.migration} would {', '.join(item.text for item in missing)}. Nothing was "
        "dropped. Stop the writers, copy these rows to the other store and let `twinstore backfill verify` "
        f"prove it; then run `twinstore migrate revert {reversal.migration} --module {reversal.module} "
        f"--backend {reversal.backend} {options} --execute`.",
        effects=missing,
        module=reversal.module,
        driver=reversal.backend,
    )
