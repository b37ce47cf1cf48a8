"""What the shipped migrations of a module make on PostgreSQL, in the file that stands beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore.ledger import LEDGER_MODULE
from twinstore.modules import built_modules, module_spec
from twinstore_postgres.migrator import STORE, apply, shipped_migrations
from twinstore_postgres.schema import SCHEMA_FILE, snapshot_of

if TYPE_CHECKING:
    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection

__all__ = ["schema_files"]

SHIPPED: Final[tuple[ModuleSpec[object], ...]] = (LEDGER_MODULE, *map(module_spec, built_modules()))


def schema_files(connection: Connection, role: str) -> dict[Path, str]:
    """Return the wanted text of the ``schema.txt`` of every module.

    Args:
        connection: to an empty database, autocommit; all migrations are applied to it, also those of the
            category ``release``.
        role: the application role that they grant to.
    """
    return {
        Path(str(module.migrations(STORE) / SCHEMA_FILE)): _made(connection, module, role)
        for module in SHIPPED
    }


def _made(connection: Connection, module: ModuleSpec[object], role: str) -> str:
    for migration in shipped_migrations(module):
        apply(connection, module, migration, role, _unchecked)
    return snapshot_of(connection, module, role).text


def _unchecked() -> None:
    """Nothing stands in an empty database that a migration could take over or hide."""
