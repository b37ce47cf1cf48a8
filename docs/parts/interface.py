"""The public names: what a driver, a module and their tests may import, and what stays."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from docs.parts.tables import code, plain, table
from twinstore import driver, module
from twinstore.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DRIVER_PARTS", "MODULE_PARTS", "driver_table", "module_table", "public_names"]

KIT: Final = ("twinstore.testing", "twinstore.testing.examples", "twinstore.testing.instants")
BESIDE: Final = ("twinstore", "twinstore.errors", "twinstore.observing")
DRIVER_PARTS: Final = tuple(sorted((*BESIDE, KIT[0], *driver.PARTS)))
MODULE_PARTS: Final = tuple(sorted((*BESIDE, *KIT, *module.PARTS)))


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
