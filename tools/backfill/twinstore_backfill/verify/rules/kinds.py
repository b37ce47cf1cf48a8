"""One function for each kind of rule: it compiles the rule for an entity into a step over documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from twinstore.bulk.changes import NAMING, ChangeRefusedError, StoredObjectId, StoredReference
from twinstore.catalog.tenancy import NO_TENANT, UNKNOWN_TENANT, StoredOwner, TenancyKind, Tenant
from twinstore.models.fields import BLANKS
from twinstore.models.shapes import Kind
from twinstore_backfill.rules.functions import FunctionStep
from twinstore_backfill.rules.model import (
    ANY,
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
    TrimRule,
)
from twinstore_backfill.verify.rules import numbers
from twinstore_backfill.verify.rules.fields import in_type, kind_at, renamed, stored_path
from twinstore_backfill.verify.rules.ids import digits_of, uuid_of
from twinstore_backfill.verify.rules.instants import Formats, UnclearInstantError, in_milliseconds
from twinstore_backfill.verify.rules.places import (
    GONE,
    Holder,
    each,
    fill_at,
    holders,
    names_in,
    replace_at,
    replace_whole,
    same_unless_changed,
    values_at,
)

if TYPE_CHECKING:
    from twinstore.bulk.changes import Lookup, StoredValues
    from twinstore.catalog.entity import Entity

Step: TypeAlias = "Callable[[Holder, StoredValues], bool]"
"""Changes a document in place and returns whether anything changed."""

BROKEN: Final = {"nul": "\x00", "invalid-utf-8": "[\ud800-\udfff]"}
NUMBERS: Final = frozenset({int, float, Decimal})


@dataclass(frozen=True, slots=True)
class Compilation:
    """What the rules of one entity know of it.

    Attributes:
        entity: its description.
        renames: the renames, by which stored places become places of the model.
        own_key: its key is a field, not ``_id``.
        lookups: how rules find rows of other documents, by the number of the rule.
        later: what gives documents another tenant after rows are looked up.
    """

    entity: Entity
    renames: Sequence[RenameRule]
    own_key: bool
    lookups: Mapping[int, Lookup] = field(default_factory=dict)
    later: Sequence[Step] = ()

    def step(self, rule: Rule) -> Step:
        """Return what a rule does."""
        return STEPS[rule.kind](rule, self)

    def kind(self, path: Sequence[str]) -> Kind | None:
        """Return the type of a stored place by the model."""
        return kind_at(self.entity, renamed(path, self.renames))

    def stored(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return where documents have a place of the model."""
        return stored_path(self.entity, path, own_key=self.own_key)

    def owner(self, document: Holder, values: StoredValues) -> StoredOwner:
        """Return whose row a document is after all rules, the given one being before the later ones."""
        tenant = self.entity.tenant_field
        if tenant is None:
            return NO_TENANT
        after = deepcopy(document) if self.later else document
        for step in self.later:
            step(after, values)
        is_internal = any(item.name == tenant and not item.plain for item in self.entity.storage)
        value = after.get(f"_{tenant}" if is_internal else tenant)
        if value is None and self.entity.tenancy.kind is TenancyKind.OPTIONAL:
            return NO_TENANT
        return Tenant(value) if type(value) is str else UNKNOWN_TENANT


def refusal(rule: Rule, why: str) -> ChangeRefusedError:
    """Return the error of a value that a rule cannot change."""
    return ChangeRefusedError(f"{rule.text}: [[{rule.kind}]] {why}")


def replace_step(rule: ReplaceRule, compilation: Compilation) -> Step:
    """Replace texts; broken characters also in the names and texts of free JSON."""
    del compilation
    pattern = re.compile(BROKEN[rule.what] if rule.what is not None else re.escape(rule.old or ""))

    def text(value: str) -> str:
        found = pattern.sub(lambda _: rule.by, value)
        return value if found == value else found

    def shallow(value: object) -> object:
        return text(value) if type(value) is str else value

    def deep(value: object) -> object:
        if isinstance(value, list):
            return each(value, deep)
        if not isinstance(value, dict):
            return shallow(value)
        found = {text(name): deep(item) for name, item in value.items()}
        if len(found) < len(value):
            raise refusal(rule, "makes two names of an object equal")
        same = all(
            new is old and item is value[old] for (new, item), old in zip(found.items(), value, strict=True)
        )
        return value if same else found

    act = shallow if rule.what is None else deep
    return lambda document, _: replace_at(document, rule.path, act)


def trim_step(rule: TrimRule, compilation: Compilation) -> Step:
    """Remove outer blanks, and then what is empty."""
    del compilation
    outer = re.compile(f"^[{BLANKS}]+|[{BLANKS}]+\\Z")

    def act(value: object) -> object:
        if isinstance(value, list):
            value = same_unless_changed(value, list(map(act, value)))
        elif type(value) is str:
            found = outer.sub("", value)
            value = value if found == value else found
        return GONE if rule.empty and type(value) in {str, list, dict} and not value else value

    return lambda document, _: replace_whole(document, rule.path, act)


