"""Access to the documents of any entity.

A change of one versioned row reads it and replaces it on condition that its ``_version`` is still the one it
read; every other change runs in a transaction of its own. Both are repeated after a lost race, unless they
belong to a transaction that somebody else ends. Servers without transactions write one row after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access import Access, AccessDefaults, Binding
from twinstore.canonical import CanonicalModel
from twinstore.errors import DuplicateError
from twinstore.retrying import repeat
from twinstore_mongo.appending import append
from twinstore_mongo.changing import RuleEndedError, apply, insert_row
from twinstore_mongo.codec import codec_of
from twinstore_mongo.counters import next_number
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.marking import amend, can_set, mark
from twinstore_mongo.parents import check_parent
from twinstore_mongo.reading import count, keys, many, one, page
from twinstore_mongo.removing import remove
from twinstore_mongo.writes import overwrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.access import Ref, Row, Rows, Rule, Sets, UniqueKey, Values
    from twinstore.catalog import Entity, Key
    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore.tenancy import Tenants
    from twinstore_mongo.context import RepositoryContext

__all__ = ["MongoAccess", "Special"]

M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")
Special = Callable[..., object]
"""A statement of this driver for a hot operation; takes the access and the arguments of the general way."""
NO_SPECIALS: Final[Mapping[str, Special]] = MappingProxyType({})


class MongoAccess(AccessDefaults, Access):
    """Implements :class:`~twinstore.access.Access`."""

    def __init__(
        self,
        context: RepositoryContext,
        entities: Sequence[Entity],
        specials: Mapping[str, Special] = NO_SPECIALS,
    ) -> None:
        self.context = context
        self._entities = entities
        self._specials = specials
        # Every call asks for it several times.
        self._alone = Binding(DRIVER, context.scope, context.state, read_only=context.read_only)
        self._in_unit = replace(self._alone, in_unit=True)

    @property
    @override
    def binding(self) -> Binding:
        return self._in_unit if self.context.in_transaction else self._alone

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        if len(keys) != 1:
            return many(self.context, entity, scope, keys) if keys else ()
        document = one(self.context, entity, scope, keys[0])
        return (None if document is None else codec_of(entity).decode(document),)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        return page(self.context, entity, query)

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        return count(self.context, entity, query, by)

    @override
    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        return keys(self.context, entity, query)

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        insert_row(self.context, entity, scope, row)
        return row

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        if entity.append_only:
            self._put_once(entity, scope, row)
        else:
            check_parent(self.context, entity, scope, row)
            self._repeat(lambda: overwrite(self.context, entity, scope, row))
        return row

    def _put_once(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> None:
        """Insert a row that never changes, unless an equal one is there."""
        key = entity.key_of(row.model, row.storage)
        # A refused insert would end a transaction, so there the row is looked up first.
        if self.context.in_transaction and self.find(entity, scope, (key,)) == (row,):
            return
        try:
            insert_row(self.context, entity, scope, row)
        except DuplicateError:
            if self.context.in_transaction or self.find(entity, scope, (key,)) != (row,):
                raise

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        # The version in the condition of the write does what a transaction would, in one round trip less.
        alone = len(refs) == 1 and refs[0].entity.versioned
        try:
            if alone or not self.context.store.capabilities.transactions:
                return self._repeat(lambda: apply(self.context, refs, rule))
            return self.context.atomic(lambda context: apply(context, refs, rule))
        except RuleEndedError as ended:
            raise ended.error from ended.error.__cause__

    @override
    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        if not can_set(entity, sets):
            return super().mark(entity, query, sets)
        return mark(self.context, entity, query, sets)

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        return amend(self.context, entity, query, sets)

    @override
    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        return append(self, entity, parent, rows)

    @override
    def next_number(self, entity: Entity) -> int:
        return next_number(self.context, entity)

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        return remove(self.context, self._entities, entity, query)

    @contextmanager
    @override
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Iterator[Access]:
        del scope  # every call names whose rows it is about
        capabilities = self.context.store.capabilities
        if self.context.in_transaction or not (atomic or capabilities.transactions):
            yield self
            return
        capabilities.require("transactions")
        with self.context.opened() as context:
            yield self.within(context)

    def within(self, context: RepositoryContext) -> MongoAccess:
        """Return the same access in another context."""
        return MongoAccess(context, self._entities, self._specials)

    @override
    def special(self, operation: str) -> Callable[..., object] | None:
        found = self._specials.get(operation)
        return None if found is None else partial(found, self)

    def _repeat(self, action: Callable[[], T]) -> T:
        """Repeat a step after lost races; in a transaction only the whole of it can be repeated."""
        return action() if self.context.in_transaction else repeat(action)
