"""The files next to the migrations of a module: what they create on PostgreSQL, and scripts for mongosh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.modules import built_modules, module_plugin, module_spec
from twinstore_mongo.schema.script import script
from twinstore_mongo.schema.steps import load_steps
from twinstore_mongo.schema.validators import validator_of
from twinstore_postgres.schema.comparison import SCHEMA_FILE, snapshot_of
from twinstore_postgres.schema.migrator import STORE, apply, shipped_migrations

if TYPE_CHECKING:
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_mongo.schema.steps import Step
    from twinstore_postgres.connection.deadlines import Connection

__all__ = ["schema_files", "script_files"]

MONGO: Final = "mongo"
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


def script_files() -> dict[Path, str]:
    """Return the wanted text of the scripts that are shipped: of steps that administrators know by a name."""
    return {
        Path(str(module.migrations(MONGO))) / f"{step.name}.mongosh": _script(module, step)
        for module in SHIPPED
        for step in load_steps(module.migrations(MONGO))
        if step.file
    }


def _script(module: ModuleSpec[object], step: Step) -> str:
    made = {collection.name for collection in step.collections}
    validators = {
        entity.collection: validator_of(entity)
        for entity in module.catalog.entities
        if entity.collection in made
    }
    return script(module.name, [step], validators, module_plugin(module.name).settings.options())


def _made(connection: Connection, module: ModuleSpec[object], role: str) -> str:
    for migration in shipped_migrations(module):
        apply(connection, module, migration, role, _unchecked)
    return snapshot_of(connection, module, role).text


def _unchecked() -> None:
    """Do nothing: an empty database has nothing that a migration could take over or hide."""
