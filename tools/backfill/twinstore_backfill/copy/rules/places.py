"""Places in stored documents: where a path leads, through objects, lists and names of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, TypeAlias, cast

from twinstore_backfill.rules.model import ANY

Path: TypeAlias = tuple[str, ...]
Members: TypeAlias = dict[str, object]
Slot: TypeAlias = tuple[Members, str] | tuple[list[object], int]
"""What holds a value, and under which name or number."""


class Missing(Enum):
    """What stands for no value."""

    ABSENT = "absent"


ABSENT: Final = Missing.ABSENT
Converter: TypeAlias = Callable[[object], object]
"""Returns what replaces a value, the same object where it stays, ``ABSENT`` where it is removed."""


def slots(document: Members, path: Path) -> Sequence[Slot]:
    """Return the places at a path that hold a value; behind a list, each of its items."""
    found: list[Slot] = []
    for inner in objects(document, path[:-1]):
        for name in names(inner, path[-1]):
            if isinstance(inner[name], list):
                found += _each(inner, name)
            else:
                found.append((inner, name))
    return found


def holders(document: Members, path: Path) -> Iterator[tuple[Members, str]]:
    """Yield the objects that have the last name of a path, each with that name."""
    *heads, last = path
    for inner in objects(document, tuple(heads)):
        for name in names(inner, last):
            yield inner, name


def objects(value: object, path: Path) -> Iterable[Members]:
    """Return the objects at a path; a list stands for each of its items."""
    # Mostly there is one, and rules look for it in each document.
    while path and type(value) is dict and path[0] != ANY:
        members = cast("Members", value)
        if path[0] not in members:
            return ()
        value, path = members[path[0]], path[1:]
    return (cast("Members", value),) if not path and type(value) is dict else _objects(value, path)


def _objects(value: object, path: Path) -> Iterator[Members]:
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from objects(item, path)
    elif type(value) is dict:
        members = cast("Members", value)
        if not path:
            yield members
            return
        for name in names(members, path[0]):
            yield from objects(members[name], path[1:])


def names(members: Members, name: str) -> tuple[str, ...]:
    """Return the names of an object that a name of a path stands for."""
    if name == ANY:
        return tuple(members)
    return (name,) if name in members else ()


def _each(*slot: object) -> Iterator[Slot]:
    """Yield a place, and behind it the places of the items if a list is there."""
    holder, place = cast("tuple[list[object], int]", slot)
    yield holder, place
    value = holder[place]
    if isinstance(value, list):
        for number in range(len(cast("list[object]", value))):
            yield from _each(value, number)


def replace_each(document: Members, path: Path, convert: Converter) -> bool:
    """Replace the values at a path in place; return whether one changed."""
    has_changed = False
    # From the end, so that a removed item moves no place that is still to come, and lists follow their items.
    for holder, place in reversed(slots(document, path)):
        before = cast("list[object]", holder)[cast("int", place)]
        after = convert(before)
        if after is before:
            continue
        has_changed = True
        if after is ABSENT:
            del cast("list[object]", holder)[cast("int", place)]
        else:
            cast("list[object]", holder)[cast("int", place)] = after
    return has_changed
