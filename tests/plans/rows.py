"""The rows with which each module is filled before its statements are explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.plans.filling import FEW, MAKERS, MANY, Numbers
from tests.plans.ledger_rows import LEDGER_ROWS
from tests.plans.module_rows import MODULE_ROWS
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.modules import module_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog.entity import Entity, Module
    from twinstore.catalog.row import Row

__all__ = ["SPECS", "rows_of", "tenants_of"]

SPECS: Final = (*map(module_spec, ("scheduler", "tracking", "taskrunner")), LEDGER_MODULE)


def rows_of(entity: Entity, count: int) -> Iterator[Row]:
    """Yield so many rows of an entity; those that belong to another row come behind it."""
    make = (LEDGER_ROWS if entity.module == LEDGER_MODULE.name else MAKERS | MODULE_ROWS)[entity.name]
    return (make(Numbers(number, count)) for number in range(count))


def tenants_of(module: Module) -> tuple[str, ...]:
    """Return whose rows are asked for: where a module has no tenants, any name will do."""
    owned = any(entity.tenant_field is not None for entity in module.entities)
    return (MANY, FEW) if owned else (MANY,)
