"""What this driver does for one module alone, one file for each; none is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_mongo.steps import CarryOver

__all__ = ["carry_overs_of"]


def carry_overs_of(module: str) -> Mapping[str, tuple[CarryOver, ...]]:
    """Return what the steps of a module bring over from an earlier version, by name of the step.

    None where the module has no file.
    """
    name = f"{__name__}.{module}"
    try:
        steps: Mapping[str, tuple[CarryOver, ...]] = import_module(name).CARRY_OVERS
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return {}
    return steps
