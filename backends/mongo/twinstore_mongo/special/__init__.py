"""What this driver does for one module alone, one file for each; none is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from twinstore_mongo.access import Special
    from twinstore_mongo.steps import CarryOver

__all__ = ["carry_overs_of", "specials_of"]


def carry_overs_of(module: str) -> Mapping[str, tuple[CarryOver, ...]]:
    """Return what the steps of a module bring over from an earlier version, by name of the step.

    None where the module has no file, or the file none of them.
    """
    steps: Mapping[str, tuple[CarryOver, ...]] = getattr(_file_of(module), "CARRY_OVERS", {})
    return steps


def specials_of(module: str) -> Mapping[str, Special]:
    """Return the statements for the hot operations of a module, by operation; none where it has no file."""
    operations: Mapping[str, Special] = getattr(_file_of(module), "OPERATIONS", {})
    return operations


def _file_of(module: str) -> ModuleType | None:
    name = f"{__name__}.{module}"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None
