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
    "twinstore.access",
    "twinstore.access_backend",
    "twinstore.backend",
    "twinstore.bulk",
    "twinstore.cancelling",
    "twinstore.canonical",
    "twinstore.catalog",
    "twinstore.clock",
    "twinstore.documents",
    "twinstore.errors",
    "twinstore.failures",
    "twinstore.fields",
    "twinstore.forks",
    "twinstore.jsondates",
    "twinstore.jsontext",
    "twinstore.ledger",
    "twinstore.migrations",
    "twinstore.module_storage",
    "twinstore.modules",
    "twinstore.moving",
    "twinstore.observing",
    "twinstore.options",
    "twinstore.paging",
    "twinstore.planting",
    "twinstore.plugins",
    "twinstore.query",
    "twinstore.retrying",
    "twinstore.scope",
    "twinstore.shapes",
    "twinstore.storage",
    "twinstore.stored",
    "twinstore.tenancy",
    "twinstore.testing",
)


# Beside the classes for asyncio, which a command writes.
MODULE_PARTS: Final = (
    "twinstore",
    "twinstore.access",
    "twinstore.canonical",
    "twinstore.catalog",
    "twinstore.checks",
    "twinstore.clock",
    "twinstore.errors",
    "twinstore.fields",
    "twinstore.jsondates",
    "twinstore.modelrules",
    "twinstore.module_storage",
    "twinstore.modules",
    "twinstore.observing",
    "twinstore.options",
    "twinstore.paging",
    "twinstore.query",
    "twinstore.repository",
    "twinstore.retrying",
    "twinstore.scope",
    "twinstore.shapes",
    "twinstore.tenancy",
    "twinstore.testing",
    "twinstore.testing.examples",
    "twinstore.testing.instants",
    "twinstore.variants",
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
