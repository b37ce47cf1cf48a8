"""Known fields that a comparison leaves out on request: what a person knows to differ, and why that is right.

A copy brings them over like any other; only whether they agree is not asked. So a comparison that ignores a
field is one of a part and ends with PARTIAL at best, and with INCONCLUSIVE where a list looks at the field.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from twinstore import jsontext
from twinstore.errors import ValidationError
from twinstore.shapes import Kind, shapes_of
from twinstore_backfill.ignoring import IgnoredPath, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel

    from twinstore.catalog import Entity

__all__ = ["check_ignored_fields", "content_without", "ignored_fields"]

OPTION: Final = "--ignore-field"


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
    """Refuse what cannot be left out of a comparison.

    Raises:
        ValidationError: an entity or a field is unknown, or the field tells which row it is or whose.
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
                f"{OPTION} {item.text}: {item.path[0]!r} tells which row it is or whose, so it is compared."
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
            f"{OPTION} {item.text}: there is no field {name!r}{hint} What no model has is dropped with "
            "--ignore-unknown."
        )
    value = shapes[name].value
    while value.kind is Kind.LIST and value.item is not None:
        value = value.item
    if not rest or value.kind is Kind.MAP:
        return
    if value.kind is not Kind.OBJECT:
        raise ValidationError(f"{OPTION} {item.text}: {name!r} holds a value that has no fields of its own.")
    _check_known(item, value.model, tuple(rest))


def content_without(content: bytes, ignored: Iterable[IgnoredPath]) -> bytes:
    """Return the content of a scanned row without some of its fields and markers."""
    parts = jsontext.loads(content)
    if not isinstance(parts, dict):
        return content
    paths = [item.path for item in ignored]
    return jsontext.dumps_sorted({name: without(value, paths) for name, value in parts.items()})
