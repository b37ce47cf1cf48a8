"""What this driver does for one module alone; none of it is needed for a right answer.

The file of a module has its name. Further ones, where one would be too long, begin with it:
``<module>_<words>``.
A file may have ``OPERATIONS``, statements of its own for hot operations.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from twinstore_mongo.access.access import Special

__all__ = ["specials_of"]


def specials_of(module: str) -> Mapping[str, Special]:
    """Return the statements of a module by operation; none where it has no file."""
    operations: dict[str, Special] = {}
    for file in _files_of(module):
        operations |= getattr(file, "OPERATIONS", {})
    return operations


def _files_of(module: str) -> Iterator[ModuleType]:
    for found in iter_modules(__path__):
        if found.name == module or found.name.startswith(f"{module}_"):
            yield import_module(f"{__name__}.{found.name}")
