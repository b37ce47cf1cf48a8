"""What becomes of the rows of an entity in a copy, as its description says it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["LifeInCopy", "Release"]


class LifeInCopy(Enum):
    """What a copy does with the rows of an entity."""

    COPIED = "copied"
    LEFT_OUT = "left out and counted on both sides: the rows are registered again at run time"
    RELEASED = "copied as released, with the higher of the two fences"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """How a row that somebody may hold is copied, so that nobody holds the copy.

    A comparison looks at key, tenant and fence alone, because the rest belongs to whoever held it last; the
    fence is the one value in which a target may be ahead.

    Attributes:
        end: the instant until which it is held; the copy has ``beginning`` there.
        beginning: the instant from which it was held.
        fence: the integer that grows with every new holder; of two stores the higher one counts.
    """

    end: str
    beginning: str
    fence: str
