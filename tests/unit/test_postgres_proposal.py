from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.modules import built_modules, module_spec
from twinstore_postgres.mapping.columns import column_name, columns_of
from twinstore_postgres.schema.comparison import wanted_schema
from twinstore_postgres.schema.proposal import contradictions, proposed_migration

if TYPE_CHECKING:
    from twinstore.plugins.module_spec import ModuleSpec

every_module = pytest.mark.parametrize(
    "module", [LEDGER_MODULE, *map(module_spec, built_modules())], ids=lambda module: module.name
)


@every_module
def test_the_shipped_migrations_make_what_is_described(module: ModuleSpec[object]) -> None:
    shipped = wanted_schema(module)
    assert proposed_migration(module.catalog, shipped) is None
    assert list(contradictions(module.catalog, shipped)) == []


@every_module
def test_what_is_not_shipped_yet_is_proposed(module: ModuleSpec[object], *, long_form: bool) -> None:
    shipped = wanted_schema(module)
    for number, entity in enumerate(module.catalog.entities):
        # Otherwise a few columns of each entity, and of the next one others.
        for column in columns_of(entity)[0 if long_form else number % 4 :: 1 if long_form else 4]:
            line = f"column {entity.name}.{column.name}: "
            rest = [item for item in shipped if not item.startswith(line)]
            assert len(rest) == len(shipped) - 1
            proposal = proposed_migration(module.catalog, rest) or ""
            assert proposal.count("ADD COLUMN") == 1
            assert f".{entity.name} ADD COLUMN IF NOT EXISTS {column.name} " in proposal


@every_module
def test_what_is_shipped_otherwise_is_named(module: ModuleSpec[object]) -> None:
    entity = module.catalog.entities[0]
    shipped = [
        line.replace(" text ", " integer ") if line.startswith(f"column {entity.name}.") else line
        for line in wanted_schema(module)
    ]
    found = list(contradictions(module.catalog, [*shipped, f"column {entity.name}.extra: integer"]))
    assert f"The description of {entity.name} does not know the column extra." in found
    key = column_name(entity, entity.key[0])
    assert any(text.startswith(f"The column {key} of {entity.name} is integer") for text in found)
