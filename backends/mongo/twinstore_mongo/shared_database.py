"""Who has which collection: each belongs to one entity of one module.

On PostgreSQL every module has a schema of its own. Here two modules with a collection of one name would write
into the same one, under the validator of whichever was migrated last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError
from twinstore.ledger.catalog import LEDGER
from twinstore.modules import module_spec
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.steps import whole_collections

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymongo.collection import Collection

    from twinstore_mongo.connection import Document
    from twinstore_mongo.steps import Step

__all__ = ["COLLECTIONS", "check_collections", "check_module", "check_other_modules", "note_collections"]

# What the server keeps for itself, and what this library does.
RESERVED: Final = ("system.", "_")
# The ledger of copies, and where the first release kept it beside the data.
OF_LEDGER: Final = frozenset(
    {*(entity.collection for entity in LEDGER.entities), "backfill_jobs", "backfill_ranges"}
)
# The field of a row of the ledger of migrations that names the collections of its module.
COLLECTIONS: Final = "collections"


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


def check_module(names: Mapping[str, str], module: str, others: dict[str, frozenset[str]]) -> None:
    """Refuse collections that another module of this storage has, or the ledger of copies.

    Args:
        names: the collection of each entity of the module, by the name of the entity.
        module: the module that is opened.
        others: the collections of the modules that are open in this database; this one is added.

    Raises:
        ConfigurationError: one of them is taken, whichever module was opened first.
    """
    owned = frozenset(names.values())
    taken = {other: theirs for other, theirs in others.items() if other != module}
    if module != LEDGER.name:
        taken |= {"ledger of copies": OF_LEDGER}
    for other, theirs in sorted(taken.items()):
        if shared := sorted(owned & theirs):
            raise ConfigurationError(
                f"The module {module} would write into {', '.join(shared)}, which the {other} has in this "
                "database. Correct the setting that names it, or give each module a database of its own.",
                module=module,
                driver=DRIVER,
            )
    others[module] = owned


def described(module: str) -> set[str]:
    """Return the collections that a module has where no setting names others."""
    try:
        return {entity.collection for entity in module_spec(module).catalog.entities}
    except ConfigurationError:  # not installed here, or no module: the lease lies in the ledger too
        return set()


def check_other_modules(ledger: Collection[Document], module: str, steps: Sequence[Step]) -> None:
    """Refuse to migrate into collections that another module has in this database.

    Args:
        ledger: says which modules were migrated here. One that is not installed cannot be asked.
        module: the module that is to be migrated.
        steps: what makes its collections.

    Raises:
        ConfigurationError: one of them belongs to another module.
    """
    names = {item.name for item in whole_collections(steps)}
    migrated: dict[str, set[str]] = {}
    for row in ledger.find({}, {"_id": 1, COLLECTIONS: 1}):
        # Settings may have given them other names than their descriptions; those are noted.
        migrated.setdefault(str(row["_id"]).partition(":")[0], set()).update(row.get(COLLECTIONS, ()))
    for other in sorted(migrated.keys() - {module}):
        theirs = migrated[other] or described(other)
        if shared := sorted(names & theirs):
            raise ConfigurationError(
                f"The module {module} would write into {', '.join(shared)}, which the module {other} has in "
                "this database already; nothing was changed. Give each module a database of its own, or ask "
                f"the author of {module} to rename the collection.",
                module=module,
                driver=DRIVER,
            )


def note_collections(ledger: Collection[Document], module: str, steps: Sequence[Step]) -> None:
    """Tell other modules which collections these are: settings may have given them other names."""
    names = sorted(item.name for item in whole_collections(steps))
    for step in steps:
        ledger.update_one({"_id": f"{module}:{step.name}"}, {"$addToSet": {COLLECTIONS: {"$each": names}}})
