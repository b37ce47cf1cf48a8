"""Known fields that a comparison ignores on request: ``--ignore-field``.

A person knows that they differ, and why that is right. A copy includes them like any other field; only the
comparison skips them. So a comparison that ignores a field covers only a part and ends with PARTIAL at best,
and with INCONCLUSIVE if a list uses the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from twinstore.errors import ValidationError
from twinstore.models import json_text
from twinstore.models.shapes import Kind, shapes_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from twinstore.catalog.entity import Entity

OPTION: Final = "--ignore-field"


@dataclass(frozen=True, slots=True)
class IgnoredPath:
    """One field that is not compared; list items on the way do not count."""

    entity: str
    path: tuple[str, ...]
    reason: str | None = None

    @property
    def text(self) -> str:
        """The path as options and reports show it."""
        return ".".join((self.entity, *self.path))


def of_entity(ignored: Sequence[IgnoredPath], entity: Entity) -> tuple[IgnoredPath, ...]:
    """Return the paths of one entity."""
    return tuple(item for item in ignored if item.entity == entity.name)


def without(document: object, paths: Iterable[tuple[str, ...]]) -> object:
    """Return a document without the named properties; the given one stays as it is."""
    for path in paths:
        document = _without(document, path)
    return document


def _without(value: object, path: tuple[str, ...]) -> object:
    if isinstance(value, list):
        return [_without(item, path) for item in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    name, *rest = path
    if not rest:
        return {key: item for key, item in value.items() if key != name}
    return {**value, name: _without(value[name], tuple(rest))}


def ignored_fields(texts: Iterable[str], reasons: Mapping[str, str]) -> tuple[IgnoredPath, ...]:
    """Return the fields of the options and of the job file, each once, in order of their text.

    Raises:
        ValidationError: a text names no field of an entity.
    """
    return tuple(_ignored_field(text, reasons.get(text)) for text in sorted({*texts, *reasons}))


def _ignored_field(text: str, reason: str | None) -> IgnoredPath:
    entity, *path = text.split(".")
    if not path or not all((entity, *path)):
        raise ValidationError(
            f"{OPTION} {text!r} names no field; give entity and path, such as runs.stats.queued."
        )
    return IgnoredPath(entity, tuple(path), reason)


def check_ignored_fields(ignored: Iterable[IgnoredPath], entities: Iterable[Entity]) -> None:
    """Refuse fields that a comparison cannot ignore.

    Raises:
        ValidationError: an entity or a field is unknown, or the field identifies the row or its owner.
    """
    known = {entity.name: entity for entity in entities}
    for item in ignored:
        if item.entity not in known:
            raise ValidationError(
                f"{OPTION} {item.text}: there is no such entity; known: {', '.join(known)}."
            )
        entity = known[item.entity]
        if item.path[0] in {*entity.key, entity.tenant_field, entity.document_id}:
            raise ValidationError(
                f"{OPTION} {item.text}: {item.path[0]!r} identifies the row or its owner, so it is compared."
            )
        if item.path[0] not in entity.markers:
            _check_known(item, entity.model, item.path)


def _check_known(item: IgnoredPath, model: type[BaseModel], path: tuple[str, ...]) -> None:
    name, *rest = path
    shapes = {shape.wire: shape for shape in shapes_of(model)}
    if name not in shapes:
        near = get_close_matches(name, shapes, 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise ValidationError(
            f"{OPTION} {item.text}: there is no field {name!r}{hint} To drop a property of no model, use "
            "--ignore-unknown."
        )
    value = shapes[name].value
    while value.kind is Kind.LIST and value.item is not None:
        value = value.item
    if not rest or value.kind in {Kind.LIST, Kind.MAP}:
        return
    if value.kind is not Kind.OBJECT:
        raise ValidationError(f"{OPTION} {item.text}: {name!r} holds a value without fields.")
    _check_known(item, value.model, tuple(rest))


def content_without_fields(content: bytes, ignored: Iterable[IgnoredPath]) -> bytes:
    """Return the content of a scanned row without some of its fields and markers."""
    parts = json_text.loads(content)
    if not isinstance(parts, dict):
        return content
    paths = [item.path for item in ignored]
    return json_text.dumps_sorted({name: without(value, paths) for name, value in parts.items()})
