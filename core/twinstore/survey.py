"""What a store has of one entity, for whoever only reads it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a store has of one entity, for whoever only reads it.

    Attributes:
        entity: its name.
        present: whether its collection or table exists; an absent one reads as empty.
        warnings: what makes reading slow, each a sentence that names the cost.
    """

    entity: str
    present: bool = True
    warnings: tuple[str, ...] = ()
