"""Where two documents differ: the paths, never the values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.jsontext import JsonValue

__all__ = ["differing_paths", "member"]

PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
MISSING: Final = object()


def differing_paths(source: JsonValue, target: JsonValue) -> list[str]:
    """Return one text per place at which two JSON values differ, in order of the keys.

    A text is a path and, where one side has nothing there or another type, what that is.
    """
    return list(_differences("", source, target))


def _differences(path: str, source: object, target: object) -> Iterator[str]:
    if isinstance(source, dict) and isinstance(target, dict):
        for name in sorted(source.keys() | target.keys()):
            yield from _differences(member(path, name), source.get(name, MISSING), target.get(name, MISSING))
    elif isinstance(source, list) and isinstance(target, list):
        for index in range(max(len(source), len(target))):
            yield from _differences(f"{path}[{index}]", _item(source, index), _item(target, index))
    elif source is MISSING:
        yield f"{path} (only in target)"
    elif target is MISSING:
        yield f"{path} (only in source)"
    elif kind(source) != kind(target):
        yield f"{path} ({kind(source)} in source, {kind(target)} in target)"
    elif source != target:
        yield path


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
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, dict) else "array"
