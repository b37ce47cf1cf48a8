"""Which member of a list became which one of another, where a copy brought them in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.stored import unmarked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["paired"]

# Each member is compared with each other one.
MOST: Final = 200


def paired(given: Sequence[object], stored: Sequence[object]) -> list[int] | None:
    """Return for each member of a list the place of the one that it became, by what they have in common.

    Args:
        given: the members of the source.
        stored: as many members, in another order and perhaps in another spelling.

    Returns:
        the places; ``None`` where each stands where it stood, or where there are too many to tell.
    """
    if len(given) > MOST:
        return None
    left = {place: set(_leaves("", member)) for place, member in enumerate(stored)}
    places: list[int] = []
    for number, member in enumerate(given):
        wanted = set(_leaves("", member))
        # Of equally good ones that which stands at its place, then the first.
        best = max(left, key=lambda place: (len(wanted & left[place]), place == number, -place))
        places.append(best)
        del left[best]
    return None if places == list(range(len(given))) else places


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the plain values of a member with their places; texts without case and outer blanks."""
    if isinstance(value, dict):
        mark = unmarked(value)
        if mark is not None:
            yield from _leaves(path, mark[1])
            return
        for name, item in value.items():
            yield from _leaves(f"{path}.{name.strip().casefold()}", item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(f"{path}[]", item)
    else:
        yield path, str(value).strip().casefold()
