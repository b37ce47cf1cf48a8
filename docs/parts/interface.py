"""The public names of the driver interface: what a driver and its tests may import, and what stays."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from docs.parts.tables import code, plain, table
from twinstore.errors import first_line

__all__ = ["MODULES", "interface_table", "public_names"]

MODULES: Final = (
    "twinstore",
    "twinstore.access",
    "twinstore.access_backend",
    "twinstore.backend",
    "twinstore.bulk",
    "twinstore.canonical",
    "twinstore.catalog",
    "twinstore.clock",
    "twinstore.documents",
    "twinstore.errors",
    "twinstore.failures",
    "twinstore.fields",
    "twinstore.forks",
    "twinstore.jsontext",
    "twinstore.ledger",
    "twinstore.migrations",
    "twinstore.module_storage",
    "twinstore.modules",
    "twinstore.options",
    "twinstore.paging",
    "twinstore.plugins",
    "twinstore.query",
    "twinstore.retrying",
    "twinstore.scope",
    "twinstore.shapes",
    "twinstore.storage",
    "twinstore.tenancy",
    "twinstore.testing",
)


def public_names() -> dict[str, tuple[str, ...]]:
    """Return the names of each module, sorted."""
    return {name: tuple(sorted(import_module(name).__all__)) for name in MODULES}


def interface_table() -> str:
    """Return the modules with their names."""
    rows = (
        (code(name), plain(first_line(import_module(name).__doc__)), ", ".join(map(code, names)))
        for name, names in public_names().items()
    )
    return table(("Module", "Is", "Names"), rows)
