"""Rules that change no document which is stored as a copy would store it; native code may read those.

Native code declines everything else: an unknown property at any depth, a value of another type, a word that
an enumeration lacks, a text with blanks around it, an absent field that must be there. So a rule is quiet if
all that it changes is of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import TypeAdapter, ValidationError

from twinstore.models.shapes import Kind, shapes_of
from twinstore_backfill.copy.rules.results import ID, shape_at
from twinstore_backfill.rules.model import (
    ANY,
    DateRule,
    DefaultRule,
    DeriveRule,
    FunctionRule,
    IdRule,
    MapRule,
    NumberRule,
    ReplaceRule,
    Rule,
    TrimRule,
)

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.models.shapes import FieldShape, ValueShape

__all__ = ["are_quiet"]

# As a map knows them.
FLAGS: Final = frozenset({"true", "false"})
NO_TEXT: Final = frozenset({Kind.INSTANT, Kind.NAMED, Kind.NUMBERED, Kind.FLAG, Kind.INTEGER, Kind.NUMBER})


def are_quiet(entity: Entity, rules: Sequence[Rule]) -> bool:
    """Whether no rule changes a document that is stored as a copy would store it."""
    return entity.extra is None and all(is_quiet(entity, rule) for rule in rules)


def is_quiet(entity: Entity, rule: Rule) -> bool:
    """Whether this rule changes none."""
    if isinstance(rule, FunctionRule):
        return False
    fills = isinstance(rule, DefaultRule | DeriveRule)
    if not fills and is_foreign(entity, rule.path):
        return True
    judge = QUIET.get(type(rule))
    shape = shape_at(entity, rule.path)
    return judge is not None and shape is not None and judge(entity, rule, shape)


def is_foreign(entity: Entity, path: Sequence[str]) -> bool:
    """Whether such a document has nothing at a stored path, because the model knows no such property."""
    name, *rest = path
    fields: Mapping[str, FieldShape] = entity.shapes
    if ANY in path or name == ID or name.removeprefix("_") in entity.markers:
        return False
    while name in fields:
        value: ValueShape | None = fields[name].value
        while value is not None and value.kind is Kind.LIST:
            value = value.item
        if not rest or value is None or value.kind is not Kind.OBJECT:
            return False
        fields = {shape.wire: shape for shape in shapes_of(value.model)}
        name, *rest = rest
    return True


def _map(entity: Entity, rule: MapRule, shape: ValueShape) -> bool:
    del entity
    words = {*rule.values, *rule.absent}
    if shape.kind in {Kind.NAMED, Kind.NUMBERED}:
        return words.isdisjoint(map(str, shape.members))
    return shape.kind is Kind.INSTANT or (shape.kind is Kind.FLAG and words.isdisjoint(FLAGS))


def _trim(entity: Entity, rule: TrimRule, shape: ValueShape) -> bool:
    is_field = len(rule.path) == 1 and rule.path[0] in entity.shapes
    return shape.kind in NO_TEXT or (is_field and not rule.empty and trims(entity, rule.path[0]))


def trims(entity: Entity, wire: str) -> bool:
    """Whether the model removes the blanks around a text, so that one with blanks is not stored as it is."""
    field = entity.model.model_fields[entity.shapes[wire].name]
    annotation: Any = field.annotation
    if field.metadata:
        annotation = Annotated[(annotation, *field.metadata)]
    try:
        return bool(TypeAdapter[Any](annotation).validate_python(" x ") == "x")
    except ValidationError:
        return False


def _default(entity: Entity, rule: DefaultRule, shape: ValueShape) -> bool:
    del shape
    field = entity.shapes.get(rule.path[0])
    if field is None or len(rule.path) > 1 or field.optional:
        return False
    return entity.model.model_fields[field.name].is_required()


def _replace(entity: Entity, rule: ReplaceRule, shape: ValueShape) -> bool:
    del entity, shape
    return rule.what == "invalid-utf-8"


def _date(entity: Entity, rule: DateRule, shape: ValueShape) -> bool:
    del entity, rule
    return shape.kind is Kind.INSTANT


def _number(entity: Entity, rule: NumberRule, shape: ValueShape) -> bool:
    del entity, rule
    return shape.kind in {Kind.INTEGER, Kind.NUMBER}


def _id(entity: Entity, rule: IdRule, shape: ValueShape) -> bool:
    # A key is read by what is stored.
    return rule.path[0] not in {ID, *entity.key} and shape.kind in {Kind.UUID, Kind.HEX}


# Of rules that are missing here, any may change such a document.
QUIET: Final[Mapping[type[Rule], Callable[..., bool]]] = {
    ReplaceRule: _replace,
    TrimRule: _trim,
    MapRule: _map,
    DateRule: _date,
    NumberRule: _number,
    IdRule: _id,
    DefaultRule: _default,
}
