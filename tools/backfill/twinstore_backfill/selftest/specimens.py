"""Rows that show every field: the user's own, with what they lack filled and what they may lack left out.

A field that no row has cannot be changed. So of one row of each entity a few variants are made in the form
that the service itself would take; whatever its model refuses or changes is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from unicodedata import normalize

import orjson
import pydantic

from twinstore import jsontext
from twinstore.jsondates import DATE
from twinstore.shapes import Kind, ValueShape, shapes_of

if TYPE_CHECKING:
    from twinstore.bulk import Record
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity

__all__ = ["variants"]

Tree = dict[str, Any]
INSTANT: Final = datetime(2025, 10, 26, 14, 5, 0, 123_000, tzinfo=UTC)
COMPOSED: Final = "é"
# What the texts of most models are, from the freest to the strictest.
TEXTS: Final = ("x", "UTC", "0 * * * *", "2025-10-26", f"sha256:{'0' * 64}", "CVE-2025-0001", "pkg:pypi/x@1")
DEEP: Final = 6
# The name of a date in free JSON, of which the rows of a user may have none.
DATED: Final = "zzat"
INSTANT_TEXT: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00")


def variants(entity: Entity, record: Record) -> Iterator[Record]:
    """Yield variants of a readable row under its own key: filled, bare, and with every marker set."""
    model, kept = cast("CanonicalModel", record.model), identifying(entity)
    filled = Filling(type(model), model, kept)
    filled.fill()
    yield replace(record, model=filled.model)
    bare = Filling(type(model), model, kept)
    bare.strip()
    yield replace(record, model=bare.model)
    missing = [marker for marker in entity.storage if marker.name not in record.storage]
    if missing:
        marked = {marker.name: MARKS[marker.kind] for marker in missing}
        storage = {**record.storage, **marked}
        yield replace(record, model=filled.model, storage=storage)
        # What is marked, as deleted for example, is often required to be switched off.
        filled.switch_off()
        yield replace(record, model=filled.model, storage=storage)


MARKS: Final[Mapping[Kind, object]] = {Kind.TEXT: "marked", Kind.INTEGER: 1, Kind.INSTANT: INSTANT}


def identifying(entity: Entity) -> frozenset[str]:
    """Return the fields by which a row is known to others; they stay as they are."""
    parent = None if entity.parent is None else entity.parent.field
    return frozenset({*entity.key, entity.tenant_field or "", parent or ""})


class Filling:
    """A model that is changed step by step; a step that its class refuses, or changes itself, is undone."""

    def __init__(self, cls: type[CanonicalModel], model: CanonicalModel, kept: frozenset[str]) -> None:
        """Take the class, the model to begin with, and the fields at its top that stay as they are."""
        self._class = cls
        self._kept = kept
        self.model = model
        self._tree: Tree = tree_of(model)
        texts = [value for value in self._tree.values() if isinstance(value, str)]
        # The latest instant of the row: few may lie before the others.
        instants = [text for text in texts if INSTANT_TEXT.fullmatch(text)]
        self._known = (max(instants, default=jsontext.format_timestamp(INSTANT)), *texts)

    def fill(self) -> None:
        """Give every field a value, every text a composed character and every list a second item."""
        self._fill_object(self._class, ())

    def strip(self) -> None:
        """Leave out what may be left out."""
        found = (path for path in optional_paths(self._class, self._tree, ()) if path[0] not in self._kept)
        for path in sorted(found, key=len, reverse=True):
            self._try(path[:-1], partial(remove, name=path[-1]))

    def switch_off(self) -> None:
        """Switch off every flag at the top."""
        for shape in shapes_of(self._class):
            if shape.value.kind is Kind.FLAG:
                self._try((), partial(assign, name=shape.wire, value=False))

    def _fill_object(self, cls: type[CanonicalModel], path: tuple[Any, ...]) -> None:
        for shape in shapes_of(cls):
            here = (*path, shape.wire)
            if not path and shape.wire in self._kept:
                continue
            if shape.wire not in self._at(path):
                values = list(values_of(shape.value, len(path), self._known))
                if not self._first_of(path, shape.wire, values):
                    self._together(cls, path, {shape.wire: values[0]} if values else {})
            if shape.wire in self._at(path):
                self._fill_value(shape.value, here)

    def _fill_value(self, shape: ValueShape, path: tuple[Any, ...]) -> None:
        value: object = self._at(path)
        if shape.kind is Kind.OBJECT:
            self._fill_object(shape.model, path)
        elif shape.kind is Kind.TEXT and isinstance(value, str) and normalize("NFD", value) == value:
            self._first_of(path[:-1], path[-1], (f"{value}{COMPOSED}",))
        elif shape.kind is Kind.MAP and isinstance(value, dict):
            self._fill_map(shape, path)
        elif shape.kind is Kind.LIST and isinstance(value, list):
            self._fill_list(shape, path)

    def _fill_map(self, shape: ValueShape, path: tuple[Any, ...]) -> None:
        if not self._at(path):
            self._first_of(
                path[:-1], path[-1], ({"k": item} for item in items_of(shape, len(path), self._known))
            )
        if shape.item is None:
            self._first_of(path, DATED, ({DATE: self._known[0]},))
        name = next(iter(self._at(path)), None)
        if name is not None and shape.item is not None:
            self._fill_value(shape.item, (*path, name))

    def _fill_list(self, shape: ValueShape, path: tuple[Any, ...]) -> None:
        if not self._at(path):
            self._first_of(path[:-1], path[-1], ([item] for item in items_of(shape, len(path), self._known)))
        if self._at(path) and shape.item is not None:
            self._fill_value(shape.item, (*path, 0))
        items = self._at(path)
        if len(items) == 1:
            self._first_of(path[:-1], path[-1], ([items[0], other] for other in others(items[0])))

    def _at(self, path: tuple[Any, ...]) -> Any:  # noqa: ANN401  # any part of a wire form
        found: Any = self._tree
        for step in path:
            found = found[step]
        return found

    def _first_of(self, path: tuple[Any, ...], name: Any, values: Any) -> bool:  # noqa: ANN401  # as above
        return any(self._try(path, partial(assign, name=name, value=value)) for value in values)

    def _together(self, cls: type[CanonicalModel], path: tuple[Any, ...], values: Tree) -> None:
        """Put a value where it may stand in one state only: together with that, and with absent instants."""
        siblings = [shape for shape in shapes_of(cls) if path or shape.wire not in self._kept]
        absent = [shape.wire for shape in siblings if shape.value.kind is Kind.INSTANT and shape.optional]
        instants = {name: self._known[0] for name in absent if name not in self._at(path)}
        for state in siblings:
            if state.value.kind in {Kind.NAMED, Kind.NUMBERED}:
                for item in state.value.members:
                    for more in ({}, instants):
                        given = {**more, **values, state.wire: item.value}
                        if values and self._try(path, partial(update, values=given)):
                            return

    def _try(self, path: tuple[Any, ...], change: Callable[[Any], object]) -> bool:
        """Change a part of the tree if the class takes it as it is."""
        before = self._tree
        self._tree = deepcopy(before)
        change(self._at(path))
        try:
            model = self._class.model_validate(self._tree)
        except pydantic.ValidationError:
            self._tree = before
            return False
        wire = tree_of(model)
        # The class may add what follows, and must not take back or alter what was given.
        taken = holds(wire, self._tree) and wire != before
        self._tree = wire if taken else before
        self.model = model if taken else self.model
        return taken


def assign(container: Any, *, name: Any, value: object) -> None:  # noqa: ANN401  # any part of a wire form
    """Put a value into an object or a list."""
    container[name] = value


def update(container: Any, *, values: Tree) -> None:  # noqa: ANN401  # as above
    """Put some values into an object."""
    container.update(values)


def remove(container: Any, *, name: Any) -> None:  # noqa: ANN401  # as above
    """Take a value out of an object."""
    del container[name]


def tree_of(model: CanonicalModel) -> Tree:
    """Return the wire form of a model as JSON has it."""
    tree: Tree = orjson.loads(jsontext.dumps(model.wire()))
    return tree


def holds(wire: object, given: object) -> bool:
    """Whether a wire form has everything that was given, and perhaps more names."""
    if isinstance(wire, dict) and isinstance(given, dict):
        return all(name in wire and holds(wire[name], value) for name, value in given.items())
    if isinstance(wire, list) and isinstance(given, list):
        return len(wire) == len(given) and all(map(holds, wire, given))
    return wire == given


def values_of(shape: ValueShape, depth: int, known: Sequence[str]) -> Iterator[object]:
    """Yield values that a place may take.

    Args:
        shape: what the description says of it.
        depth: how many objects lie around it.
        known: an instant, and the texts at the top of the row.
    """
    if depth > DEEP:
        return
    match shape.kind:
        case Kind.TEXT:
            yield from (*TEXTS, *known)
        case Kind.NAMED | Kind.NUMBERED:
            yield from (item.value for item in shape.members)
        case Kind.INSTANT:
            yield known[0]
        case Kind.FLAG:
            yield from (True, False)
        case Kind.INTEGER | Kind.NUMBER:
            yield 1
        case Kind.LIST:
            yield from ([item] for item in items_of(shape, depth, known))
        case Kind.MAP:
            yield from ({"k": item} for item in items_of(shape, depth, known))
        case Kind.OBJECT:
            yield from objects_of(shape.model, depth, known)


def items_of(shape: ValueShape, depth: int, known: Sequence[str]) -> Iterator[object]:
    """Yield values that an item of a list or map may take."""
    return iter(("v",)) if shape.item is None else values_of(shape.item, depth + 1, known)


def objects_of(cls: type[CanonicalModel], depth: int, known: Sequence[str]) -> Iterator[object]:
    """Yield an object with the fields that it must have, where each can be found by itself."""
    content: Tree = {}
    for shape in shapes_of(cls):
        info = cls.model_fields[shape.name]
        if not info.is_required():
            continue
        for value in values_of(shape.value, depth + 1, known):
            if is_admitted(cls, {**content, shape.wire: value}, shape.wire):
                content[shape.wire] = value
                break
    yield content


def is_admitted(cls: type[CanonicalModel], content: Tree, name: str) -> bool:
    """Whether a class has nothing to say against one of its fields."""
    try:
        cls.model_validate(content)
    except pydantic.ValidationError as error:
        return all(name not in map(str, problem["loc"][:1]) for problem in error.errors(include_url=False))
    return True


def others(item: object) -> Iterator[object]:
    """Yield values beside an item of a list, with one text of it changed."""
    if isinstance(item, str):
        yield from (f"{item}z", f"{item[:-1]}{'1' if item[-1:] == '0' else '0'}")
    elif isinstance(item, dict):
        content = cast("Tree", item)
        for name, value in content.items():
            yield from ({**content, name: other} for other in others(value))


def optional_paths(cls: type[CanonicalModel], tree: Tree, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of what a model has and need not have."""
    for shape in shapes_of(cls):
        value: object = tree.get(shape.wire)
        if value is None:
            continue
        if not shape.always_written:
            yield (*path, shape.wire)
        if shape.value.kind is Kind.OBJECT and isinstance(value, dict):
            yield from optional_paths(shape.value.model, cast("Tree", value), (*path, shape.wire))
