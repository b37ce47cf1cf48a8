"""Who has which collection: each belongs to one entity of one module.

On PostgreSQL every module has a schema of its own. Here two modules with a collection of one name would write
into the same one, under the validator of whichever was migrated last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError
from twinstore.modules import module_spec
from twinstore_mongo.errors import DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pymongo.collection import Collection

    from twinstore_mongo.connection import Document

__all__ = ["check_collections", "check_other_modules"]

# What the server keeps for itself, and what this library does.
RESERVED: Final = ("system.", "_")


def check_collections(names: Mapping[str, str]) -> None:
    """Refuse names of collections that the server does not take, or under which rows would mix.

    Args:
        names: the collection of each entity of a module, by the name of the entity.

    Raises:
        ConfigurationError: one of them is no name, or two entities have the same.
    """
    owners: dict[str, str] = {}
    for entity, name in names.items():
        if problem := problem_of(name):
            raise ConfigurationError(
                f"The collection of {entity} cannot be called {name!r} in MongoDB: {problem}. Correct the "
                "setting that names it.",
                driver=DRIVER,
            )
        if (other := owners.setdefault(name, entity)) != entity:
            raise ConfigurationError(
                f"The collection {name!r} of MongoDB would hold both {other} and {entity}, whose rows must "
                "not mix; give each a name of its own.",
                driver=DRIVER,
            )


def problem_of(name: str) -> str | None:
    """Return what is wrong with the name of a collection."""
    if not name or name != name.strip():
        return "it is empty, or begins or ends with white space"
    if "$" in name or "\0" in name or ".." in f".{name}.":
        return "it has a dollar sign, a null character, or nothing before, after or between its dots"
    if name.startswith(RESERVED):
        return f"names that begin with {' or '.join(map(repr, RESERVED))} are taken"
    return None


def check_other_modules(ledger: Collection[Document], module: str, names: AbstractSet[str]) -> None:
    """Refuse to migrate into collections that another module has in this database.

    Args:
        ledger: says which modules were migrated here. One that is not installed cannot be asked.
        module: the module that is to be migrated.
        names: its collections.

    Raises:
        ConfigurationError: one of them belongs to another module.
    """
    migrated = {str(row["_id"]).partition(":")[0] for row in ledger.find({}, {"_id": 1})}
    for other in sorted(migrated - {module}):
        try:
            theirs = {entity.collection for entity in module_spec(other).catalog.entities}
        except ConfigurationError:  # not installed here, or no module: the lease lies in the ledger too
            continue
        if shared := sorted(names & theirs):
            raise ConfigurationError(
                f"The module {module} would write into {', '.join(shared)}, which the module {other} has in "
                "this database already; nothing was changed. Give each module a database of its own, or ask "
                f"the author of {module} to rename the collection.",
                module=module,
                driver=DRIVER,
            )
