"""Modules that share a database: a collection belongs to one of them.

On PostgreSQL every module has a schema of its own. Here two modules with a collection of one name would write
into the same one, under the validator of whichever was migrated last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.errors import ConfigurationError
from twinstore.modules import module_spec
from twinstore_mongo.errors import DRIVER

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pymongo.collection import Collection

    from twinstore_mongo.connection import Document

__all__ = ["check_other_modules"]


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
