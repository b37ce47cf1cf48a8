"""The operations of the access as values that can be drawn, printed and performed on any driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from tests.differential.access_generators import (
    BATCH,
    CHANGEABLE,
    COUNTED,
    ENTITIES,
    EVERYTHING,
    LOGS,
    MARKED,
    OURS,
    AccessGenerator,
    AnyRow,
)
from twinstore.access.protocol import Ref
from twinstore.access.query import Query, build_query, query_of_key
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import NO_TENANT
from twinstore.errors import ValidationError
from twinstore.testing.datasets import DEVICE, NOTE, Dataset, factory_of
from twinstore.testing.entities import DEVICES
from twinstore.testing.workspace import all_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twinstore.access.protocol import Access, Moment, Rows, Sets, UniqueKey
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants


@dataclass(frozen=True)
class Find:
    """Look rows up, all by key or all by a unique value."""

    entity: Entity[Any]
    scope: Tenants
    keys: tuple[Key | UniqueKey, ...]

    def __call__(self, access: Access) -> object:
        return access.find(self.entity, self.scope, self.keys)


@dataclass(frozen=True)
class ListAll:
    """Turn all pages of a list."""

    entity: Entity[Any]
    query: Query

    def __call__(self, access: Access) -> object:
        def page(token: str | None) -> Any:  # noqa: ANN401  # pages of any entity
            query = self.query
            return access.page(
                self.entity,
                build_query(
                    query.entity,
                    scope=query.scope,
                    where=query.where,
                    order=query.order,
                    limit=query.limit,
                    maximum=EVERYTHING,
                    page_token=token,
                ),
            )

        return tuple(all_pages(page)), page(None)


@dataclass(frozen=True)
class CountBy:
    """Count the rows of a list."""

    entity: Entity[Any]
    query: Query
    by: str

    def __call__(self, access: Access) -> object:
        return access.count(self.entity, self.query, self.by)


@dataclass(frozen=True)
class AccessUnderTest:
    """Insert or put a row."""

    way: str
    entity: Entity[Any]
    scope: Tenants
    row: AnyRow

    def __call__(self, access: Access) -> object:
        write: Callable[..., object] = getattr(access, self.way)
        return write(self.entity, self.scope, self.row)


@dataclass(frozen=True)
class Answer:
    """What a rule does to one row.

    ``keep`` returns none, ``same`` what was given, ``other`` other content under whatever key was given, or a
    new row; ``refuse`` raises.
    """

    kind: str
    row: AnyRow
    change: Mapping[str, object]

    def __call__(self, given: AnyRow | None) -> AnyRow | None:
        if self.kind == "refuse":
            raise ValidationError("refused by the rule")
        if self.kind == "keep":
            return None
        if given is None:
            return self.row
        return given if self.kind == "same" else Row(given.model.evolve(**self.change), given.storage)


@dataclass(frozen=True)
class ChangeRows:
    """Take one step over some rows."""

    refs: tuple[Ref[Any], ...]
    answers: tuple[Answer, ...]

    def __call__(self, access: Access) -> object:
        def rule(rows: Rows, now: Moment) -> Rows:
            del now
            return tuple(answer(row) for answer, row in zip(self.answers, rows, strict=True))

        return access.change(self.refs, rule)


@dataclass(frozen=True)
class MarkFirst:
    """Set fields of the first rows of a list."""

    entity: Entity[Any]
    query: Query
    sets: Sets

    def __call__(self, access: Access) -> object:
        return access.mark(self.entity, self.query, self.sets)


@dataclass(frozen=True)
class AppendRows:
    """Append to a log."""

    entity: Entity[Any]
    parent: Ref[Any]
    rows: tuple[AnyRow, ...]

    def __call__(self, access: Access) -> object:
        return access.append(self.entity, self.parent, self.rows)


@dataclass(frozen=True)
class RemoveFirst:
    """Remove the first rows of a list."""

    entity: Entity[Any]
    query: Query

    def __call__(self, access: Access) -> object:
        return access.remove(self.entity, self.query)


AccessOperation = (
    Find | ListAll | CountBy | AccessUnderTest | ChangeRows | MarkFirst | AppendRows | RemoveFirst
)


def a_find(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(ENTITIES)
    dataset = generator.a_dataset(entity)
    unique = generator.a_unique(entity) if generator.randrange(3) == 0 else None
    keys: tuple[Key | UniqueKey, ...]
    if unique is not None:
        keys = (unique,)
    else:
        keys = tuple(generator.a_key(entity, dataset) for _ in range(generator.randint(1, 4)))
    return Find(entity, generator.a_scope(dataset.owner), keys)


def a_list(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(ENTITIES)
    return ListAll(entity, generator.a_query(entity))


def a_count(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(ENTITIES)
    return CountBy(entity, generator.a_query(entity), generator.choice(COUNTED[entity.name]))


def a_store(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(ENTITIES)
    dataset = generator.a_dataset(entity)
    way = generator.choice(("insert", "put", "put"))
    return AccessUnderTest(way, entity, generator.a_scope(dataset.owner), generator.a_row(entity, dataset))


def a_change(generator: AccessGenerator) -> AccessOperation:
    refs: list[Ref[Any]] = []
    answers: list[Answer] = []
    for _ in range(generator.choice((1, 1, 2, 3))):
        entity = generator.choice(ENTITIES)
        dataset = generator.a_dataset(entity)
        row = generator.a_row(entity, dataset)
        unique = generator.a_unique(entity) if generator.randrange(4) == 0 else None
        key = entity.key_of(row.model, row.storage) if unique is None else unique
        ref = Ref(entity, generator.a_scope(dataset.owner), key)
        if not any(other.entity == entity for other in refs):  # no row may stand in a step twice
            refs.append(ref)
            kind = generator.choice(("keep", "same", *(["other"] * 8), "refuse"))
            answers.append(Answer(kind, row, factory_of(entity).change))
    return ChangeRows(tuple(refs), tuple(answers))


def a_mark(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(CHANGEABLE)
    return MarkFirst(entity, generator.a_query(entity), generator.choice(MARKED[entity.name]))


def an_append(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(LOGS)
    dataset = generator.a_dataset(entity)
    rows = [generator.a_row(entity, dataset) for _ in range(generator.randint(1, 4))]
    assert entity.parent is not None
    parent = entity.value(rows[0].model, {}, entity.parent.field)
    alike = [row for row in rows if entity.value(row.model, {}, entity.parent.field) == parent]
    free = [
        Row(row.model.evolve(sequence=None)) if generator.random() < 0.6 else row  # the store numbers it
        for row in (alike if generator.randrange(8) else rows)
    ]
    ref = Ref(entity.parent.entity, generator.a_scope(dataset.owner), (str(parent),))
    return AppendRows(entity, ref, tuple(free))


def a_removal(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(CHANGEABLE)
    dataset = generator.a_dataset(entity)
    if generator.random() < 0.4:
        query = query_of_key(entity, generator.a_scope(dataset.owner), generator.a_key(entity, dataset))
        return RemoveFirst(entity, query)
    return RemoveFirst(entity, generator.a_query(entity, limits=(1, 1, 2)))


# Each with its weight.
MAKERS: Final[dict[Callable[[AccessGenerator], AccessOperation], int]] = {
    a_store: 10,
    a_change: 6,
    an_append: 5,
    a_mark: 4,
    a_find: 3,
    a_list: 4,
    a_count: 2,
    a_removal: 3,
}
FIRST: Final = (
    *(
        AccessUnderTest("put", factory.entity, OURS, factory.row(Dataset(OURS, BATCH), number))
        for number in (0, 1)
        for factory in (NOTE, DEVICE)
        if (factory, number) != (DEVICE, 1)
    ),
    AccessUnderTest("put", DEVICES, NO_TENANT, DEVICE.row(Dataset(NO_TENANT, BATCH), 1)),
)
"""Parents, so that their children find them."""
LATEST_SEED: Final = 2**32 - 1
access_seeds: Final = st.integers(0, LATEST_SEED)
access_histories: Final = st.lists(access_seeds, min_size=5, max_size=25)


def access_operation(seed: int, owner_case: Tenants) -> AccessOperation:
    """Return the operation that follows from a seed, within a scope."""
    generator = AccessGenerator(seed, owner_case)
    return generator.choices(list(MAKERS), list(MAKERS.values()))[0](generator)


def a_read(seed: int, owner_case: Tenants) -> AccessOperation:
    """Return an operation that only reads."""
    generator = AccessGenerator(seed, owner_case)
    return generator.choice((a_find, a_list, a_count))(generator)
