"""Objects of settings files in which no key is repeated."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["MalformedTextError", "RepeatedKeyError", "unique"]


class RepeatedKeyError(ValueError):
    """A key occurs twice in one object."""


class MalformedTextError(ValueError):
    """A text is not of its format.

    Attributes:
        place: where the parser stopped, as the end of a sentence; empty where it does not say.
    """

    def __init__(self, place: str) -> None:
        """Take the place."""
        super().__init__(place)
        self.place = place


def unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Return an object.

    Raises:
        RepeatedKeyError: two keys are the same, as keys ignore case.
    """
    found: dict[str, object] = {}
    spellings: dict[str, str] = {}
    for key, value in pairs:
        first = spellings.setdefault(key.casefold(), key)
        if key in found or first != key:
            also = "" if first == key else f" (also spelled {first!r}; keys ignore case)"
            raise RepeatedKeyError(f"key {key!r} occurs twice in one object{also}")
        found[key] = value
    return found
