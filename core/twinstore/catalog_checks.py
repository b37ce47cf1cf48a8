"""What makes a description wrong: contradictions, and what two stores would understand differently."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from twinstore.catalog_forms import problems_of_forms
from twinstore.keys import KeyType
from twinstore.query import IsNull
from twinstore.shapes import Kind, is_whole
from twinstore.tenancy import TenancyKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog import Entity, Module
    from twinstore.query import Condition

__all__ = ["NAME", "is_present", "problems", "problems_of_module"]

# A name is a table, a schema, a part of the names of indexes, constraints and functions, and an attribute in
# Python. PostgreSQL cuts what is longer than 63 bytes, silently, so that it would never be found again.
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME_RULE: Final = "use at most 40 lower-case letters, digits and underscores, a letter first"


def problems(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with a description, as the end of a sentence about the entity."""
    yield from _problems_of_names(entity)
    unknown = sorted(set(_named(entity)) - entity.known.keys())
    if unknown:
        yield f"has no field {', '.join(unknown)}"
    wide = [
        name for name in entity.narrow if name in entity.shapes and not is_whole(entity.shapes[name].value)
    ]
    if wide:
        yield f"holds {', '.join(wide)} in 32 bits, which is neither an integer nor a list of integers"
    yield from problems_of_forms(entity)
    yield from _problems_of_parent(entity)
    for derived in entity.derived:
        source = entity.shapes.get(derived.number_of or "")
        if derived.number_of is not None and (
            source is None or source.value.kind is not Kind.NUMBERED or source.wire not in entity.queried
        ):
            yield f"sorts by the number of {derived.number_of}, which has no column with numbers"
    parent = None if entity.parent is None else entity.parent.entity
    if entity.sequence is not None and (parent is None or not parent.versioned):
        # Two appends wait for each other because both write the parent.
        yield "is an ordered log, but names no parent that is versioned"
    yield from _problems_of_release(entity)
    if entity.dated is not None and (
        entity.known.get(entity.dated) is not Kind.INSTANT or not is_present(entity, entity.dated)
    ):
        yield f"is dated by {entity.dated}, which is no instant that every row has"
    for index in entity.uniques:
        # Some stores hold two absent values to be equal, others do not.
        absent = [name for name in index.names if not is_present(entity, name, index.where)]
        if absent:
            yield f"may lack {', '.join(absent)} of {index.name}; narrow it with IsPresent"


def problems_of_module(module: Module) -> Iterator[str]:
    """Yield what is wrong with the entities of a module together, as the end of a sentence about it."""
    if not NAME.fullmatch(module.name):
        yield f"cannot be a name; {NAME_RULE}"
    for entity in module.entities:
        if entity.module != module.name:
            yield f"has the entity {entity.name}, which says that it belongs to {entity.module}"
    for kind in ("name", "collection"):
        for value, count in Counter(getattr(entity, kind) for entity in module.entities).items():
            if count > 1:
                yield f"has {count} entities with the {kind} {value}"
    before: set[Entity] = set()
    for entity in module.entities:
        if entity.parent is not None and entity.parent.entity not in before:
            # Whatever goes through the entities in order stores a child below its parent.
            yield f"names {entity.name} before its parent {entity.parent.entity.name}; put the parent first"
        before.add(entity)


def _problems_of_names(entity: Entity) -> Iterator[str]:
    if not NAME.fullmatch(entity.name):
        yield f"cannot be a name; {NAME_RULE}"
    if "$" in entity.collection or "\0" in entity.collection or entity.collection.startswith("system."):
        yield f"has the collection {entity.collection!r}, which MongoDB refuses; choose another name"
    for index in entity.indexes:
        if not NAME.fullmatch(index.name):
            yield f"has the index {index.name!r}; {NAME_RULE}"
    names = Counter((index.name, store) for index in entity.indexes for store in index.stores)
    for (name, store), count in names.items():
        if count > 1:
            yield f"has {count} indexes with the name {name} for {store.value}"


def _problems_of_parent(entity: Entity) -> Iterator[str]:
    if entity.parent is None:
        if entity.tenancy.kind is TenancyKind.PARENT:
            yield "belongs to the tenant of a parent, but names none"
        return
    if len(entity.parent.entity.key_parts) != 1:
        yield f"has the parent {entity.parent.entity.name}, whose key has several parts"
    above, (part, *_) = entity.parent.entity, entity.parent.entity.key_parts
    if above.key_in_payload is not None:
        yield f"has the parent {above.name}, whose key stands in a payload; no foreign key can refer to that"
    if (part.type is KeyType.HEX) is not (entity.known.get(entity.parent.field) is Kind.HEX):
        # One of the two would be a UUID in tables, and the other one a text.
        yield f"refers to {above.name} by {entity.parent.field}, which is not {part.type.value} as its key is"
    if entity.tenancy.kind is TenancyKind.PARENT and not is_present(entity, entity.parent.field):
        yield f"belongs to the tenant of a parent, but may lack {entity.parent.field}"
    if entity.tenancy.kind is TenancyKind.PARENT and entity.parent.field not in entity.key:
        # A key alone must tell which parent decides who sees the row.
        yield f"belongs to the tenant of a parent, but {entity.parent.field} is not part of its key"


def _problems_of_release(entity: Entity) -> Iterator[str]:
    if (entity.release is None) == (entity.life.name == "RELEASED"):
        yield "is copied as released exactly where it says how; give both life and release, or neither"
    if entity.release is not None:
        wanted = {entity.release.end: Kind.INSTANT, entity.release.beginning: Kind.INSTANT}
        wanted[entity.release.fence] = Kind.INTEGER
        for name, kind in wanted.items():
            if name not in entity.shapes or entity.known[name] is not kind or not is_present(entity, name):
                yield f"is released by {name}, which is no field of its model that always holds {kind.value}"
    for key in entity.kept_apart:
        if not entity.admits_key(key):
            yield f"keeps {key!r} apart, which is no key of it"


def _named(entity: Entity) -> Iterator[str]:
    """Yield every field that a description names."""
    yield from (*entity.key, *entity.beside, *entity.narrow, *entity.filled)
    for index in entity.indexes:
        yield from (*index.names, *(condition.field for condition in index.where))
    if entity.retention is not None:
        yield from (entity.retention.field, *(condition.field for condition in entity.retention.where))
    if entity.parent is not None:
        yield entity.parent.field
    yield from entity.columns
    yield from (name for name in (entity.tenancy.field, entity.sequence, entity.own_id) if name is not None)


def is_present(entity: Entity, name: str, where: tuple[Condition, ...] = ()) -> bool:
    """Whether every row that satisfies some conditions has a field."""
    if any(item.field == name and not isinstance(item, IsNull) for item in where):
        return True
    for marker in entity.storage:
        if marker.name == name:
            return marker.required
    shape = entity.shapes.get(name)
    return shape is None or shape.always_written
