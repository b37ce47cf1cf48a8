"""The public names: what a driver, a module and their tests may import, and what stays."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from docs.parts.tables import code, plain, table
from twinstore.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DRIVER_PARTS", "MODULE_PARTS", "driver_table", "module_table", "public_names"]

DRIVER_PARTS: Final = (
    "twinstore",
    "twinstore.access.defaults",
    "twinstore.access.errors",
    "twinstore.access.paging",
    "twinstore.access.protocol",
    "twinstore.access.query",
    "twinstore.access.retry",
    "twinstore.access.scope",
    "twinstore.access.unit_state",
    "twinstore.bulk.corruption",
    "twinstore.bulk.port",
    "twinstore.bulk.rows",
    "twinstore.bulk.unique_moves",
    "twinstore.catalog.conditions",
    "twinstore.catalog.entity",
    "twinstore.catalog.indexes",
    "twinstore.catalog.keys",
    "twinstore.catalog.row",
    "twinstore.catalog.tenancy",
    "twinstore.clock",
    "twinstore.documents",
    "twinstore.errors",
    "twinstore.ledger",
    "twinstore.migrations.migration",
    "twinstore.models.canonical",
    "twinstore.models.fields",
    "twinstore.models.json_text",
    "twinstore.models.shapes",
    "twinstore.observing",
    "twinstore.plugins.access_backend",
    "twinstore.plugins.backend",
    "twinstore.plugins.drivers",
    "twinstore.plugins.module_spec",
    "twinstore.plugins.modules",
    "twinstore.plugins.options",
    "twinstore.plugins.resources",
    "twinstore.plugins.settings",
    "twinstore.runtime.cancellation",
    "twinstore.runtime.forks",
    "twinstore.runtime.service_log",
    "twinstore.storage.module",
    "twinstore.storage.open",
    "twinstore.testing",
)


# Beside the classes for asyncio, which a command writes.
MODULE_PARTS: Final = (
    "twinstore",
    "twinstore.access.defaults",
    "twinstore.access.errors",
    "twinstore.access.paging",
    "twinstore.access.protocol",
    "twinstore.access.query",
    "twinstore.access.retry",
    "twinstore.access.scope",
    "twinstore.access.unit_state",
    "twinstore.bulk.corruption",
    "twinstore.bulk.port",
    "twinstore.bulk.rows",
    "twinstore.bulk.unique_moves",
    "twinstore.catalog.conditions",
    "twinstore.catalog.entity",
    "twinstore.catalog.indexes",
    "twinstore.catalog.keys",
    "twinstore.catalog.row",
    "twinstore.catalog.tenancy",
    "twinstore.clock",
    "twinstore.documents",
    "twinstore.errors",
    "twinstore.ledger",
    "twinstore.migrations.migration",
    "twinstore.models.canonical",
    "twinstore.models.fields",
    "twinstore.models.json_text",
    "twinstore.models.shapes",
    "twinstore.observing",
    "twinstore.plugins.access_backend",
    "twinstore.plugins.backend",
    "twinstore.plugins.drivers",
    "twinstore.plugins.module_spec",
    "twinstore.plugins.modules",
    "twinstore.plugins.options",
    "twinstore.plugins.resources",
    "twinstore.plugins.settings",
    "twinstore.runtime.cancellation",
    "twinstore.runtime.forks",
    "twinstore.runtime.service_log",
    "twinstore.storage.module",
    "twinstore.storage.open",
    "twinstore.testing",
)


def public_names(parts: Iterable[str] = DRIVER_PARTS) -> dict[str, tuple[str, ...]]:
    """Return the names of some parts of the library, sorted."""
    return {name: tuple(sorted(import_module(name).__all__)) for name in parts}


def driver_table() -> str:
    """Return what the author of a driver may import."""
    return _table(DRIVER_PARTS)


def module_table() -> str:
    """Return what the author of a module may import."""
    return _table(MODULE_PARTS)


def _table(parts: Iterable[str]) -> str:
    rows = (
        (code(name), plain(first_line(import_module(name).__doc__)), ", ".join(map(code, names)))
        for name, names in public_names(parts).items()
    )
    return table(("Module", "Is", "Names"), rows)
