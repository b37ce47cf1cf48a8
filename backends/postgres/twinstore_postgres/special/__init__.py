"""Statements of this driver for the hot operations of a module, one file for each; none is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_postgres.access import Special

__all__ = ["specials_of"]


def specials_of(module: str) -> Mapping[str, Special]:
    """Return the statements of a module by operation; none where it has no file."""
    name = f"{__name__}.{module}"
    try:
        operations: Mapping[str, Special] = import_module(name).OPERATIONS
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return {}
    return operations
