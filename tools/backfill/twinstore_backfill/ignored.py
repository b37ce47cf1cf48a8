"""What a user decided to lose or not to compare: ``--ignore-unknown`` and ``--ignore-field``.

Unknown properties were written by other programs and are not in the model. A copy drops them and a
verification counts their documents as the equivalence ``ignored``. That is a decision about data, so without
a reason, which only a job file can give, the proof stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from twinstore.errors import ValidationError
from twinstore.models import json_text
from twinstore.models.shapes import Kind, shapes_of
from twinstore_backfill.rules.model import DropRule, JobRules

if TYPE_CHECKING:
    from pydantic import BaseModel

    from twinstore.catalog.entity import Entity

ALL_ENTITIES: Final = "*"
"""In the place of an entity: all of them."""
ID: Final = "_id"


@dataclass(frozen=True, slots=True)
class IgnoredPath:
    """One property that no model has, or a field that is not compared; list items on the way do not count."""

    entity: str
    path: tuple[str, ...]
    reason: str | None = None

    @property
    def text(self) -> str:
        """The path as options and reports show it."""
        return ".".join((self.entity, *self.path))


def ignored_paths(texts: Iterable[str], reasons: Mapping[str, str]) -> tuple[IgnoredPath, ...]:
    """Return the paths of the options and of the job file, each once, in order of their text."""
    return tuple(ignored_path(text, reasons.get(text)) for text in sorted({*texts, *reasons}))


def ignored_path(text: str, reason: str | None = None) -> IgnoredPath:
    """Return the path of a text such as ``runs.stats.old``.

    Raises:
        ValidationError: it names no property of an entity.
    """
    entity, *path = text.split(".")
    if not path or not all((entity, *path)):
        raise ValidationError(
            f"--ignore-unknown {text!r} names no property; give entity and path, such as runs.legacy."
        )
    if entity == ALL_ENTITIES and len(path) > 1:
        raise ValidationError(
            f"--ignore-unknown {text}: only a property at the top of a document can be named "
            "for all entities; give the entity instead of *."
        )
    return IgnoredPath(entity, tuple(path), reason)


def with_drops(rules: JobRules, ignored: Sequence[IgnoredPath]) -> JobRules:
    """Return the rules of a job, with the unknown properties to drop among them."""
    first = 1 + max((rule.number for rule in rules), default=0)
    drops = [
        DropRule(number=number, line=0, entity=item.entity, path=item.path, reason=item.reason or "")
        for number, item in enumerate(ignored, first)
    ]
    return JobRules((*rules, *drops), rules.file)


def of_entity(ignored: Sequence[IgnoredPath], entity: Entity) -> tuple[IgnoredPath, ...]:
    """Return the paths of one entity; one that keeps unknown properties has none of all entities."""
    names = {entity.name} if entity.extra is not None else {ALL_ENTITIES, entity.name}
    return tuple(item for item in ignored if item.entity in names)


def top_names(ignored: Sequence[IgnoredPath], entity: Entity, *, with_reason: bool = False) -> frozenset[str]:
    """Return the ignored properties of an entity that are at the top of a document.

    Args:
        ignored: what is ignored.
        entity: the entity.
        with_reason: only those that may be lost without leaving the proof open.
    """
    tops = (item for item in of_entity(ignored, entity) if len(item.path) == 1)
    return frozenset(item.path[0] for item in tops if item.reason is not None or not with_reason)


def check_ignored(ignored: Sequence[IgnoredPath], entities: Iterable[Entity]) -> None:
    """Refuse what would lose more than an unknown property.

    Raises:
        ValidationError: an entity is unknown, or a path names what a model keeps.
    """
    known = {entity.name: entity for entity in entities}
    for item in ignored:
        if item.entity not in {ALL_ENTITIES, *known}:
            raise ValidationError(
                f"--ignore-unknown {item.text}: there is no such entity; known: {', '.join(known)}."
            )
        if item.path[0] == ID:
            raise ValidationError(f"--ignore-unknown {item.text}: a copy never drops the id of a document.")
        for entity in known.values() if item.entity == ALL_ENTITIES else [known[item.entity]]:
            _check_unknown(item, entity, entity.model, item.path)


def _check_unknown(item: IgnoredPath, entity: Entity, model: type[BaseModel], path: tuple[str, ...]) -> None:
    name, *rest = path
    shape = next((shape for shape in shapes_of(model) if shape.wire == name), None)
    if shape is None:
        if item.entity == entity.name and entity.extra is not None and path == item.path:
            raise ValidationError(
                f"--ignore-unknown {item.text}: {entity.name} keeps unknown properties, in {entity.extra}, "
                "so a copy drops none."
            )
        if rest:
            raise ValidationError(
                f"--ignore-unknown {item.text}: all of {name!r} is unknown; name it without what is below."
            )
        return
    value = shape.value
    while value.kind is Kind.LIST and value.item is not None:
        value = value.item
    if not rest or value.kind is not Kind.OBJECT:
        raise ValidationError(
            f"--ignore-unknown {item.text}: {name!r} is a property of the model of {entity.name}, "
            "which a copy never drops."
        )
    _check_unknown(item, entity, value.model, tuple(rest))


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


# Known fields that a comparison ignores on request: a person knows that they differ, and why that is right.
#
# A copy includes them like any other field; only the comparison skips them. So a comparison that ignores a
# field covers only a part and ends with PARTIAL at best, and with INCONCLUSIVE if a list uses the field.


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
