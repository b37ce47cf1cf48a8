"""Where two documents differ: the paths, never the values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.stored import unmarked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.jsontext import JsonValue

__all__ = ["MISSING", "Difference", "differences", "differing_paths", "kind", "member"]

PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
MISSING: Final = object()


def differing_paths(source: JsonValue, target: JsonValue) -> list[str]:
    """Return one text per place at which two JSON values differ, in order of the keys.

    A text is a path and, where one side has nothing there or another type, what that is.
    """
    return [_described(item) for item in differences(source, target)]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place at which two JSON values differ, with what each side has there."""

    path: str
    source: object
    target: object


def differences(source: JsonValue, target: JsonValue) -> Iterator[Difference]:
    """Yield the places at which two JSON values differ, in order of the keys."""
    yield from _differences("", source, target)


def _described(item: Difference) -> str:
    if item.source is MISSING:
        return f"{item.path} (only in target)"
    if item.target is MISSING:
        return f"{item.path} (only in source)"
    if kind(item.source) != kind(item.target):
        return f"{item.path} ({kind(item.source)} in source, {kind(item.target)} in target)"
    return item.path


def _differences(path: str, source: object, target: object) -> Iterator[Difference]:
    if isinstance(source, dict) and isinstance(target, dict) and not (unmarked(source) or unmarked(target)):
        for name in sorted(source.keys() | target.keys()):
            yield from _differences(member(path, name), source.get(name, MISSING), target.get(name, MISSING))
    elif isinstance(source, list) and isinstance(target, list):
        for index in range(max(len(source), len(target))):
            yield from _differences(f"{path}[{index}]", _item(source, index), _item(target, index))
    elif kind(source) != kind(target) or source != target:  # what stands under a mark is one value
        yield Difference(path, source, target)


def member(path: str, name: str) -> str:
    """Return the path of a member of an object."""
    if PLAIN_NAME.fullmatch(name):
        return f"{path}.{name}" if path else name
    # Keys of free maps are chosen by users, and may look like a path of their own.
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'{path}["{quoted}"]'


def _item(values: list[object], index: int) -> object:
    return values[index] if index < len(values) else MISSING


def kind(value: object) -> str:
    """Return the JSON type of a value."""
    if value is MISSING:
        return "nothing"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, dict) else "array"
