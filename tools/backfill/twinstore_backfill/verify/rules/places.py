"""Places in a stored document: every value at a path, through lists and for every name of a map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from twinstore_backfill.rules.model import ANY

Holder: TypeAlias = dict[str, object]
Act: TypeAlias = Callable[[object], object]
"""Returns what replaces a value, the same object for no change, :data:`GONE` to remove it."""

GONE: Final = object()


def holders(value: object, path: Sequence[str]) -> Iterable[Holder]:
    """Return every object at a path; the members of lists on the way, and at its end, are looked at."""
    # Nearly always one object, and every rule looks for it in every document.
    for number, name in enumerate(path):
        if type(value) is not dict or name == ANY:
            return _spread(value, path[number:])
        if name not in value:
            return ()
        value = value[name]
    return (value,) if type(value) is dict else _spread(value, ())


def _spread(value: object, path: Sequence[str]) -> Iterator[Holder]:
    if isinstance(value, list):
        for item in value:
            yield from holders(item, path)
    elif isinstance(value, dict):
        if not path:
            yield value
            return
        for name in names_in(value, path[0]):
            yield from holders(value[name], path[1:])


def names_in(holder: Holder, name: str) -> list[str]:
    """Return the names that a step of a path means in an object."""
    if name == ANY:
        return list(holder)
    return [name] if name in holder else []


def replace_at(document: Holder, path: Sequence[str], act: Act) -> bool:
    """Replace every value at a path, the members of a list one by one; return whether anything changed."""
    return replace_whole(document, path, lambda value: each(value, act))


def replace_whole(document: Holder, path: Sequence[str], act: Act) -> bool:
    """Replace every value at a path, a list as a whole; return whether anything changed."""
    *way, last = path
    changed = False
    for holder in holders(document, way):
        for name in names_in(holder, last):
            found = act(holder[name])
            if found is holder[name]:
                continue
            changed = True
            if found is GONE:
                del holder[name]
            else:
                holder[name] = found
    return changed


def each(value: object, act: Act) -> object:
    """Return a value after an act, of a list one with every member after it."""
    if not isinstance(value, list):
        return act(value)
    return same_unless_changed(value, [each(item, act) for item in value])


def same_unless_changed(before: list[object], after: list[object]) -> list[object]:
    """Return the members that are left, in the given list if all are the same."""
    if all(new is old for new, old in zip(after, before, strict=True)):
        return before
    return [item for item in after if item is not GONE]


def fill_at(document: Holder, path: Sequence[str], make: Callable[[], object], *, null: bool) -> bool:
    """Store a value where a path has none, with ``null`` also where it has a null.

    An object on the way that is absent stays absent.
    """
    *way, last = path
    changed = False
    for holder in holders(document, way):
        names = list(holder) if last == ANY else [last]
        for name in names:
            if name not in holder or (null and holder[name] is None):
                holder[name] = make()
                changed = True
    return changed


def values_at(value: object, path: Sequence[str]) -> Iterator[object]:
    """Yield every value at a path, the members of a list at its end one by one."""
    if isinstance(value, list):
        for item in value:
            yield from values_at(item, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        for name in names_in(value, path[0]):
            yield from values_at(value[name], path[1:])
