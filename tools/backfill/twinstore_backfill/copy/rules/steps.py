"""What each kind of rule does to one document: one function a kind, made once for each rule and entity.

A step changes the document in place and returns whether it changed something. No text of a refusal has a
value in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

from twinstore.bulk.changes import (
    ChangeRefusedError,
    Lookup,
    StoredObjectId,
    StoredReference,
    StoredValues,
)
from twinstore.errors import ValidationError
from twinstore.models.fields import BLANKS
from twinstore.models.json_text import dumps
from twinstore.models.shapes import Kind
from twinstore_backfill.copy.rules.dates import LocalTimeError, Reader, reader_of, whole_milliseconds
from twinstore_backfill.copy.rules.ids import uuid_of
from twinstore_backfill.copy.rules.lookups import References
from twinstore_backfill.copy.rules.numbers import InexactError, number_in, product
from twinstore_backfill.copy.rules.places import ABSENT, Converter, Members, holders, objects, replace_each
from twinstore_backfill.copy.rules.results import shape_at, stored_path, written
from twinstore_backfill.copy.rules.selection import makes_tenant
from twinstore_backfill.rules.functions import FunctionStep
from twinstore_backfill.rules.model import (
    ANY,
    DateRule,
    DefaultRule,
    DeriveRule,
    DropRule,
    FunctionRule,
    IdRule,
    KeyRule,
    LookupRule,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    Rule,
    TrimRule,
)

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.models.shapes import ValueShape
    from twinstore_backfill.copy.rules.places import Path

Step: TypeAlias = Callable[[Members, StoredValues], bool]
OBJECT_ID_DIGITS: Final = 24
HEXADECIMAL: Final = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rule applies: the entity, all rules of it, and by their numbers what some of them look up."""

    entity: Entity
    rules: Sequence[Rule]
    lookups: Mapping[int, Lookup] = field(default_factory=dict[int, Lookup])

    def shape(self, rule: Rule) -> ValueShape | None:
        """Return what the model has where the values of a rule end."""
        renames = [item for item in self.rules if isinstance(item, RenameRule)]
        return shape_at(self.entity, rule.path, renames)

    def kind(self, rule: Rule) -> Kind | None:
        """Return the kind of that."""
        shape = self.shape(rule)
        return None if shape is None else shape.kind


def refused(rule: Rule, reason: str) -> ChangeRefusedError:
    """Return the refusal of a value by a rule."""
    return ChangeRefusedError(f"{rule.text}: [[{rule.kind}]] {reason}")


def step_of(rule: Rule, place: Place) -> Step:
    """Return what a rule does to the documents of an entity.

    Raises:
        ValidationError: no copy applies rules of its kind yet.
    """
    if type(rule) not in STEPS:
        raise ValidationError(
            f"[[{rule.kind}]] {rule.text} cannot be applied yet; remove it from the job file."
        )
    return STEPS[type(rule)](rule, place)


def _of_values(rule: Rule, converter: Callable[[StoredValues], Converter]) -> Step:
    """Return a step that replaces each value at the path of a rule."""
    return lambda document, values: replace_each(document, rule.path, converter(values))


# Texts and words.


def _replace(rule: ReplaceRule, place: Place) -> Step:
    del place
    if rule.what is not None:
        wrong: Callable[[str], bool] = is_nul if rule.what == "nul" else is_broken
        return _of_values(rule, lambda _: partial(_cleaned, rule, wrong))
    old = rule.old or ""

    def convert(value: object) -> object:
        found = isinstance(value, str) and bool(old) and old in value
        return cast("str", value).replace(old, rule.by) if found else value

    return _of_values(rule, lambda _: convert)


def is_nul(character: str) -> bool:
    """Whether PostgreSQL holds no text with a character."""
    return character == "\x00"


def is_broken(character: str) -> bool:
    """Whether a character is a byte that was not UTF-8."""
    return "\udc80" <= character <= "\udcff"


def _cleaned(rule: ReplaceRule, wrong: Callable[[str], bool], value: object) -> object:
    """Return a value with each wrong character replaced in its texts and names; the same if it has none."""
    if isinstance(value, str):
        if not any(map(wrong, value)):
            return value
        return "".join(rule.by if wrong(character) else character for character in value)
    if isinstance(value, list):
        items = cast("list[object]", value)
        cleaned = [_cleaned(rule, wrong, item) for item in items]
        return value if all(map(_is, cleaned, items)) else cleaned
    if type(value) is not dict:
        return value
    members = cast("Members", value)
    found = {name: _cleaned(rule, wrong, item) for name, item in members.items()}
    named = {cast("str", _cleaned(rule, wrong, name)): item for name, item in found.items()}
    if len(named) < len(found):
        raise refused(rule, "makes two names of an object equal")
    same = named.keys() == members.keys() and all(map(_is, found.values(), members.values()))
    return value if same else named


def _is(one: object, other: object) -> bool:
    return one is other


