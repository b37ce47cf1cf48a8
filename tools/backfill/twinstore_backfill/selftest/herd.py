"""The rows of the scratch source: the sample, its variants, and copies of rows under keys of their own."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID, uuid5

import pydantic

from twinstore.catalog import KeyType
from twinstore.releasing import copy_writer
from twinstore.shapes import Kind as Shape
from twinstore.tenancy import NO_TENANT, Tenant
from twinstore_backfill.selftest.sampling import key_of_parent
from twinstore_backfill.selftest.specimens import variants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from twinstore.bulk import BulkPort, Record
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.keys import Key, KeyPart
    from twinstore_backfill.selftest.sampling import Sample

__all__ = ["BEYOND", "Herd", "fresh_part", "fresh_text"]

LONGEST: Final = 100
# An id of a model may be one, also where to a store it is any text.
UUID_TEXT: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SPACE: Final = UUID("6f0c1a52-7b0e-4f5e-9d0a-2c8f6f6e5b01")
BEYOND: Final = 1_000_000_000
# Rows to make variants of.
MODELS: Final = 5
STATES: Final = frozenset({Shape.NAMED, Shape.NUMBERED, Shape.FLAG})


class Herd:
    """Every row that is or will be in the scratch source, by entity and key.

    Attributes:
        added: how many rows of each entity were made beside those of the sample.
    """

    def __init__(self, samples: Mapping[str, Sample]) -> None:
        """Take the samples, parents first."""
        self._entities = {name: sample.entity for name, sample in samples.items()}
        self._records = {name: dict(sample.records) for name, sample in samples.items()}
        self._waiting: dict[str, list[Record]] = {
            name: list(sample.records.values()) for name, sample in samples.items()
        }
        self._numbers: Counter[str] = Counter()
        self.added: Counter[str] = Counter()
        self.made: defaultdict[str, set[Key]] = defaultdict(set)

    def keys(self, entity: Entity) -> list[Key]:
        """Return the keys of the rows of an entity, in order."""
        return sorted(self._records[entity.name])

    def vary(self, corrupts: Callable[[str], bool] = lambda _: True) -> None:
        """Make variants of some rows of each entity that is to be corrupted."""
        for entity in filter(lambda entity: corrupts(entity.name), self._entities.values()):
            for record in different(entity, list(self._records[entity.name].values())):
                for variant in variants(entity, record):
                    self._renamed(entity, variant)

    def copy_of(self, entity: Entity, key: Key) -> Key | None:
        """Make a copy of a row under another key and return that; ``None`` where its model refuses it."""
        return self._renamed(entity, self._records[entity.name][key])

    def _renamed(self, entity: Entity, record: Record) -> Key | None:
        number = self._numbers[entity.name] = self._numbers[entity.name] + 1
        changes = self._fresh(entity, record, number)
        if changes is None:
            return None
        model = cast("CanonicalModel", record.model)
        storage = {**record.storage, **{name: changes[name] for name in entity.markers if name in changes}}
        own = {entity.shapes[name].name: value for name, value in changes.items() if name in entity.shapes}
        try:
            changed = model.evolve(**own)
        except pydantic.ValidationError:
            return None
        found = replace(record, key=entity.key_of(changed, storage), model=changed, storage=storage)
        key = cast("Key", found.key)
        self._records[entity.name][key] = found
        self._waiting[entity.name].append(found)
        self.made[entity.name].add(key)
        self.added[entity.name] += 1
        return key

    def _fresh(self, entity: Entity, record: Record, number: int) -> dict[str, object] | None:
        """Return what a copy of a row has of its own: key, parent, and what must not stand twice."""
        model = cast("CanonicalModel", record.model)

        def text(name: str) -> str:
            return fresh_text(str(entity.value(model, record.storage, name)), number)

        parent = entity.parent
        apart = {entity.tenant_field or "", "" if parent is None else parent.field}
        unique = {
            name
            for name in {index.names[-1] for index in entity.uniques} - set(entity.key) - apart
            # An absent one is nobody's.
            if entity.value(model, record.storage, name) is not None
        }
        changes: dict[str, object] = {
            name: BEYOND + number if entity.known[name] is Shape.INTEGER else text(name)
            for name in sorted(unique)
        }
        # One that follows from the content stays where it is: its parent may have many.
        if parent is not None and parent.field not in entity.key and parent.field in entity.shapes:
            found = self.copy_of(parent.entity, key_of_parent(entity, record))
            if found is None:
                return None
            changes[parent.field] = found[0]
        for part in entity.key_parts:
            if part.field not in apart or len(entity.key_parts) == 1:
                value = entity.value(model, record.storage, part.field)
                changes[part.field] = fresh_part(part, value, number)
        if entity.own_id is not None and entity.single_key is not None:
            # The key follows from the id, which holds its digits.
            old = str(entity.value(model, record.storage, entity.single_key))
            own = str(entity.value(model, record.storage, entity.own_id))
            changes[entity.own_id] = own.replace(old, str(changes[entity.single_key]))
        return changes

    def write(self, source: BulkPort) -> None:
        """Write what waits; a row that the store refuses is forgotten."""
        for name, entity in self._entities.items():
            waiting, self._waiting[name] = self._waiting[name], []
            for start in range(0, len(waiting), 1000):
                self._write(source, entity, waiting[start : start + 1000])

    def _write(self, source: BulkPort, entity: Entity, records: Sequence[Record]) -> None:
        # As a copy writes them: then both sides hold the same, whichever is the target.
        with copy_writer(source, entity) as writer:
            writer.write(sorted(records, key=lambda record: cast("Key", record.key)))
            outcome = writer.flush()
            writer.commit()
        self.forget(entity, (item.record.key for item in outcome.rejected if item.record.key is not None))

    def forget(self, entity: Entity, keys: Iterable[Key]) -> None:
        """Forget rows that a store refused."""
        for key in keys:
            self._records[entity.name].pop(key, None)
            if key in self.made[entity.name]:
                self.made[entity.name].discard(key)
                self.added[entity.name] -= 1

    def tenants(self) -> list[str]:
        """Return all tenants, in order."""
        owners = {record.owner for records in self._records.values() for record in records.values()}
        return sorted(owner.id for owner in owners - {NO_TENANT} if isinstance(owner, Tenant))


def different(entity: Entity, records: Sequence[Record]) -> list[Record]:
    """Return a few rows in different states, as far as enumerations, flags and what is absent tell them."""
    names = [shape.name for shape in entity.shapes.values() if shape.value.kind in STATES or shape.optional]
    found: dict[tuple[object, ...], Record] = {}
    for record in records:
        # Of several models in one table not each has every field.
        values = (getattr(record.model, name, None) for name in names)
        state = tuple(value if isinstance(value, StrEnum | bool) else value is None for value in values)
        found.setdefault((*state, *(name in record.storage for name in entity.markers)), record)
    return list(found.values())[:MODELS]


def fresh_text(text: str, number: int) -> str:
    """Return a text that no row has: the given one with a number."""
    # One that is too long to be told from it by its beginning is told by its digest.
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
    if part.type is KeyType.UUID or (isinstance(value, str) and UUID_TEXT.fullmatch(value)):
        return str(fresh)
    return fresh_text(str(value), number)
