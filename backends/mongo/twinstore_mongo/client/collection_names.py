"""Which names of collections a module may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError
from twinstore.plugins.modules import module_spec
from twinstore_mongo.client.errors import DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping


# What the server keeps for itself, and what this library does.
RESERVED: Final = ("system.", "_")
# Where the first release kept the ledger of copies next to the data.
FIRST_LEDGER: Final = ("backfill_jobs", "backfill_ranges")
# So begin all collections of a ledger: of a module without such a name it is not imported.
LEDGER_PREFIXES: Final = ("backfill_", "twinstore_")


def check_collections(names: Mapping[str, str]) -> None:
    """Refuse names of collections that the server does not accept, or under which rows would mix.

    Args:
        names: the collection of each entity of a module, by the name of the entity.

    Raises:
        ConfigurationError: one of them is not a valid name, or two entities have the same.
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
                "not mix; give each its own name.",
                driver=DRIVER,
            )


def problem_of(name: str) -> str | None:
    """Return what is wrong with the name of a collection."""
    if not name or name != name.strip():
        return "it is empty, or begins or ends with white space"
    if "$" in name or "\0" in name or ".." in f".{name}.":
        return "it has a dollar sign, a null character, or nothing before, after or between its dots"
    if name.startswith(RESERVED):
        return f"names that start with {' or '.join(map(repr, RESERVED))} are taken"
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
    if any(name.startswith(LEDGER_PREFIXES) for name in owned):
        taken |= ledger_collections(module)
    for other, theirs in sorted(taken.items()):
        if shared := sorted(owned & theirs):
            raise ConfigurationError(
                f"The module {module} would write into {', '.join(shared)}, which the {other} has in this "
                "database. Correct the setting that names it, or give each module its own database.",
                module=module,
                driver=DRIVER,
            )
    others[module] = owned


def ledger_collections(module: str) -> dict[str, frozenset[str]]:
    """Return the collections of the ledger of copies as those of another module; none if it is opened."""
    from twinstore.ledger.catalog import LEDGER  # noqa: PLC0415  # for names that begin so only

    if module == LEDGER.name:
        return {}
    return {
        "ledger of copies": frozenset({*(entity.collection for entity in LEDGER.entities), *FIRST_LEDGER})
    }


def described(module: str) -> set[str]:
    """Return the collections that a module has where no setting names others."""
    try:
        return {entity.collection for entity in module_spec(module).catalog.entities}
    except ConfigurationError:  # not installed here, or no module: the lease lies in the ledger too
        return set()