def _trim(rule: TrimRule, place: Place) -> Step:
    del place

    def convert(value: object) -> object:
        if isinstance(value, str):
            trimmed = value.strip(BLANKS)
            value = value if trimmed == value else trimmed
        is_empty = isinstance(value, str | list | dict) and not value
        return ABSENT if rule.empty and is_empty else value

    return _of_values(rule, lambda _: convert)


def _map(rule: MapRule, place: Place) -> Step:
    shape, absent = place.shape(rule), frozenset(rule.absent)

    def convert(values: StoredValues, value: object) -> object:
        known = values.read(value)
        word = word_of(known)
        if word is None or (word not in absent and word not in rule.values):
            return value
        if word in absent:
            return ABSENT
        new = written(rule.values[word], shape, values)
        return value if type(new) is type(known) and new == known else new

    return _of_values(rule, lambda values: partial(convert, values))


def word_of(value: object) -> str | None:
    """Return the text by which a map knows a value, ``None`` for one that it does not match."""
    if isinstance(value, str):
        return value
    return dumps(value).decode() if isinstance(value, int) else None


# Instants, numbers and ids.


def _date(rule: DateRule, place: Place) -> Step:
    del place
    readers = tuple(reader_of(form, rule.zone) for form in rule.formats)

    def convert(values: StoredValues, value: object) -> object:
        if isinstance(value, datetime):
            return value
        found = _instant(rule, readers, values.read(value))
        return value if found is None else values.write(found)

    return _of_values(rule, lambda values: partial(convert, values))


def _instant(rule: DateRule, readers: Sequence[Reader], value: object) -> datetime | None:
    """Return the one instant that all matching formats read, ``None`` if none matches."""
    try:
        found = {instant for read in readers if (instant := read(value)) is not None}
    except LocalTimeError:
        raise refused(rule, "finds a local time that its zone has twice or never") from None
    if len(found) > 1:
        raise refused(rule, "finds two formats that give different instants")
    return whole_milliseconds(found.pop()) if found else None


def _number(rule: NumberRule, place: Place) -> Step:
    kind = place.kind(rule)

    def convert(values: StoredValues, value: object) -> object:
        number = number_in(values.read(value), rule.source)
        if number is None or (kind is Kind.DECIMAL and rule.source == "decimal"):
            return value
        try:
            return values.write(product(number, rule.factor, kind))
        except InexactError:
            raise refused(rule, "finds a number that the field does not hold exactly") from None

    return _of_values(rule, lambda values: partial(convert, values))


def _id(rule: IdRule, place: Place) -> Step:
    kind = place.kind(rule)

    def convert(values: StoredValues, value: object) -> object:
        digits = object_id_in(values, values.read(value))
        if digits is None:
            return value
        new = values.write(as_kind(digits if rule.to == "text" else uuid_of(digits), kind))
        return value if type(new) is type(value) and new == value else new

    return _of_values(rule, lambda values: partial(convert, values))


def object_id_in(values: StoredValues, value: object) -> str | None:
    """Return the lower-case digits of an ObjectId, of its text or of a reference by one."""
    if isinstance(value, StoredReference):
        value = values.read(value.id)
    if isinstance(value, StoredObjectId):
        return value.digits
    is_text = isinstance(value, str) and len(value) == OBJECT_ID_DIGITS and HEXADECIMAL.issuperset(value)
    return cast("str", value).lower() if is_text else None


def as_kind(value: UUID | str, kind: Kind | None) -> object:
    """Return an id as a field of a kind has it: a text but where the field has another type."""
    if isinstance(value, str):
        return StoredObjectId(value) if kind is Kind.OBJECT_ID else value
    if kind is Kind.UUID:
        return value
    return value.hex if kind is Kind.HEX else str(value)


def _lookup(rule: LookupRule, place: Place) -> Step:
    # The kinds behind this one that fill or move a field of the model.
    later = [
        step_of(item, place)
        for item in place.rules
        if isinstance(item, DeriveRule | RenameRule | DefaultRule) and makes_tenant(item, place.entity)
    ]
    return References(rule, place.entity, place.lookups[rule.number], place.shape(rule), later)


# Fields that come, go and move.


def _derive(rule: DeriveRule, place: Place) -> Step:
    path = stored_path(place.entity, rule.path)

    def step(document: Members, values: StoredValues) -> bool:
        targets = [holder for holder in objects(document, path[:-1]) if path[-1] not in holder]
        found = _derived(rule, document, values) if targets else ABSENT
        if found is ABSENT:
            return False
        for holder in targets:
            holder[path[-1]] = deepcopy(found)
        return bool(targets)

    return step


