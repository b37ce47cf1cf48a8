"""Who has which collection: each belongs to one entity of one module.

On PostgreSQL every module has its own schema. Here two modules with a collection of the same name would write
into one collection, under the validator of the module that was migrated last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError
from twinstore_mongo.client.collection_names import described
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.schema.steps import whole_collections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pymongo.collection import Collection

    from twinstore_mongo.client.types import Document
    from twinstore_mongo.schema.steps import Step

# The field of a row of the ledger of migrations that names the collections of its module.
COLLECTIONS: Final = "collections"


def check_other_modules(ledger: Collection[Document], module: str, steps: Sequence[Step]) -> None:
    """Refuse to migrate into collections that another module has in this database.

    Args:
        ledger: says which modules were migrated here. One that is not installed cannot be asked.
        module: the module to migrate.
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
                "this database already; nothing was changed. Give each module its own database, or ask "
                f"the author of {module} to rename the collection.",
                module=module,
                driver=DRIVER,
            )


def record_collections(ledger: Collection[Document], module: str, steps: Sequence[Step]) -> None:
    """Record for other modules which collections these are: settings may have renamed them."""
    names = sorted(item.name for item in whole_collections(steps))
    for step in steps:
        ledger.update_one({"_id": f"{module}:{step.name}"}, {"$addToSet": {COLLECTIONS: {"$each": names}}})
