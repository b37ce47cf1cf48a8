"""The names of the cases of the entities."""

from __future__ import annotations

from typing import Final

__all__ = ["BACK", "STANDARD", "THERE", "VERIFY", "WAYS", "case_name", "stage_name"]

THERE, VERIFY, BACK = "copy", "verify", "copy back"
WAYS: Final = (THERE, VERIFY, BACK)
READ, PACKED = "read", "read, checked and packed"
# All others are compared with it, per byte.
STANDARD: Final = "runs"


def case_name(entity: str, way: str) -> str:
    """Return the name of the case of an entity."""
    return f"{entity}, {way}"


def stage_name(entity: str, way: str, *, packed: bool) -> str:
    """Return the name of the case of a stage of a copy, there or back."""
    return case_name(entity, f"{way}: {PACKED if packed else READ}")
