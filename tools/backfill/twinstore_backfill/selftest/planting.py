"""Planting what was planned, and taking it back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from twinstore.planting import PlantRefusedError, Role
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.verify.differences import member

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore.planting import Planter, RawRow
    from twinstore_backfill.selftest.mutations import Mutation
    from twinstore_backfill.selftest.planning import Planned, Surroundings

__all__ = ["AT_ONCE", "Expected", "Planted", "Refused", "plant", "plant_all", "undo"]

ADDING: Final = frozenset({Kind.ROW_UNDER_OTHER_KEY, Kind.ROW_UNDER_OTHER_TENANT})
# Changes that go to a server together; a stop waits for no more than these.
AT_ONCE: Final = 200


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
    (done,) = plant_all(around, rows, [planned])
    return done


def plant_all(
    around: Surroundings, rows: Mapping[Key, RawRow], planned: Sequence[Planned]
) -> list[Planted | Refused | None]:
    """Plant corruptions of different rows and return what came of each, in their order.

    ``None`` where a row has no place for one any more.
    """
    drafts = [_draft(around, rows, item) for item in planned]
    changes = [draft.change for draft in drafts if draft is not None]
    made = iter(around.planter.change_all(around.entity, changes))
    return [None if draft is None else draft.done(around, next(made)) for draft in drafts]


@dataclass(frozen=True, slots=True)
class Draft:
    """A corruption that is about to be planted into a row."""

    planned: Planned
    mutation: Mutation
    row: RawRow
    key: Key

    @property
    def change(self) -> tuple[RawRow | None, Mapping[str, object] | None]:
        """What stands there, and what shall stand there."""
        if self.mutation.kind is Kind.ROW_MISSING:
            return self.row, None
        return (None if self.mutation.kind in ADDING else self.row), self.mutation.build(self.row.values)

    def done(self, around: Surroundings, after: RawRow | PlantRefusedError | None) -> Planted | Refused:
        """Return what came of it."""
        entity, mutation, row, key = around.entity, self.mutation, self.row, self.key
        if isinstance(after, PlantRefusedError):
            again = self.planned if after.unique else None
            return Refused(entity.name, mutation, after.constraint, again)
        if mutation.kind is Kind.ROW_MISSING:
            return Planted(entity, mutation, key, row, row, None, (Expected("missing", key),))
        if mutation.kind in ADDING:
            found = None if after is None else after.key
            return Planted(entity, mutation, key, row, None, after, (Expected("extra", found),))
        tenant = None if mutation.role in {Role.KEY, Role.TENANT} else around.tenant_of(row)
        wanted = expected(entity, mutation, key, after)
        return Planted(entity, mutation, key, row, row, after, wanted, tenant)


def _draft(around: Surroundings, rows: Mapping[Key, RawRow], planned: Planned) -> Draft | None:
    row = rows.get(planned.row) if planned.row is not None else None
    if row is None or row.key is None:
        return None
    mutation = around.mutation(row, planned.identity)
    return None if mutation is None else Draft(planned, mutation, row, row.key)


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


def undo(planter: Planter, planted: Sequence[Planted]) -> list[Planted]:
    """Take back what was planted, the last first, and return each with the row as it stands again.

    Raises:
        PlantRefusedError: the server does not take a row back.
    """
    restored: list[Planted] = []
    for entity, found in groupby(reversed(planted), key=attrgetter("entity")):
        items = list(found)
        for start in range(0, len(items), AT_ONCE):
            restored += _undone(planter, entity, items[start : start + AT_ONCE])
    return restored[::-1]


def _undone(planter: Planter, entity: Entity, items: Sequence[Planted]) -> Iterator[Planted]:
    changes = [(item.after, None if item.before is None else item.before.values) for item in items]
    for item, row in zip(items, planter.change_all(entity, changes), strict=True):
        if isinstance(row, PlantRefusedError):
            raise row
        yield replace(item, before=row, after=None)
