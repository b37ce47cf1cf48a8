"""The rows of the scratch source: a sample, and variants of its rows with every field filled or absent.

A field that no row has cannot be changed. So variants of a few rows are made in the form that the service
would store; variants that the model refuses or changes are left as they are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Any, Final, cast
from unicodedata import normalize
from uuid import UUID, uuid5

import orjson
import pydantic

from twinstore.bulk.release import copy_counts, copyable_rows
from twinstore.catalog.entity import CopyPolicy
from twinstore.catalog.keys import KeyPart, KeyType
from twinstore.catalog.tenancy import TenancyKind, names_tenant
from twinstore.models import json_text
from twinstore.models.fields import DATE
from twinstore.models.shapes import Kind, ValueShape, shapes_of
from twinstore.models.typed_objects import binary_object, decimal_object, oid_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from twinstore.bulk.port import BulkPort, BulkView, Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.models.canonical import CanonicalModel

Tree = dict[str, Any]
Path = tuple[str | int, ...]
INSTANT: Final = datetime(2025, 10, 26, 14, 5, 0, 123_000, tzinfo=UTC)
INSTANT_TEXT: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00")
COMPOSED: Final = "é"
# What the texts of most models are, from the freest to the strictest.
TEXTS: Final = ("x", "UTC", "0 * * * *", "2025-10-26", f"sha256:{'0' * 64}", "CVE-2025-0001", "pkg:pypi/x@1")
DEEP: Final = 6
# What free JSON may hold next to texts and numbers, of which the rows of a user may have none.
TYPED: Final[Mapping[str, object]] = {
    "zzat": {DATE: json_text.format_timestamp(INSTANT)},
    "zzbytes": binary_object(b"bytes"),
    "zzid": oid_object("65a1f0c2b7e4d90012345678"),
    "zznumber": decimal_object(Decimal("1.50")),
}
MARKS: Final[Mapping[Kind, object]] = {Kind.TEXT: "marked", Kind.INTEGER: 1, Kind.INSTANT: INSTANT}
ABSENT: Final = object()
UUIDS: Final = frozenset({KeyType.UUID, KeyType.BINARY_UUID})
# What a unique value of such a kind is as a part of a key.
ID_TYPES: Final[Mapping[Kind, KeyType]] = {
    Kind.OBJECT_ID: KeyType.OBJECT_ID,
    Kind.UUID: KeyType.BINARY_UUID,
}
# One value of each type that JSON does not have; of bytes one without padding, so that a letter may change.
TYPED_VALUES: Final[Mapping[Kind, str]] = {
    Kind.OBJECT_ID: "65a1b2c3d4e5f60718293a4b",
    Kind.UUID: "6f0c1a52-7b0e-4f5e-9d0a-2c8f6f6e5b02",
    Kind.DECIMAL: "1.50",
    Kind.BYTES: "AAEC",
}
LONGEST: Final = 100
# An id of a model may be one, also where to a store it is any text.
UUID_TEXT: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SPACE: Final = UUID("6f0c1a52-7b0e-4f5e-9d0a-2c8f6f6e5b01")
BEYOND: Final = 1_000_000_000
# Rows of each entity to make variants of, and rows of each variant: the more, the fewer rounds of planting.
MODELS: Final = 5
COPIES: Final = 20
STATES: Final = frozenset({Kind.NAMED, Kind.NUMBERED, Kind.FLAG})


# A range is read as a whole, so that a seed chooses the same rows whatever a batch holds.
RANGE: Final = 500


@dataclass(slots=True)
class Sample:
    """The rows of one entity that were taken.

    Attributes:
        records: by key, in order of the keys.
        unreadable: rows that no copy could read, which are skipped.
    """

    entity: Entity
    records: dict[Key, Record] = field(default_factory=dict["Key", "Record"])
    unreadable: int = 0

    @property
    def tenants(self) -> Counter[str]:
        """How many rows of each owner there are."""
        return Counter(record.label for record in self.records.values())


def sample_source(source: BulkPort, size: int, seed: int) -> dict[str, Sample]:
    """Return a sample of every entity that a copy includes, by name, in the order of a copy.

    Args:
        source: the store.
        size: rows of each entity.
        seed: chooses them.
    """
    entities = [entity for entity in source.entities() if entity.copy_policy is not CopyPolicy.LEFT_OUT]
    present = {inventory.entity for inventory in source.inventory() if inventory.present}
    samples = {entity.name: Sample(entity) for entity in entities}

    def take(entity: Entity, records: Iterable[Record]) -> None:
        sample = samples[entity.name]
        for record in records:
            if record.model is None or record.key is None:
                sample.unreadable += 1
            else:
                sample.records[record.key] = record

    with source.view() as view:
        # Children first, because their parents have to come along.
        for entity in reversed([entity for entity in entities if entity.name in present]):
            take(entity, _sample_entity(source, view, entity, size, seed))
            if entity.parent is not None and (above := samples.get(entity.parent.entity.name)) is not None:
                records = samples[entity.name].records.values()
                missing = {key_of_parent(entity, record) for record in records} - above.records.keys()
                take(above.entity, view.records_of(above.entity, sorted(missing)))
    for sample in samples.values():
        sample.records = dict(sorted(sample.records.items()))
    return samples


def _sample_entity(
    source: BulkPort, view: BulkView, entity: Entity, size: int, seed: int
) -> Iterator[Record]:
    left, tenants = size, list[str | None]([None])
    if entity.tenancy.kind is TenancyKind.REQUIRED:
        counts = copy_counts(source, entity)
        labels = sorted(filter(names_tenant, counts), key=lambda label: place_of(seed, entity.name, label))
        # Those with the fewest rows first: what a small tenant does not have goes to those that follow.
        tenants = [label for _, label in sorted((counts[label], label) for label in labels[:size])]
    for number, tenant in enumerate(tenants):
        quota = ceil(left / (len(tenants) - number))
        ranges = list(source.cut(entity, RANGE, tenant_id=tenant))
        for within in sorted(ranges, key=lambda within: place_of(seed, entity.name, within)):
            if quota <= 0:
                break
            batches = view.records(entity, within, tenant_id=tenant, batch_size=RANGE)
            found = [record for batch in batches for record in copyable_rows(entity, batch)]
            found.sort(key=lambda record: place_of(seed, entity.name, record.key))
            yield from found[:quota]
            left -= len(found[:quota])
            quota -= len(found)


def place_of(seed: int, *values: object) -> bytes:
    """Return the position of something in the order of a seed; it depends on nothing else."""
    return sha256(repr((seed, *values)).encode("utf-8", "surrogatepass")).digest()


def key_of_parent(entity: Entity, record: Record) -> Key:
    """Return the key of the parent that a readable row names."""
    if entity.parent is None or record.model is None:
        raise LookupError(f"{entity.name} has no parent")  # met by programmers only
    return (cast("str | int", entity.value(record.model, record.storage, entity.parent.field)),)


def variant_rows(samples: Mapping[str, Sample], corrupts: Callable[[str], bool]) -> dict[str, list[Record]]:
    """Return variants of some rows of each entity to corrupt, under new keys and parents.

    Args:
        samples: the sample by entity.
        corrupts: whether an entity should be corrupted, by name.
    """
    made: dict[str, list[Record]] = defaultdict(list)
    for name, sample in samples.items():
        for record in different(sample) if corrupts(name) else ():
            for variant in [*variants(sample.entity, record)] * COPIES:
                add(made, samples, sample.entity, variant)
    return made


def different(sample: Sample) -> list[Record]:
    """Return a few rows in different states, as enumerations, flags, and missing values show them."""
    shapes, found = sample.entity.shapes.values(), dict[tuple[object, ...], "Record"]()
    names = [shape.name for shape in shapes if shape.value.kind in STATES or shape.optional]
    for record in sample.records.values():
        # If several models share a table, a row does not have every field.
        values = (getattr(record.model, name, None) for name in names)
        state = (value if isinstance(value, StrEnum | bool) else value is None for value in values)
        found.setdefault((*state, *(name in record.storage for name in sample.entity.markers)), record)
    return list(found.values())[:MODELS]


def add(
    made: dict[str, list[Record]], samples: Mapping[str, Sample], entity: Entity, record: Record
) -> object:
    """Add a row under another key and return the first part of that, ``None`` where the model refuses it."""
    model, parent, above = cast("CanonicalModel", record.model), entity.parent, None
    # A parent in the key may have many children. One that follows from the content cannot be replaced.
    if parent is not None and parent.field not in entity.key and parent.field in entity.shapes:
        records = samples[parent.entity.name].records
        above = add(made, samples, parent.entity, records[key_of_parent(entity, record)])
        if above is None:
            return None
    number = len(made[entity.name]) + 1
    own = own_values(entity, lambda name: entity.value(model, record.storage, name), number, above)
    storage = {**record.storage, **{name: own[name] for name in entity.markers if name in own}}
    try:
        changed = model.evolve(
            **{shape.name: own[name] for name, shape in entity.shapes.items() if name in own}
        )
    except pydantic.ValidationError:
        return None
    key = entity.key_of(changed, storage)
    made[entity.name].append(replace(record, key=key, model=changed, storage=storage))
    return key[0]


def own_values(
    entity: Entity, value_of: Callable[[str], object], number: int, parent: object
) -> dict[str, object]:
    """Return the fields in which a second row like one must differ: its key, and what is unique.

    Args:
        entity: whose row it is.
        value_of: returns the value of the row by field.
        number: another one for each such row.
        parent: the parent of the second row; ``None`` for the same.
    """
    above = None if entity.parent is None else entity.parent.field
    kept = {entity.tenant_field, above}
    own: dict[str, object] = {}
    for name in sorted({index.names[-1] for index in entity.uniques} - kept - {*entity.key}):
        value = value_of(name)
        if value is not None and entity.known[name] in ID_TYPES:
            own[name] = fresh_part(KeyPart(name, ID_TYPES[entity.known[name]]), value, number)
        elif value is not None:  # several rows may have none
            own[name] = (
                type(value)(BEYOND + number) if isinstance(value, int) else fresh_text(str(value), number)
            )
    if above is not None and parent is not None:
        own[above] = parent
    for part in entity.key_parts:
        if part.field not in kept or len(entity.key_parts) == 1:
            own[part.field] = fresh_part(part, value_of(part.field), number)
    if entity.own_id is not None and entity.single_key is not None:
        # It contains the key.
        old, new = str(value_of(entity.single_key)), str(own[entity.single_key])
        own[entity.own_id] = str(value_of(entity.own_id)).replace(old, new)
    return own


def fresh_text(text: str, number: int) -> str:
    """Return the text with a number; the digest of a long one, so that it stays short."""
    head = text if len(text) <= LONGEST else sha256(text.encode()).hexdigest()
    return f"{head}~{number:05}"


def fresh_part(part: KeyPart, value: object, number: int) -> str | int:
    """Return a part of a key that no row has."""
    if part.type is KeyType.INT64:
        # Within 32 bits, which many models keep to.
        return BEYOND + 1000 * number + (value % 1000 if isinstance(value, int) else 0)
    fresh = uuid5(SPACE, f"{value}~{number}")
    if part.type is KeyType.HEX:
        return fresh.hex
    if part.type is KeyType.OBJECT_ID:
        return fresh.hex[:24]
    if part.type in UUIDS or (isinstance(value, str) and UUID_TEXT.fullmatch(value)):
        return str(fresh)
    return fresh_text(str(value), number)


def variants(entity: Entity, record: Record) -> Iterator[Record]:
    """Yield variants of a readable row under its own key: filled, bare, and with every marker set."""
    model, parent = cast("CanonicalModel", record.model), entity.parent
    # By these a row is known to others.
    kept = frozenset({*entity.key, entity.tenant_field, None if parent is None else parent.field})
    filled, bare = FieldFiller(model, kept), FieldFiller(model, kept)
    filled.fill(type(model), ())
    yield replace(record, model=filled.model)
    bare.strip()
    yield replace(record, model=bare.model)
    marks = {item.name: MARKS[item.kind] for item in entity.storage if item.name not in record.storage}
    if marks:
        marked = replace(record, storage={**record.storage, **marks})
        yield replace(marked, model=filled.model)
        # What is marked, as deleted for example, is often required to be switched off.
        for shape in shapes_of(type(model)):
            if shape.value.kind is Kind.FLAG:
                filled.accepts((), {shape.wire: False})
        yield replace(marked, model=filled.model)


class FieldFiller:
    """A model that is changed step by step; a step that its class refuses, or changes itself, is undone.

    Attributes:
        model: the model after all steps.
    """

    def __init__(self, model: CanonicalModel, kept: frozenset[str | None]) -> None:
        self._class = type(model)
        self._kept = kept
        self.model = model
        self._tree: Tree = tree_of(model)
        texts = [value for value in self._tree.values() if isinstance(value, str)]
        # The latest instant of the row: few may lie before the others.
        instants = [text for text in texts if INSTANT_TEXT.fullmatch(text)]
        self._known = (max(instants, default=json_text.format_timestamp(INSTANT)), *texts)

    def accepts(self, path: Path, values: Tree) -> bool:
        """Change members of the object at a path; return whether the class accepts it."""
        tree = deepcopy(self._tree)
        holder = at(tree, path)
        for name, value in values.items():
            if value is ABSENT:
                del holder[name]
            else:
                holder[name] = value
        try:
            model = self._class.model_validate(tree)
        except pydantic.ValidationError:
            return False
        wire = tree_of(model)
        # The class may add what follows, and must not take back or alter what was given.
        if wire == self._tree or not holds(wire, tree):
            return False
        self._tree, self.model = wire, model
        return True

    def strip(self) -> None:
        """Remove optional values, the innermost first."""
        for path in sorted(optional_paths(self._class, self._tree, ()), key=len, reverse=True):
            if path[0] not in self._kept:
                self.accepts(path[:-1], {str(path[-1]): ABSENT})

    def fill(self, cls: type[CanonicalModel], path: Path) -> None:
        """Give every field a value, every text a composed character and every list a second item."""
        for shape in shapes_of(cls):
            if not path and shape.wire in self._kept:
                continue
            if shape.wire not in at(self._tree, path):
                values = list(values_of(shape.value, len(path), self._known))
                if values and not self._first((*path, shape.wire), values):
                    self._with_state(cls, path, {shape.wire: values[0]})
            if shape.wire in at(self._tree, path):
                self._fill_value(shape.value, (*path, shape.wire))

    def _first(self, path: Path, values: Iterable[object]) -> bool:
        """Put the first of some values at a path that the class accepts there."""
        *above, name = path
        return any(self.accepts(tuple(above), {cast("str", name): value}) for value in values)

    def _fill_value(self, shape: ValueShape, path: Path) -> None:
        value = at(self._tree, path)
        if shape.kind is Kind.OBJECT:
            self.fill(shape.model, path)
        elif shape.kind is Kind.TEXT and normalize("NFD", value) == value:
            self._first(path, [f"{value}{COMPOSED}"])
        elif shape.kind in {Kind.MAP, Kind.LIST} and isinstance(value, dict | list):
            if not value:
                self._first(path, values_of(shape, len(path), self._known))
            if isinstance(value, dict) and shape.item is None:
                for name, typed in TYPED.items():
                    self._first((*path, name), [typed])
            value = at(self._tree, path)
            inner = next(iter(value), None) if isinstance(value, dict) else 0
            if value and inner is not None and shape.item is not None:
                self._fill_value(shape.item, (*path, inner))
            items = at(self._tree, path)
            if isinstance(items, list) and len(items) == 1:
                self._first(path, ([items[0], other] for other in others(items[0])))

    def _with_state(self, cls: type[CanonicalModel], path: Path, values: Tree) -> None:
        """Put a value where it may be in one state only: together with that, and with missing instants."""
        siblings = [shape for shape in shapes_of(cls) if path or shape.wire not in self._kept]
        absent = [shape.wire for shape in siblings if shape.value.kind is Kind.INSTANT and shape.optional]
        instants = {name: self._known[0] for name in absent if name not in at(self._tree, path)}
        states = (shape for shape in siblings if shape.value.kind in {Kind.NAMED, Kind.NUMBERED})
        given = (
            {**more, **values, state.wire: item.value}
            for state in states
            for item in state.value.members
            for more in ({}, instants)
        )
        any(self.accepts(path, item) for item in given)


def at(tree: Any, path: Path) -> Any:  # noqa: ANN401  # any part of a wire form
    """Return what is at a path of a tree."""
    for step in path:
        tree = tree[step]
    return tree


def tree_of(model: CanonicalModel) -> Tree:
    """Return the wire form of a model as JSON has it."""
    tree: Tree = orjson.loads(json_text.dumps(model.wire()))
    return tree


def holds(wire: object, given: object) -> bool:
    """Whether a wire form has everything that was given, and perhaps more names."""
    if isinstance(wire, dict) and isinstance(given, dict):
        return all(name in wire and holds(wire[name], value) for name, value in given.items())
    if isinstance(wire, list) and isinstance(given, list):
        return len(wire) == len(given) and all(map(holds, wire, given))
    return wire == given


def values_of(shape: ValueShape, depth: int, known: Sequence[str]) -> Iterator[object]:
    """Yield values that a place may accept.

    Args:
        shape: what the description says of it.
        depth: how many objects are around it.
        known: an instant, and the texts at the top of the row.
    """
    items = iter(("v",)) if shape.item is None else values_of(shape.item, depth + 1, known)
    match shape.kind if depth <= DEEP else None:
        case Kind.TEXT:
            yield from (*TEXTS, *known)
        case Kind.OBJECT_ID | Kind.UUID | Kind.DECIMAL | Kind.BYTES:
            yield TYPED_VALUES[shape.kind]
        case Kind.NAMED | Kind.NUMBERED:
            yield from (item.value for item in shape.members)
        case Kind.INSTANT:
            yield known[0]
        case Kind.FLAG:
            yield from (True, False)
        case Kind.INTEGER | Kind.NUMBER:
            yield 1
        case Kind.LIST:
            yield from ([item] for item in items)
        case Kind.MAP:
            yield from ({"k": item} for item in items)
        case Kind.OBJECT:
            yield object_of(shape.model, depth, known)
        case _:
            pass


def object_of(cls: type[CanonicalModel], depth: int, known: Sequence[str]) -> Tree:
    """Return an object with the required fields for which a value can be found one by one."""
    content: Tree = {}
    for shape in shapes_of(cls):
        if cls.model_fields[shape.name].is_required():
            for value in values_of(shape.value, depth + 1, known):
                if is_admitted(cls, {**content, shape.wire: value}, shape.wire):
                    content[shape.wire] = value
                    break
    return content


def is_admitted(cls: type[CanonicalModel], content: Tree, name: str) -> bool:
    """Whether a class accepts one field of an object."""
    try:
        cls.model_validate(content)
    except pydantic.ValidationError as error:
        return all(name not in map(str, problem["loc"][:1]) for problem in error.errors(include_url=False))
    return True


def others(item: object) -> Iterator[object]:
    """Yield values next to an item of a list, with one text of it changed."""
    if isinstance(item, str):
        yield from (f"{item}z", f"{item[:-1]}{'1' if item[-1:] == '0' else '0'}")
    elif isinstance(item, dict):
        content = cast("Tree", item)
        for name, value in content.items():
            yield from ({**content, name: other} for other in others(value))


def optional_paths(cls: type[CanonicalModel], tree: Tree, path: Path) -> Iterator[Path]:
    """Yield the paths of what a model has and need not have."""
    for shape in shapes_of(cls):
        value: object = tree.get(shape.wire)
        if value is None:
            continue
        if not shape.always_written:
            yield (*path, shape.wire)
        if shape.value.kind is Kind.OBJECT and isinstance(value, dict):
            yield from optional_paths(shape.value.model, cast("Tree", value), (*path, shape.wire))
