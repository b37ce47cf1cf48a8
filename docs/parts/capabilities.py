"""What drivers can do."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from docs.parts.tables import attributes, code, table
from twinstore.plugins.backend import CAPABILITY_NAMES, Capabilities

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["capability_table", "matrix"]

VALUES = ("time_precision_ms", "largest_document_bytes")


def capability_table() -> str:
    """Return the capabilities with their meanings."""
    meanings = attributes(Capabilities)
    return table(("Capability", "Means"), ((code(name), meanings[name]) for name in _compared()))


def matrix(backends: Mapping[str, Capabilities]) -> str:
    """Return what each backend declares, one column each."""
    rows = ((code(name), *(_shown(item, name) for item in backends.values())) for name in _compared())
    return table(("Capability", *backends), rows)


def _compared() -> tuple[str, ...]:
    names = (field.name for field in fields(Capabilities))
    return tuple(name for name in names if name in CAPABILITY_NAMES or name in VALUES)


def _shown(item: Capabilities, name: str) -> str:
    match getattr(item, name):
        case True:
            return "yes"
        case False:
            return "no"
        case None:
            return "no limit"
        case value:
            return f"{value:,}"
