"""How many statements each driver sends about each entity, as they are recorded."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from docs.parts.tables import code, table
from twinstore.plugins.statements import statements_of

if TYPE_CHECKING:
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["statement_table"]

STORES: Final = {"postgres": "PostgreSQL", "mongo": "MongoDB"}


def statement_table(spec: ModuleSpec[object]) -> str:
    """Return the numbers of statements by entity and driver."""
    counted = {store: Counter(item.entity for item in statements_of(spec, store)) for store in STORES}
    rows = [
        (code(entity.name), *(str(counted[store][entity.name]) for store in STORES))
        for entity in spec.catalog.entities
    ]
    return table(("Entity", *STORES.values()), rows)
