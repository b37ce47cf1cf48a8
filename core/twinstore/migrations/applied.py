"""What is applied of what a module ships, for the initialisers of drivers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.errors import MigrationChecksumError, MigrationMissingError
from twinstore.migrations.migration import Initializer, MigrationReport, MigrationState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from collections.abc import Set as AbstractSet

    from twinstore.errors import Effect
    from twinstore.migrations.migration import Consent, MigrationStatus


def statuses(
    shipped: Iterable[MigrationStatus], recorded: Iterable[MigrationStatus]
) -> tuple[MigrationStatus, ...]:
    """Return the status of each migration, by name.

    Args:
        shipped: those of a module, as pending.
        recorded: those of a ledger, as missing; an empty checksum equals any.
    """
    found = {row.name: row for row in recorded}
    for item in shipped:
        row = found.get(item.name)
        if row is not None:
            same = row.checksum in {"", item.checksum}
            state = MigrationState.APPLIED if same else MigrationState.CHANGED
            found[item.name] = replace(item, state=state, applied_at=row.applied_at)
        else:
            found[item.name] = item
    return tuple(found[name] for name in sorted(found))


def check_history(
    shipped: Iterable[MigrationStatus], recorded: Iterable[MigrationStatus], *, module: str, driver: str
) -> None:
    """Refuse a ledger that this library cannot continue; the arguments are those of :func:`statuses`.

    Raises:
        MigrationChecksumError: an applied migration was changed afterwards.
        MigrationMissingError: an applied migration is not shipped.
    """
    known = {item.name: item.checksum for item in shipped}
    applied = {row.name: row.checksum for row in recorded}
    if missing := sorted(applied.keys() - known):
        raise MigrationMissingError(
            f"Migrations of {module} are applied and not shipped: {', '.join(missing)}. The schema is newer "
            "than this library. Upgrade twinstore.",
            module=module,
            key=missing[0],
            driver=driver,
        )
    changed = sorted(name for name, checksum in applied.items() if checksum not in {"", known[name]})
    if changed:
        texts = (f"{name} (applied as {applied[name]}, shipped as {known[name]})" for name in changed)
        raise MigrationChecksumError(
            f"Applied migrations of {module} were changed afterwards: {', '.join(texts)}. Nothing was "
            "changed. Restore the shipped files by reinstalling twinstore or the module; put further changes "
            "into a new file.",
            module=module,
            key=changed[0],
            driver=driver,
        )


class SchemalessInitializer(Initializer):
    """The initialiser of a driver without a schema: there is nothing to migrate, and nothing differs."""

    def __init__(self, module: str, driver: str, hint: str) -> None:
        """Take the names of module and driver, and what an administrator reads in place of migrations."""
        self._module, self._driver, self._hint = module, driver, hint

    @override
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        del release, accept
        return MigrationReport(module=self._module, backend=self._driver)

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        del release
        return ()

    @override
    def status(self) -> tuple[MigrationStatus, ...]:
        return ()

    @override
    def verify(self, *, additions: bool = True) -> tuple[str, ...]:
        del additions
        return ()

    @override
    def export(self, names: Collection[str] | None = None) -> str:
        """Return a comment that says so."""
        del names
        return f"# {self._hint} there is nothing to apply.\n"

    def check_applied(self) -> None:
        """Do nothing: no migration can be pending."""
