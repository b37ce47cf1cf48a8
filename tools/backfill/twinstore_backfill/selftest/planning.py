"""Which corruption goes into which row: each has its own, and rows are copied until there are enough."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from twinstore.planting import Role
from twinstore_backfill.selftest.held import of_released
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.selftest.mutations import Mutation, mutations_of
from twinstore_backfill.selftest.rows import row_mutations
from twinstore_backfill.selftest.spots import spots_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore.planting import Planter, RawRow, StoredPlace

__all__ = ["Field", "Plan", "Planned", "Surroundings"]

Identity = tuple[str, str, str]
# To choose among: where a server refuses one for its neighbours, it may take the next.
CANDIDATES: Final = 40
# The parent of other rows cannot go or take another key without them.
MOVING: Final = frozenset({Kind.ROW_MISSING})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rows of an entity have in common.

    Attributes:
        places: the places of its rows.
        taken: the values that rows have there, by name of the place.
        referenced: keys of rows that rows of other entities name as their parent.
        tenants: all tenants.
        spare: keys of parents without a row of this entity.
    """

    entity: Entity
    planter: Planter
    places: tuple[StoredPlace, ...]
    taken: Mapping[str, AbstractSet[object]]
    referenced: AbstractSet[Key]
    tenants: Sequence[str]
    spare: Sequence[Key] = ()

    def mutation(self, row: RawRow, identity: Identity) -> Mutation | None:
        """Return one corruption of a row, ``None`` where the row has no place for it."""
        return next((item for item in self.mutations(row, identity[0]) if item.identity == identity), None)

    def mutations(self, row: RawRow, pattern: str = "") -> Iterator[Mutation]:
        """Yield every corruption of a row; with a pattern those of that field, and of the row as a whole."""
        spots = spots_of(self.entity, row, self.places, tabular=self.planter.tabular, wanted=pattern)
        for spot in spots:
            taken = self.taken.get(spot.place.name, frozenset()) if spot.at_top else frozenset()
            yield from of_released(self.entity, spot, mutations_of(spot, self.planter, taken))
        yield from row_mutations(
            self.entity, row, self.places, self.tenants, self.spare, tabular=self.planter.tabular
        )

    def tenant_of(self, row: RawRow) -> str | None:
        """Return the tenant of a row, ``None`` where it names none."""
        field = self.entity.tenant_field
        name = next((place.name for place in self.places if place.field == field), None)
        value = None if name is None else row.values.get(name)
        return value if isinstance(value, str) else None

    def admits(self, row: RawRow, mutation: Mutation) -> bool:
        """Whether nothing but this row changes by it."""
        moves = mutation.kind in MOVING or mutation.role is Role.KEY
        return not (moves and row.key in self.referenced)


@dataclass(slots=True)
class Field:
    """One corruption of an entity, wherever it may be planted.

    Attributes:
        rows: the rows that it fits into, as many as are worth trying.
        like: the row to make copies of; ``None`` where no copy would have the place, as a key that follows
            from the content.
    """

    rows: list[Key] = field(default_factory=list["Key"])
    like: Key | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """One corruption with the rows into which it may go, the first of them its own.

    Attributes:
        row: its row; ``None`` where it still has to be made as the copy ``number`` of ``like``.
    """

    identity: Identity
    row: Key | None
    like: Key
    number: int = 0


@dataclass(slots=True)
class Plan:
    """What is planted into one entity of one store."""

    around: Surroundings
    planned: list[Planned] = field(default_factory=list[Planned])

    @classmethod
    def of(cls, around: Surroundings, rows: Sequence[RawRow], made: AbstractSet[Key]) -> Plan:
        """Give every corruption a row of its own; where there is none left it asks for a copy."""
        fields = candidates(around, rows, made)
        used: set[Key] = set()
        copies: Counter[Key] = Counter()
        plan = cls(around)
        # Those that no copy could hold choose first, then those that fit into few rows.
        order = sorted(
            fields.items(), key=lambda item: (item[1].like is not None, len(item[1].rows), item[0])
        )
        for identity, found in order:
            own = next((key for key in found.rows if key not in used), None)
            like = own or found.like or found.rows[0]
            if own is None:
                copies[like] += 1
            else:
                used.add(own)
            plan.planned.append(Planned(identity, own, like, copies[like]))
        return plan

    def needed(self) -> Counter[Key]:
        """Return how many copies of which rows are asked for."""
        return Counter(item.like for item in self.planned if item.row is None)

    def settled(self, copies: Mapping[tuple[Key, int], Key]) -> list[Planned]:
        """Return what is planted, once the copies are made; a row that could not be made is ``None``."""
        return [
            item if item.row is not None else replace(item, row=copies.get((item.like, item.number)))
            for item in self.planned
        ]


def candidates(around: Surroundings, rows: Sequence[RawRow], made: AbstractSet[Key]) -> dict[Identity, Field]:
    """Return every corruption with the rows that it fits into."""
    fields: dict[Identity, Field] = {}
    # Made rows last: the user's own are the better test, and the made ones are there for what these lack.
    for row in sorted(
        (row for row in rows if row.key is not None), key=lambda row: (row.key in made, row.key)
    ):
        for mutation in around.mutations(row):
            if not around.admits(row, mutation):
                continue
            found = fields.setdefault(mutation.identity, Field())
            if len(found.rows) < CANDIDATES:
                found.rows.append(row.key or ())
            if found.like is None and row.key in made:
                found.like = row.key
    return fields
