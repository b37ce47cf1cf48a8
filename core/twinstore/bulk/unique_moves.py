"""Unique values that move between rows: which rows can be written together, what is in the way of others.

Two rows that swap their names cannot be written one after the other: each finds its new name taken by what
the other one was. Together they can, after a driver has taken their old values out of the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from twinstore.access.protocol import UniqueKey
from twinstore.access.query import holds
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import DocumentDecodeError

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key

__all__ = [
    "INDEX_TAKEN",
    "UNIQUE_VALUE_TAKEN",
    "UniqueConflict",
    "conflict_reason",
    "index_taken",
    "noun_of",
    "unique_conflicts",
    "unique_keys",
    "without_holder",
]


# How every such reason begins, by which a copy knows the rows that are worth another attempt.
UNIQUE_VALUE_TAKEN: Final = "a unique value is held by another row of the target"
# The same where the row that has it was not looked for.
INDEX_TAKEN: Final = "a unique value of index"
# Between the value and the row that has it.
HOLDER: Final = " by the "
# Of one question to the store.
LOOKUP_BATCH: Final = 500
# The name of an index and the values.
Value: TypeAlias = tuple[str, tuple[str | int, ...]]


@dataclass(frozen=True, slots=True)
class UniqueConflict:
    """What keeps a row from being written: the holder of one of its unique values.

    Attributes:
        index: the unique index.
        holder: the key of the row that has the value, ``None`` where that row cannot be read.
    """

    index: Index
    holder: Key | None


def unique_keys(entity: Entity, record: Record) -> Iterator[UniqueKey]:
    """Yield the unique values that a record occupies besides its key; absent values are never taken."""
    model, storage = record.model, record.storage
    if model is None:
        return
    for index in entity.uniques:
        values = tuple(entity.value(model, storage, name) for name in index.names)
        present = tuple(value for value in values if isinstance(value, (str, int)))
        if len(present) == len(values) and all(
            holds(item, entity.value(model, storage, item.field)) for item in index.where
        ):
            yield UniqueKey(index, present)


def unique_conflicts(access: Access, entity: Entity, records: Sequence[Record]) -> dict[Key, UniqueConflict]:
    """Return what is in the way of each record that cannot be written together with the others.

    Args:
        access: the rows of the target, inside the transaction that is to write.
        entity: whose records they are.
        records: those whose rows are new or differ from what is stored; each has a model and a key.
    """
    wanted = {record.key: list(unique_keys(entity, record)) for record in records if record.key is not None}
    holders = holders_of(access, entity, [unique for uniques in wanted.values() for unique in uniques])
    # Of several that want the same value the one that has it keeps it, else the first gets it.
    owners = {
        value_of(unique): key
        for key, uniques in wanted.items()
        for unique in uniques
        if holders.get(value_of(unique)) == key
    }
    found: dict[Key, UniqueConflict] = {}
    for key, uniques in wanted.items():
        for unique in uniques:
            owner = owners.setdefault(value_of(unique), key)
            if owner != key:
                found.setdefault(key, UniqueConflict(unique.index, owner))
    # A record that stays away leaves its row as it is, which then is in the way of others.
    while stuck := dict(_blocked(wanted, holders, found)):
        found |= stuck
    return found


def _blocked(
    wanted: Mapping[Key, Sequence[UniqueKey]],
    holders: Mapping[Value, Key | None],
    found: Mapping[Key, UniqueConflict],
) -> Iterator[tuple[Key, UniqueConflict]]:
    """Yield the records that want what a row keeps which is not going to be written."""
    for key, uniques in wanted.items():
        for unique in uniques if key not in found else ():
            value = value_of(unique)
            holder = holders.get(value, key)
            if holder != key and (holder not in wanted or holder in found):
                yield key, UniqueConflict(unique.index, holder)


def holders_of(access: Access, entity: Entity, uniques: Sequence[UniqueKey]) -> dict[Value, Key | None]:
    """Return the key of the row that has each unique value; values that no row has are omitted."""
    found: dict[Value, Key | None] = {}
    for start in range(0, len(uniques), LOOKUP_BATCH):
        some = uniques[start : start + LOOKUP_BATCH]
        try:
            found |= _find_holders(access, entity, some)
        except DocumentDecodeError:
            for unique in some:
                found |= _find_single_holder(access, entity, unique)
    return found


def _find_single_holder(access: Access, entity: Entity, unique: UniqueKey) -> dict[Value, Key | None]:
    try:
        return _find_holders(access, entity, [unique])
    except DocumentDecodeError:
        # There is one, and nothing more is known about it.
        return {value_of(unique): None}


def _find_holders(access: Access, entity: Entity, uniques: Sequence[UniqueKey]) -> dict[Value, Key | None]:
    rows = access.find(entity, ALL_TENANTS, tuple(uniques))
    return {
        value_of(unique): entity.key_of(row.model, row.storage)
        for unique, row in zip(uniques, rows, strict=True)
        if row is not None
    }


def value_of(unique: UniqueKey) -> Value:
    """Return a unique value as a key of a dictionary; an index has lists, which none can be."""
    return unique.index.name, unique.values


def noun_of(index: Index) -> str:
    """Return what reasons call the value of a unique index."""
    return index.noun or ", ".join(index.names)


def index_taken(index: Index) -> str:
    """Return why a row was not written whose value of an index another row has that was not looked for."""
    return f"{INDEX_TAKEN} {index.name} is taken in the target"


def conflict_reason(entity: Entity, conflict: UniqueConflict) -> str:
    """Return why a record was not written: which value is taken, and by which row."""
    what = noun_of(conflict.index)
    if conflict.holder is None:
        return f"{UNIQUE_VALUE_TAKEN}: its {what} by a {entity.singular} that cannot be read"
    return f"{UNIQUE_VALUE_TAKEN}: its {what}{HOLDER}{entity.singular} {entity.key_text(conflict.holder)!r}"


def without_holder(reason: str) -> str:
    """Return such a reason without the row that has the value, so that equal reasons are equal texts."""
    head, separator, _ = reason.partition(HOLDER)
    return f"{head} by another row" if separator and reason.startswith(UNIQUE_VALUE_TAKEN) else reason
