"""Statements of this driver for the hot operations of a module; none is needed.

The file of a module has its name. Further ones, where one would be too long, begin with it:
``<module>_<words>``.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_postgres.access.access import Special

__all__ = ["specials_of"]


def specials_of(module: str) -> Mapping[str, Special]:
    """Return the statements of a module by operation; none where it has no file."""
    operations: dict[str, Special] = {}
    for found in iter_modules(__path__):
        if found.name == module or found.name.startswith(f"{module}_"):
            operations |= import_module(f"{__name__}.{found.name}").OPERATIONS
    return operations