def _derived(rule: DeriveRule, document: Members, values: StoredValues) -> object:
    """Return the value of a list; ``ABSENT`` where there is no list, or where it has no value to choose."""
    found = [value for value in _gathered(document, rule.of) if value is not None]
    if rule.how == "count":
        is_there = any(holder[name] is not None for holder, name in holders(document, rule.of))
        return values.write(len(found)) if is_there else ABSENT
    if not found:
        return ABSENT
    if rule.how in {"first", "last"}:
        return found[0 if rule.how == "first" else -1]
    ranks = [_rank(rule, values.read(value)) for value in found]
    if len({kind for kind, _ in ranks}) > 1:
        raise refused(rule, "finds values that cannot be compared")
    choose = max if rule.how == "max" else min
    # Of equal ones the first.
    return found[choose(range(len(found)), key=lambda number: ranks[number][1])]


def _gathered(document: Members, path: Path) -> list[object]:
    found: list[object] = []
    for holder, name in holders(document, path):
        _flatten(holder[name], found)
    return found


def _flatten(value: object, into: list[object]) -> None:
    if isinstance(value, list):
        for item in cast("list[object]", value):
            _flatten(item, into)
    else:
        into.append(value)


def _rank(rule: DeriveRule, value: object) -> tuple[str, Any]:
    """Return by what a value is compared, with the name of what it can be compared with."""
    if isinstance(value, str):
        return "text", value
    if isinstance(value, datetime):
        return "instant", value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or math.isnan(value):
        raise refused(rule, "finds values that cannot be compared")
    return "number", value


def _rename(rule: RenameRule, place: Place) -> Step:
    path, to = rule.path, stored_path(place.entity, rule.to)
    shared = 0
    while path[shared] == to[shared] and shared < min(len(path), len(to)) - 1:
        shared += 1
    # Inside of each item of a list that both have on their way.
    common, path, to = path[:shared], path[shared:], to[shared:]

    def step(document: Members, values: StoredValues) -> bool:
        del values
        return sum(_moved(rule, inner, path, to) for inner in objects(document, common)) > 0

    return step


def _moved(rule: RenameRule, document: Members, path: Path, to: Path) -> bool:
    """Move a value inside of an object; return whether something changed."""
    holder = _object_at(rule, document, path[:-1])
    if holder is None or path[-1] not in holder:
        return False
    value, there = holder[path[-1]], _value_at(rule, document, to)
    if there is not None:
        if value is not None and value != there:
            raise refused(rule, "finds another value at the new place")
        if rule.keep:
            return False
    if not rule.keep:
        del holder[path[-1]]
    if there is None:
        for name in to[:-1]:
            if document.get(name) is None:
                document[name] = {}
            document = cast("Members", document[name])
        # A copy, because what is changed at one place later must not change at the other.
        document[to[-1]] = deepcopy(value) if rule.keep else value
    return True


def _object_at(rule: RenameRule, value: object, path: Path) -> Members | None:
    """Return the one object at a path, ``None`` if there is none; a list may hold several."""
    for name in path:
        if name == ANY or isinstance(value, list):
            raise refused(rule, "finds several values for one place")
        value = cast("Members", value).get(name) if type(value) is dict else None
    if isinstance(value, list):
        raise refused(rule, "finds several values for one place")
    return cast("Members", value) if type(value) is dict else None


def _value_at(rule: RenameRule, document: Members, path: Path) -> object:
    """Return the value at the new place, ``None`` for none."""
    inner: object = document
    for name in path:
        if type(inner) is not dict:
            raise refused(rule, "finds no object around the new place")
        inner = cast("Members", inner).get(name)
        if inner is None:
            return None
    return inner


def _drop(rule: DropRule, place: Place) -> Step:
    del place

    def step(document: Members, values: StoredValues) -> bool:
        del values
        found = list(holders(document, rule.path))
        for holder, name in found:
            del holder[name]
        return bool(found)

    return step


def _key(rule: KeyRule, place: Place) -> Step:
    (name,), (key,) = rule.path, place.entity.key

    def step(document: Members, values: StoredValues) -> bool:
        del values
        value = document.pop(name, None)
        if value is None:
            raise refused(rule, "finds no value for the key")
        document[key] = value
        # The _id of the document is lost.
        return True

    return step


def _default(rule: DefaultRule, place: Place) -> Step:
    path, shape = stored_path(place.entity, rule.path), shape_at(place.entity, rule.path)

    def step(document: Members, values: StoredValues) -> bool:
        targets = [item for item in objects(document, path[:-1]) if item.get(path[-1]) is None]
        for holder in targets:
            holder[path[-1]] = written(rule.value, shape, values)
        return bool(targets)

    return step


STEPS: Final[Mapping[type[Rule], Callable[..., Step]]] = {
    FunctionRule: lambda rule, _: FunctionStep(rule),
    ReplaceRule: _replace,
    TrimRule: _trim,
    MapRule: _map,
    DateRule: _date,
    NumberRule: _number,
    IdRule: _id,
    LookupRule: _lookup,
    DeriveRule: _derive,
    RenameRule: _rename,
    DropRule: _drop,
    KeyRule: _key,
    DefaultRule: _default,
}
