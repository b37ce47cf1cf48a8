"""What an index is and does, whatever its name: when two are equal, and which remove or refuse rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["AGE", "acts", "is_shorter", "shape"]

AGE: Final = "expireAfterSeconds"
# What an index does to rows beside finding them.
ACTING: Final = frozenset({"unique", "prepareUnique", AGE})
# Beside key, uniqueness, filter and age: what an index of ours never has.
UNUSUAL: Final = ("sparse", "collation", "hidden", "prepareUnique")


def shape(key: list[tuple[str, Any]], options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what makes two indexes equal; the age at which rows expire comes last."""
    partial = options.get("partialFilterExpression") or {}
    # An index that was made in a shell has its directions as floating-point numbers.
    directions = [
        (name, int(direction) if isinstance(direction, float) else direction) for name, direction in key
    ]
    unusual = {name: options[name] for name in UNUSUAL if options.get(name)}
    age_limit = options.get(AGE)
    return (
        directions,
        bool(options.get("unique")),
        dict(partial),
        unusual,
        None if age_limit is None else int(age_limit),
    )


def acts(index: Mapping[str, Any]) -> bool:
    """Whether an index removes rows or refuses some.

    One of texts, places or hashes refuses those whose field is none, such as a list, or a language that it
    does not know.
    """
    return not ACTING.isdisjoint(index) or any(isinstance(direction, str) for _, direction in index["key"])


def is_shorter(wanted: int, real: int | None) -> bool:
    """Whether an age in seconds lets the server remove what another one, or none, leaves alone."""
    return real is None or wanted < real
