"""Refusing rules that mean nothing for the models of a module, before anything is read or written."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NoReturn
from uuid import UUID

from twinstore.catalog.entity import CopyPolicy
from twinstore.catalog.keys import KeyType
from twinstore.errors import ValidationError
from twinstore.models.cron import CronError, validate_timezone
from twinstore.models.fields import decimal_number, parse_timestamp
from twinstore.models.shapes import Kind, shapes_of
from twinstore_backfill.rules.forms import IGNORE_UNKNOWN
from twinstore_backfill.rules.kinds import Group, acceptable
from twinstore_backfill.rules.model import (
    ANY,
    AcceptRule,
    DateRule,
    DefaultRule,
    DeriveRule,
    DropRule,
    IdRule,
    KeyRule,
    LookupRule,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    Rule,
    RuleKind,
    path_text,
)
from twinstore_backfill.rules.paths import PathError, parse_path
from twinstore_backfill.rules.reading import nearest

if TYPE_CHECKING:
    from pydantic import BaseModel

    from twinstore.catalog.entity import Entity
    from twinstore.models.shapes import ValueShape
    from twinstore_backfill.rules.model import JobRules

__all__ = ["check_rules"]

ID: Final = "_id"
Path = Sequence[str]
# Names of months and days are English on every host.
DIRECTIVES: Final = frozenset("YmdHIMSfpbBaAjz")
TWO_DIGITS: Final = frozenset("yDxc")
OFFSET: Final = "z"
MONTHS: Final = frozenset("mbB")
# Of each a format has one.
ALTERNATIVES: Final = (MONTHS, frozenset("HI"), frozenset("aA"), frozenset("dj"))
EPOCHS: Final = ("epoch-seconds", "epoch-milliseconds", "epoch-microseconds")
# In stores these are no texts.
NO_WORDS: Final = frozenset({Kind.INSTANT, Kind.UUID, Kind.DECIMAL, Kind.OBJECT_ID, Kind.BYTES})
NO_TEXT: Final = re.compile("true|false|-?[0-9]+")
DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)
# By kind of rule what the field may hold that gets its result.
RESULTS: Final[Mapping[RuleKind, frozenset[Kind]]] = {
    RuleKind.DATE: frozenset({Kind.INSTANT}),
    RuleKind.NUMBER: frozenset({Kind.INTEGER, Kind.NUMBER, Kind.DECIMAL}),
    RuleKind.ID: frozenset({Kind.TEXT, Kind.UUID, Kind.HEX, Kind.OBJECT_ID}),
}
CONVERTING: Final = (DateRule, NumberRule, IdRule, LookupRule)
# What JSON has for a kind of field; of the kinds that are missing here, any text.
IN_JSON: Final[Mapping[Kind, tuple[type, ...]]] = {
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, float),
    Kind.DECIMAL: (int, float, str),
    Kind.FLAG: (bool,),
    Kind.LIST: (list,),
    Kind.MAP: (dict,),
    Kind.OBJECT: (dict,),
    Kind.BYTES: (),
}
# Of these kinds there is one form, or not every text is one.
FORMS: Final[Mapping[Kind, KeyType]] = {
    Kind.OBJECT_ID: KeyType.OBJECT_ID,
    Kind.UUID: KeyType.BINARY_UUID,
}
READERS: Final[Mapping[Kind, Callable[[str], object]]] = {
    Kind.INSTANT: parse_timestamp,
    Kind.DECIMAL: decimal_number,
}
# Keys of other types are any text.
SAMPLES: Final[Mapping[KeyType, object]] = {
    KeyType.INT64: 1,
    KeyType.OBJECT_ID: "0" * 24,
    KeyType.BINARY_UUID: str(UUID(int=0)),
}


class UnknownPlaceError(ValueError):
    """A model has no field at a path; the text is the end of a message."""


def check_rules(rules: JobRules, entities: Iterable[Entity]) -> None:
    """Refuse rules that name what is not there, that overlap, or that would lose or change too much.

    Args:
        rules: the rules.
        entities: all entities of the module.

    Raises:
        ValidationError: the first such rule, with file and line, and the nearest valid name.
    """
    check = RuleCheck(rules, tuple(entities))
    for rule in rules:
        check.check(rule)
    for one, other in _pairs(rules):
        check.check_pair(one, other)


def _pairs(rules: JobRules) -> Iterator[tuple[Rule, Rule]]:
    """Yield the pairs of one kind that may overlap: few of the million that a thousand rules have."""
    kinds = defaultdict[RuleKind, list[Rule]](list)
    paths = defaultdict[tuple[RuleKind, tuple[str, ...]], list[Rule]](list)
    for rule in rules:
        kinds[rule.kind].append(rule)
        for path in _decided(rule):
            paths[rule.kind, path].append(rule)
    for (kind, path), same in paths.items():
        yield from combinations(same, 2) if ANY not in path else product(same, kinds[kind])


def _decided(rule: Rule) -> Sequence[tuple[str, ...]]:
    """Return the paths of which a rule decides alone; those of two that replace texts may be one."""
    if isinstance(rule, ReplaceRule):
        return ()
    if isinstance(rule, KeyRule):
        return ((),)
    return (rule.path, ("to", *rule.to)) if isinstance(rule, RenameRule) else (rule.path,)


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """Checks the rules of a job, given all entities of the module."""

    rules: JobRules
    entities: Sequence[Entity]

    def check(self, rule: Rule) -> None:
        """Refuse a rule that means nothing.

        Raises:
            ValidationError: it does.
        """
        scope = self.entities if rule.entity == ANY else [self._entity(rule, rule.entity)]
        for entity in scope:
            self._check_key_is_kept(rule, entity)
        if isinstance(rule, DropRule):
            self._check_drop(rule, scope)
        elif isinstance(rule, AcceptRule):
            self._check_accepted(rule, scope)
        elif isinstance(rule, KeyRule):
            self._check_key(rule, scope)
        elif isinstance(rule, (DefaultRule, DeriveRule)):
            self._check_filled(rule, scope)
        else:
            self._check_changed(rule, scope)
        if self.rules.reverse:
            self._check_backwards(rule, scope)

    def check_pair(self, one: Rule, other: Rule) -> None:
        """Refuse two rules that would both decide about one value.

        Raises:
            ValidationError: they do.
        """
        one, other = sorted((one, other), key=attrgetter("number"))
        if one is not other and _share_entity(one, other) and _overlap(one, other):
            self._refuse(other, f"it overlaps {self._name(one)}.")

    def _name(self, rule: Rule) -> str:
        where = f"the [[{rule.kind.value}]] of line {rule.line}"
        return where if rule.line else f"--{IGNORE_UNKNOWN} {rule.text}"

    def _refuse(self, rule: Rule, problem: str) -> NoReturn:
        subject = f"{rule.what} of {rule.text}" if isinstance(rule, AcceptRule) else rule.text
        place = f"The job file {self.rules.file}, line {rule.line}: [[{rule.kind.value}]] {subject}"
        raise ValidationError(f"{place if rule.line else f'--{IGNORE_UNKNOWN} {rule.text}'}: {problem}")

    def _entity(self, rule: Rule, name: str) -> Entity:
        """Return an entity that a rule names."""
        known = {entity.name: entity for entity in self.entities}
        if name not in known:
            self._refuse(rule, f"there is no entity {name}{nearest(name, known)}")
        return known[name]

    def _check_key_is_kept(self, rule: Rule, entity: Entity) -> None:
        """Refuse a change of the key: both sides are cut and compared in the order of the stored one."""
        stored = {ID, *entity.key, *(f"_{name}" for name in entity.markers if name in entity.key)}
        stored.update(() if entity.document_id is None else (entity.document_id,))
        stored.update(key.path[0] for key in self.rules.of(entity, KeyRule))
        if isinstance(rule, IdRule) and rule.path == (ID,) and entity.own_id is not None:
            self._refuse(rule, f"_id of {entity.name} is not its key, which follows from {entity.own_id}.")
        written: tuple[Path, ...] = (rule.to,) if isinstance(rule, RenameRule) else ()
        if not isinstance(rule, (KeyRule, IdRule, AcceptRule, DropRule)):
            written += (rule.path,)
        for path in written:
            if path[0] in stored:
                self._refuse(
                    rule,
                    f"{path[0]!r} is part of the key of {entity.name}, which only [[key]] or [[id]] changes.",
                )

    def _check_backwards(self, rule: Rule, scope: Sequence[Entity]) -> None:
        """Refuse a rule that a job with ``reverse`` cannot undo."""
        problem = None
        if isinstance(rule, RenameRule):
            problem = self._irreversible_rename(rule, scope)
        elif isinstance(rule, MapRule):
            problem = _irreversible_map(
                rule, map(_innermost, self._values(rule, scope, self._value_of_source))
            )
        elif isinstance(rule, IdRule):
            if any(rule.path[0] in {*entity.key, ID} for entity in scope):
                problem = "rows that came later have keys of which no ObjectId is made"
        elif not isinstance(rule, AcceptRule):
            problem = "only rename, id, map and accept can"
        if problem is None and not isinstance(rule, AcceptRule) and any(item.release for item in scope):
            problem = "a copy writes its rows, which processes hold, in the form of the model"
        if problem is not None:
            self._refuse(rule, f"reverse = true cannot undo it: {problem}.")

    def _irreversible_rename(self, rule: RenameRule, scope: Sequence[Entity]) -> str | None:
        if rule.keep:
            return "keep leaves two values"
        try:
            for entity in scope if rule.path[:-1] else ():
                _value_of_model(entity, rule.path[:-1])
        except UnknownPlaceError:
            return f"{path_text(rule.path[:-1])} would be left, empty; rename that"
        return None

    def _check_drop(self, rule: DropRule, scope: Sequence[Entity]) -> None:
        if ANY in rule.path:
            self._refuse(rule, "name the property to drop; * would take those of the model too.")
        if rule.entity == ANY and len(rule.path) > 1:
            self._refuse(
                rule,
                "only a property at the top of a document can be named for all entities; give the entity "
                "instead of *.",
            )
        if rule.path[:1] == (ID,):
            self._refuse(rule, "a copy never drops the id of a document.")
        for entity in scope:
            self._check_unknown(rule, entity, entity.model, rule.path)

    def _check_unknown(self, rule: DropRule, entity: Entity, model: type[BaseModel], path: Path) -> None:
        name, *rest = path
        shape = next((shape for shape in shapes_of(model) if shape.wire == name), None)
        if shape is None:
            if rule.entity == entity.name and entity.extra is not None and path == rule.path:
                self._refuse(
                    rule,
                    f"{entity.name} keeps unknown properties, in {entity.extra}, so a copy drops none.",
                )
            if rest:
                self._refuse(rule, f"all of {name!r} is unknown; name it without what is below.")
            return
        value = _innermost(shape.value)
        if not rest or value is None or value.kind is not Kind.OBJECT:
            self._refuse(
                rule, f"{name!r} is a property of the model of {entity.name}, which a copy never drops."
            )
        self._check_unknown(rule, entity, value.model, rest)

    def _check_key(self, rule: KeyRule, scope: Sequence[Entity]) -> None:
        if rule.entity == ANY or len(rule.path) > 1 or rule.path in {(ANY,), (ID,)}:
            self._refuse(rule, "give one entity, and one field at the top of its documents other than _id.")
        if scope[0].key != (scope[0].document_id,):
            self._refuse(
                rule, f"the key of {rule.entity} is not in _id, so another field cannot take its place."
            )
        if others := {*rule.path} & scope[0].shapes.keys() - {*scope[0].key}:
            self._refuse(rule, f"{others.pop()!r} is another field of the model, which would lose its value.")

    def _check_filled(self, rule: DefaultRule | DeriveRule, scope: Sequence[Entity]) -> None:
        """Check a rule that names a field of the model."""
        if rule.path[-1] == ANY:
            self._refuse(rule, "name the field to fill; * stands for names that are there already.")
        for value in self._values(rule, scope, _value_of_model):
            if isinstance(rule, DefaultRule):
                self._check_holds(rule, value, rule.value)
            elif rule.how == "count" and value is not None and value.kind is not Kind.INTEGER:
                self._refuse(rule, f"count gives an integer, and the field is a {value.kind.value}.")

    def _check_changed(self, rule: Rule, scope: Sequence[Entity]) -> None:
        """Check a rule that changes a value of the source."""
        if isinstance(rule, DateRule):
            self._check_formats(rule)
        if isinstance(rule, RenameRule):
            self._check_rename(rule, scope)
            return
        if isinstance(rule, LookupRule):
            self._check_lookup(rule, scope)
            return
        for found in self._values(rule, scope, self._value_of_source):
            value = _innermost(found)
            if isinstance(rule, MapRule) and not self._is_converted(rule):
                for word in rule.values.values():
                    self._check_holds(rule, value, word)
            results = RESULTS.get(rule.kind, frozenset())
            if isinstance(rule, NumberRule) and value is None:
                self._refuse(rule, "the model has no type of number there.")
            if results and value is not None and value.kind not in results:
                wanted = " or ".join(sorted(kind.value for kind in results))
                self._refuse(rule, f"the field is a {value.kind.value} and not {wanted}.")

    def _check_rename(self, rule: RenameRule, scope: Sequence[Entity]) -> None:
        if _touch(rule.path, rule.to):
            self._refuse(rule, "it would move a value onto itself, into itself or over what it is in.")
        self._values(rule, scope, lambda entity, _: _value_of_model(entity, rule.to))
        pairs = zip(rule.path[:-1], rule.to[:-1], strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if ANY in {*rule.path[shared:], *rule.to[shared:]}:
            self._refuse(rule, "* would move several values to one place; name the property.")

    def _check_lookup(self, rule: LookupRule, scope: Sequence[Entity]) -> None:
        other = self._entity(rule, rule.other)
        if other.copy_policy is CopyPolicy.LEFT_OUT:
            self._refuse(rule, f"{other.name} is not copied, so none of its rows has a key in the target.")
        first, *more = other.key
        if rule.take is None and more:
            names = " or ".join(other.key)
            self._refuse(rule, f"take is needed: {names}, of which the key of {other.name} is made.")
        take = rule.take or first
        if take not in other.key:
            self._refuse(rule, f"{take} is no part of the key of {other.name}{nearest(take, other.key)}")
        self._check_finds(rule, other)
        for entity in scope:
            self._check_owner(rule, entity, other)
        sample = SAMPLES.get(other.key_parts[other.key.index(take)].type, "")
        for value in self._values(rule, scope, self._value_of_source):
            if _cannot_hold(_innermost(value), sample) is not None:
                self._refuse(rule, f"the field cannot hold the {take} of {other.name}.")

    def _check_finds(self, rule: LookupRule, other: Entity) -> None:
        """Refuse a field by which no document is found."""
        if "." in rule.by or rule.by.startswith("$"):
            self._refuse(rule, "by names a field at the top of documents.")
        if any(found.path[:1] == (rule.by,) for found in self.rules.of(other, Rule)):
            return
        if rule.by == other.document_id:
            self._refuse(rule, f"documents of {other.name} have {rule.by} as {ID}; give that.")
        try:
            _value_of_model(other, (rule.by,))
        except UnknownPlaceError as error:
            self._refuse(rule, f"by: {error}")

    def _check_owner(self, rule: LookupRule, entity: Entity, other: Entity) -> None:
        """Refuse rows that do not name their tenant, and to look that up."""
        nameless = [item.name for item in (entity, other) if other.is_owned and item.tenant_field is None]
        if nameless:
            self._refuse(
                rule, f"documents of {nameless[0]} name no tenant, and only one's rows may be found."
            )
        moves: list[tuple[Path, Path]] = [(item.path, item.to) for item in self.rules.of(entity, RenameRule)]
        moves += [(item.of, item.path) for item in self.rules.of(entity, DeriveRule)]
        tenant = {entity.tenant_field, f"_{entity.tenant_field}"}
        sources = [way for way, to in moves if to[0] in tenant]
        if rule.path[0] in tenant or any(_touch(way, rule.path) for way in sources):
            self._refuse(rule, f"it would decide the tenant of {entity.name}, by which rows are found.")
        if any(_touch(way, to) for way in sources for _, to in moves):
            self._refuse(rule, f"rules make the tenant of {entity.name} in several steps; move it in one.")

    def _values(
        self,
        rule: Rule,
        scope: Sequence[Entity],
        value_of: Callable[[Entity, Path], ValueShape | None],
    ) -> list[ValueShape | None]:
        """Return what the models that have the place of a rule hold there; at least one has it."""
        found: list[ValueShape | None] = []
        problem = ""
        for entity in scope:
            try:
                found.append(value_of(entity, rule.path))
            except UnknownPlaceError as error:
                problem = problem or str(error)
        if not found:
            self._refuse(rule, problem)
        return found

    def _value_of_source(self, entity: Entity, path: Path) -> ValueShape | None:
        """Return what the model holds where a stored value comes to, ``None`` for anything.

        Raises:
            UnknownPlaceError: no model has it, and no rule reads it.
        """
        for rename in self.rules.of(entity, RenameRule):
            if _leads_into(path, rename.path):
                return _value_of_model(entity, (*rename.to, *path[len(rename.path) :]))
        read = [rule.of for rule in self.rules.of(entity, DeriveRule)]
        if any(_touch(path, of) for of in read):
            return None
        return _value_of_model(entity, path)

    def _is_converted(self, rule: MapRule) -> bool:
        """Whether another rule reads what the words become."""
        others = (other for other in self.rules if isinstance(other, CONVERTING))
        return any(_share_entity(rule, other) and _match(rule.path, other.path) for other in others)

    def _check_holds(self, rule: Rule, value: ValueShape | None, given: object) -> None:
        problem = _cannot_hold(value, given)
        if problem is not None:
            self._refuse(rule, problem)

    def _check_formats(self, rule: DateRule) -> None:
        needs_zone = False
        for text in rule.formats:
            if text in EPOCHS:
                continue
            if text.startswith("epoch"):
                self._refuse(rule, f"there is no format {text}{nearest(text, EPOCHS)}")
            needs_zone |= not self._has_offset(rule, text)
        if rule.zone is not None:
            try:
                validate_timezone(rule.zone)
            except CronError as error:
                self._refuse(rule, f"zone: {error}")
        elif needs_zone:
            self._refuse(rule, "zone is needed, because a format has no offset (%z) and is not an epoch.")

    def _has_offset(self, rule: DateRule, text: str) -> bool:
        """Check the directives of a format; return whether one of them is the offset."""
        used = Counter(name for name in DIRECTIVE.findall(text) if name != "%")
        for name, times in used.items():
            if name in TWO_DIGITS:
                self._refuse(rule, f"%{name} in {text!r} has a year of two digits, which may mean two years.")
            if name not in DIRECTIVES:
                known = ", ".join(f"%{directive}" for directive in sorted(DIRECTIVES))
                self._refuse(rule, f"%{name} in {text!r} is not a directive; known: {known}, %%.")
            if times > 1:
                self._refuse(rule, f"%{name} is repeated in {text!r}.")
        for same in ALTERNATIVES:
            if len(twice := sorted(used.keys() & same)) > 1:
                self._refuse(rule, f"%{twice[0]} and %{twice[1]} in {text!r} mean the same part of a date.")
        if "Y" not in used or not ("j" in used or (used.keys() & MONTHS and "d" in used)):
            self._refuse(rule, f"{text!r} gives no whole date; it needs %Y, a month and %d, or %Y and %j.")
        if ("I" in used) is not ("p" in used):
            self._refuse(rule, f"{text!r} needs both %I and %p, or neither of them.")
        return OFFSET in used

    def _check_accepted(self, rule: AcceptRule, scope: Sequence[Entity]) -> None:
        found = acceptable(rule.what)
        if found is None:
            return
        if found.group is Group.EQUIVALENCE:
            for entity in scope:
                self._check_is_no_identity(rule, entity)
            self._values(rule, scope, _value_of_row)
        argument = rule.what.partition(":")[2]
        if found.name == "unique":
            names = [index.name for entity in scope for index in entity.indexes if index.unique]
            if argument not in names:
                self._refuse(rule, f"there is no unique index {argument!r}{nearest(argument, names)}")
        if found.name == "rule":
            self._check_names_rule(rule, argument)

    def _check_is_no_identity(self, rule: AcceptRule, entity: Entity) -> None:
        """Refuse an equivalence in a value that both stores find one row by."""
        unique = [name for index in entity.indexes if index.unique for name in index.names]
        for name in (*entity.key, ID, entity.tenant_field, *unique):
            path = () if name is None else tuple(name.split("."))
            if path and _touch(rule.path, path):
                what = (
                    "tenant"
                    if name == entity.tenant_field
                    else "key"
                    if name not in unique
                    else "unique value"
                )
                self._refuse(
                    rule, f"{name} is a {what} of {entity.name}, which no job accepts in another form."
                )

    def _check_names_rule(self, rule: AcceptRule, text: str) -> None:
        try:
            path = parse_path(text)
        except PathError as error:
            self._refuse(rule, f"{error}.")
        others = [
            other for other in self.rules if not isinstance(other, AcceptRule) and _share_entity(rule, other)
        ]
        if not any(_match(path, other.path) for other in others):
            known = sorted({".".join(other.path) for other in others})
            self._refuse(rule, f"no rule of the job has the path {text}{nearest(text, known)}")


def _irreversible_map(rule: MapRule, held: Iterable[ValueShape | None]) -> str | None:
    words = {new if isinstance(new, str) else json.dumps(new) for new in rule.values.values()}
    problems = {
        "absent removes words": bool(rule.absent),
        "two words become one": len(words) < len(rule.values),
        "a word is both old and new": not words.isdisjoint(rule.values),
        "a fraction is no word": any(isinstance(new, float) for new in rule.values.values()),
        "the field holds no words": any(value is not None and value.kind in NO_WORDS for value in held),
        "true, false and digits may have been stored as a text or not": any(
            map(NO_TEXT.fullmatch, rule.values)
        ),
    }
    return next((problem for problem, is_one in problems.items() if is_one), None)


def _share_entity(one: Rule, other: Rule) -> bool:
    return one.entity == other.entity or ANY in {one.entity, other.entity}


def _match(one: Path, other: Path) -> bool:
    """Whether two paths may lead to one value."""
    return len(one) == len(other) and _leads_into(one, other)


def _leads_into(path: Path, around: Path) -> bool:
    """Whether a path may lead to a value at or below another one."""
    pairs = zip(path, around, strict=False)
    return len(path) >= len(around) and all(one == other or ANY in {one, other} for one, other in pairs)


def _touch(one: Path, other: Path) -> bool:
    """Whether one path may lead to a value at, below or around the other one."""
    return _leads_into(one, other) or _leads_into(other, one)


def _overlap(one: Rule, other: Rule) -> bool:
    """Whether two rules of one kind, for one entity, would decide about one value."""
    if isinstance(one, KeyRule):
        return True
    if isinstance(one, AcceptRule) and isinstance(other, AcceptRule) and one.what != other.what:
        return False
    if isinstance(one, RenameRule) and isinstance(other, RenameRule) and _match(one.to, other.to):
        return True
    return _match(one.path, other.path)


def _innermost(value: ValueShape | None) -> ValueShape | None:
    """Return what a list of lists holds in the end, ``None`` for any JSON."""
    while value is not None and value.kind is Kind.LIST:
        value = value.item
    return None if value is not None and value.kind is Kind.MAP and value.item is None else value


def _value_of_row(entity: Entity, path: Path) -> ValueShape | None:
    """Return the same as for a field of the model, of any value that a row has in reports."""
    own = {*entity.markers, *entity.beside, *(item.name for item in entity.derived)}
    return None if path[0] in own else _value_of_model(entity, path)


def _value_of_model(entity: Entity, path: Path) -> ValueShape | None:
    """Return what the model of an entity holds at a path, ``None`` for any JSON.

    Raises:
        UnknownPlaceError: it has no such field.
    """
    if path[0] == ID and entity.document_id is not None:
        path = (entity.document_id, *path[1:])
    if entity.extra is not None and path[0] not in entity.shapes:
        return None
    # Documents have markers and derived values under a name that begins with a line.
    if path[0] not in entity.shapes and path[0].removeprefix("_") in entity.known:
        return None
    return _value_of_field(entity.model, path)


def _value_of_field(model: type[BaseModel], path: Path) -> ValueShape | None:
    name, *rest = path
    shapes = {shape.wire: shape.value for shape in shapes_of(model)}
    if name not in shapes:
        raise UnknownPlaceError(f"{model.__name__} has no field {name!r}{nearest(name, shapes)}")
    return _value_inside(name, shapes[name], rest)


def _value_inside(name: str, value: ValueShape, path: Path) -> ValueShape | None:
    if not path:
        return value
    inner = _innermost(value)
    if inner is None:
        return None
    if inner.kind is Kind.OBJECT:
        return _value_of_field(inner.model, path)
    if inner.kind is Kind.MAP and inner.item is not None:
        return _value_inside(path[0], inner.item, path[1:])
    raise UnknownPlaceError(f"{name!r} holds a value without fields.")


def _cannot_hold(value: ValueShape | None, given: object) -> str | None:
    """Return why a field cannot hold a value of the job file, as the end of a message."""
    if value is None or (value.kind is Kind.MAP and value.item is None):
        return None
    if value.kind in {Kind.NAMED, Kind.NUMBERED}:
        return _is_no_word(value, given)
    is_other = not isinstance(given, IN_JSON.get(value.kind, (str,)))
    is_flag = isinstance(given, bool) and value.kind is not Kind.FLAG
    if is_other or is_flag or (value.kind in FORMS and not FORMS[value.kind].admits(given)):
        return f"the field is a {value.kind.value} and cannot hold {given!r}."
    if isinstance(given, str) and value.kind in READERS:
        try:
            READERS[value.kind](given)
        except ValueError as error:
            return f"the field ({value.kind.value}) cannot hold {given!r}: {error}."
    items = given if isinstance(given, list) and value.item is not None else ()
    return next((problem for item in items if (problem := _cannot_hold(value.item, item))), None)


def _is_no_word(value: ValueShape, given: object) -> str | None:
    words = [member.value for member in value.members]
    if not isinstance(given, str):
        return f"the field cannot hold {given!r}; known: {', '.join(words)}."
    try:
        value.cls(given)
    except ValueError:
        return f"the field cannot hold {given!r}{nearest(given, words)}"
    return None
