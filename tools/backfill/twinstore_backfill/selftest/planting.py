"""Planting what was planned, and taking it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.planting import PlantRefusedError, Role
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.verify.differences import member

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore.planting import Planter, RawRow
    from twinstore_backfill.selftest.mutations import Mutation
    from twinstore_backfill.selftest.planning import Planned, Surroundings

__all__ = ["Expected", "Planted", "Refused", "plant", "undo"]

ADDING: Final = frozenset({Kind.ROW_UNDER_OTHER_KEY, Kind.ROW_UNDER_OTHER_TENANT})
# Rows tried in turn where another row is in the way of the first.
ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Expected:
    """One row that the verification must name.

    Attributes:
        kind: what the verification calls it.
        key: its key.
        paths: one of these must be named, or what lies below it.
        also: what may be named beside them, because it follows.
    """

    kind: str
    key: Key | None
    paths: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planted:
    """One corruption that stands in a store.

    Attributes:
        mutation: what was done.
        key: the row it was done to.
        origin: the row from which it was made.
        before, after: the row; ``None`` where there was or is none.
        expected: what the verification must name; nothing where the definition leaves the value free.
        tenant: whose row it is before and after, ``None`` where that changes.
    """

    entity: Entity
    mutation: Mutation
    key: Key
    origin: RawRow
    before: RawRow | None
    after: RawRow | None
    expected: tuple[Expected, ...]
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """One corruption that the server does not hold, and what refuses it.

    Attributes:
        again: what was planned, where another row was in the way, which may be one that was planted.
    """

    entity: str
    mutation: Mutation
    constraint: str
    again: Planned | None = None


def plant(around: Surroundings, rows: Mapping[Key, RawRow], planned: Planned) -> Planted | Refused | None:
    """Plant one corruption; ``None`` where the row has no place for it any more."""
    row = rows.get(planned.row) if planned.row is not None else None
    if row is None or row.key is None:
        return None
    mutation = around.mutation(row, planned.identity)
    if mutation is None:
        return None
    try:
        return _planted(around, row, row.key, mutation)
    except PlantRefusedError as error:
        return Refused(around.entity.name, mutation, error.constraint, planned if error.unique else None)


def _planted(around: Surroundings, row: RawRow, key: Key, mutation: Mutation) -> Planted:
    entity, change = around.entity, around.planter.change
    values = mutation.build(row.values)
    if mutation.kind is Kind.ROW_MISSING:
        change(entity, row, None)
        return Planted(entity, mutation, key, row, row, None, (Expected("missing", key),))
    if mutation.kind in ADDING:
        after = change(entity, None, values)
        found = None if after is None else after.key
        return Planted(entity, mutation, key, row, None, after, (Expected("extra", found),))
    after = change(entity, row, values)
    tenant = None if mutation.role in {Role.KEY, Role.TENANT} else around.tenant_of(row)
    return Planted(entity, mutation, key, row, row, after, expected(entity, mutation, key, after), tenant)


def expected(entity: Entity, mutation: Mutation, key: Key, after: RawRow | None) -> tuple[Expected, ...]:
    """Return what must be named of a changed row."""
    if mutation.free:
        return ()
    found = None if after is None else after.key
    # A key in a payload goes with it, whatever was meant to change there.
    if (mutation.role is Role.KEY or entity.key_in_payload is not None) and found != key:
        return (Expected("missing", key), Expected("extra", found))
    # An id that followed from the content does so no more, and becomes a part of it.
    also = () if entity.derived_key is None else tuple(member("doc", name) for name in entity.key)
    paths = mutation.paths
    if entity.own_id is not None and member("doc", entity.own_id) in paths:
        # Under another name it leaves its place to an id that the server makes.
        paths = (*paths, member("doc", "_id"))
    return (Expected("different", key, paths, also),)


def undo(planter: Planter, planted: Iterable[Planted]) -> None:
    """Take back what was planted, the last first."""
    for item in reversed(list(planted)):
        planter.change(item.entity, item.after, None if item.before is None else item.before.values)