def map_step(rule: MapRule, compilation: Compilation) -> Step:
    """Replace or remove words, whole numbers and Booleans by their text."""
    kind = compilation.kind(rule.path)

    def step(document: Holder, values: StoredValues) -> bool:
        def act(stored: object) -> object:
            word = word_of(values.read(stored))
            if word is None:
                return stored
            if word in rule.values:
                found = in_type(rule.values[word], kind, values)
                return stored if type(found) is type(stored) and found == stored else found
            return GONE if word in rule.absent else stored

        return replace_at(document, rule.path, act)

    return step


def word_of(value: object) -> str | None:
    """Return the text by which rules name a value; ``None`` for a value that they do not name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    # Code of the client is a text too.
    return value if type(value) is str else None


def date_step(rule: DateRule, compilation: Compilation) -> Step:
    """Read texts and numbers as instants."""
    del compilation
    formats = Formats.of(rule.formats, rule.zone)

    def step(document: Holder, values: StoredValues) -> bool:
        def act(stored: object) -> object:
            if isinstance(stored, datetime):
                return stored
            try:
                found = set(formats.instants(values.read(stored)))
            except UnclearInstantError:
                raise refusal(rule, "finds a local time that its zone has twice or never") from None
            if len(found) > 1:
                raise refusal(rule, "finds two formats that give different instants")
            return values.write(in_milliseconds(found.pop())) if found else stored

        return replace_at(document, rule.path, act)

    return step


def number_step(rule: NumberRule, compilation: Compilation) -> Step:
    """Read texts or decimals as numbers of the type of the field."""
    kind, factor = compilation.kind(rule.path), numbers.of_decimal(rule.factor)

    def given(value: object) -> numbers.Exact | None:
        if rule.source == "text":
            return numbers.of_text(value) if type(value) is str else None
        return numbers.of_decimal(value) if isinstance(value, Decimal) and kind is not Kind.DECIMAL else None

    def step(document: Holder, values: StoredValues) -> bool:
        def act(stored: object) -> object:
            number = given(values.read(stored))
            if number is None:
                return stored
            found = numbers.stored(numbers.product(number, factor), kind)
            if found is None:
                raise refusal(rule, "finds a number that the field does not hold exactly")
            return values.write(found)

        return replace_at(document, rule.path, act)

    return step


def id_step(rule: IdRule, compilation: Compilation) -> Step:
    """Turn ids of MongoDB into UUIDs or texts."""
    kind = compilation.kind(rule.path)

    def made(digits: str) -> object:
        if rule.to == "text":
            return StoredObjectId(digits) if kind is Kind.OBJECT_ID else digits
        found = uuid_of(digits)
        return {Kind.UUID: found, Kind.HEX: found.hex}.get(kind, str(found)) if kind else str(found)

    def step(document: Holder, values: StoredValues) -> bool:
        def act(stored: object) -> object:
            value = values.read(stored)
            digits = digits_of(values.read(value.id) if isinstance(value, StoredReference) else value)
            if digits is None:
                return stored
            found = values.write(made(digits))
            return stored if type(found) is type(stored) and found == stored else found

        return replace_at(document, rule.path, act)

    return step


def lookup_step(rule: LookupRule, compilation: Compilation) -> Step:
    """Replace a value that another row has by the key of that row."""
    lookup, kind = compilation.lookups[rule.number], compilation.kind(rule.path)
    other = lookup.entity
    part = 0 if rule.take is None else other.key.index(rule.take)
    which = f"{other.singular} of its tenant by {rule.by}"

    def step(document: Holder, values: StoredValues) -> bool:
        wanted = [item for item in values_at(document, rule.path) if item is not None]
        if not wanted:
            return False
        owner = compilation.owner(document, values) if other.is_owned else NO_TENANT
        asked = [item for item in wanted if type(values.read(item)) in NAMING]
        rows = [] if owner is UNKNOWN_TENANT else list(values.found(lookup, owner, asked))

        def act(stored: object) -> object:
            value = values.read(stored)
            if value is None:
                return stored
            keys = {
                row.key
                for row in rows
                if row.owner == owner and type(row.value) is type(value) and row.value == value
            }
            if len(keys) != 1:
                raise refusal(rule, f"finds {'more than one' if keys else 'no'} {which}")
            found = in_type(keys.pop()[part], kind, values)
            return stored if type(found) is type(stored) and found == stored else found

        return replace_at(document, rule.path, act)

    return step


def derive_step(rule: DeriveRule, compilation: Compilation) -> Step:
    """Fill what is absent with a value from elsewhere in the document."""
    path = compilation.stored(rule.path)

    def step(document: Holder, values: StoredValues) -> bool:
        found = [item for item in values_at(document, rule.of) if values.read(item) is not None]
        if rule.how == "count":
            *way, last = rule.of
            there = (holder[name] for holder in holders(document, way) for name in names_in(holder, last))
            if all(value is None for value in there):
                return False
            return fill_at(document, path, lambda: values.write(len(found)), null=False)
        if not found:
            return False
        return fill_at(document, path, lambda: deepcopy(chosen(rule, found, values)), null=False)

    return step


def chosen(rule: DeriveRule, found: Sequence[object], values: StoredValues) -> object:
    """Return the first, last, least or greatest of some stored values."""
    if rule.how in {"first", "last"}:
        return found[0 if rule.how == "first" else -1]
    read: list[Any] = list(map(values.read, found))
    classes = {type(value) for value in read}
    is_ordered = all(value == value for value in read)  # noqa: PLR0124  # not a number
    if not is_ordered or not (classes <= NUMBERS or classes in ({str}, {datetime})):
        raise refusal(rule, "finds values that cannot be compared")
    places = range(len(read))
    best = min(places, key=read.__getitem__) if rule.how == "min" else max(places, key=read.__getitem__)
    return found[best]


def rename_step(rule: RenameRule, compilation: Compilation) -> Step:
    """Move a value, next to it where both places lie in one object."""
    path, to = rule.path, compilation.stored(rule.to)
    pairs = zip(path[:-1], to[:-1], strict=False)
    shared = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
    if shared is None:
        shared = min(len(path), len(to)) - 1
    here, there = path[shared:], to[shared:]

    def step(document: Holder, values: StoredValues) -> bool:
        del values
        # All of them, and first found, because each is changed.
        return sum([move(rule, holder, here, there) for holder in list(holders(document, path[:shared]))]) > 0

    return step


def move(rule: RenameRule, holder: Holder, path: Sequence[str], to: Sequence[str]) -> bool:
    """Move what an object has at a path; return whether it has anything there."""
    inner: object = holder
    for name in path[:-1]:
        if isinstance(inner, list) or name == ANY:
            raise refusal(rule, "finds several values for one place")
        inner = inner.get(name) if isinstance(inner, dict) else None
    if isinstance(inner, list):
        raise refusal(rule, "finds several values for one place")
    if not isinstance(inner, dict) or path[-1] not in inner:
        return False
    value = inner[path[-1]]
    if not rule.keep:
        # First, because the new place may lie in the old one.
        del inner[path[-1]]
    taken = place_of(rule, holder, to)
    if taken is None:
        put(holder, to, deepcopy(value) if rule.keep else value)
        return True
    if value is not None and value != taken:
        raise refusal(rule, "finds another value at the new place")
    return not rule.keep


def place_of(rule: RenameRule, holder: Holder, to: Sequence[str]) -> object:
    """Return what an object has at the new place, ``None`` for nothing."""
    inner: object = holder
    for name in to[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else inner
        if inner is None:
            return None
    if not isinstance(inner, dict):
        raise refusal(rule, "finds no object around the new place")
    return inner.get(to[-1])


def put(holder: Holder, to: Sequence[str], value: object) -> None:
    """Store a value, with the objects around it."""
    for name in to[:-1]:
        inner = holder.get(name)
        if not isinstance(inner, dict):
            inner = holder[name] = {}
        holder = inner
    holder[to[-1]] = value


def drop_step(rule: DropRule, compilation: Compilation) -> Step:
    """Remove a property."""
    del compilation
    return lambda document, _: replace_whole(document, rule.path, lambda _: GONE)


def key_step(rule: KeyRule, compilation: Compilation) -> Step:
    """Put a field in the place of the key; the driver leaves ``_id`` out."""
    (field,), (name,) = rule.path, compilation.entity.key

    def step(document: Holder, values: StoredValues) -> bool:
        if values.read(document.get(field)) is None:
            raise refusal(rule, "finds no value for the key")
        if field != name:
            document[name] = document.pop(field)
        return True

    return step


def default_step(rule: DefaultRule, compilation: Compilation) -> Step:
    """Fill what is absent or null."""
    kind, path = kind_at(compilation.entity, rule.path), compilation.stored(rule.path)

    def step(document: Holder, values: StoredValues) -> bool:
        return fill_at(document, path, lambda: in_type(rule.value, kind, values), null=True)

    return step


# The table pairs each kind with the function of its class.
STEPS: Final[Mapping[RuleKind, Callable[[Any, Compilation], Step]]] = {
    RuleKind.FUNCTION: lambda rule, _: FunctionStep(rule),
    RuleKind.REPLACE: replace_step,
    RuleKind.TRIM: trim_step,
    RuleKind.MAP: map_step,
    RuleKind.DATE: date_step,
    RuleKind.NUMBER: number_step,
    RuleKind.ID: id_step,
    RuleKind.LOOKUP: lookup_step,
    RuleKind.DERIVE: derive_step,
    RuleKind.RENAME: rename_step,
    RuleKind.DROP: drop_step,
    RuleKind.KEY: key_step,
    RuleKind.DEFAULT: default_step,
}
