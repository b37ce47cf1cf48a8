"""Access to the documents of any entity.

A change of one versioned row reads it and replaces it on condition that its ``_version`` is still the one it
read; every other change runs in a separate transaction. Both are repeated after a lost race, unless they
belong to a transaction that the caller ends. Servers without transactions write one row after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from bson.int64 import Int64
from pymongo import ReturnDocument
from pymongo.errors import OperationFailure
from typing_extensions import override

from twinstore.access.defaults import AccessDefaults, Log, key_text_of, keys_of, last_number
from twinstore.access.errors import not_found
from twinstore.access.protocol import Access, Binding
from twinstore.access.retry import retry
from twinstore.catalog.row import Row
from twinstore.errors import DuplicateError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.shapes import has_decimals
from twinstore_mongo.access.changing import (
    RuleEndedError,
    apply,
    insert_row,
    insert_several,
    next_number,
    overwrite,
)
from twinstore_mongo.access.marking import amend, can_set, mark
from twinstore_mongo.access.queries import filter_of, merged, owned_by
from twinstore_mongo.access.reading import check_parent, count, keys, many, one, page
from twinstore_mongo.access.removing import remove
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.layout import ID, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access.paging import Page
    from twinstore.access.protocol import FieldUpdates, Ref, Rows, Rule, UniqueKey, Values
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore_mongo.access.execution import RepositoryContext

M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")
Special = Callable[..., object]
"""A statement of this driver for a hot operation; takes the access and the arguments of the general way."""
NO_SPECIALS: Final[Mapping[str, Special]] = MappingProxyType({})


class MongoAccess(AccessDefaults, Access):
    """Implements :class:`~twinstore.access.protocol.Access`."""

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
    def insert_all(self, entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> None:
        insert_several(self.context, entity, rows)

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        if entity.append_only:
            self._put_once(entity, scope, row)
        elif entity.versioned and (has_decimals(entity.model) or codec_of(entity).holds_free_json):
            # To the server 1, the decimal 1.0 and 1.00 are equal, so that it would keep the old one.
            return super().put(entity, scope, row)
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
    def mark(self, entity: Entity[M], query: Query, sets: FieldUpdates) -> tuple[Row[M], ...]:
        if not can_set(entity, sets):
            return super().mark(entity, query, sets)
        return mark(self.context, entity, query, sets)

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        if not entity.unpathed.isdisjoint(sets):
            return super().amend(entity, query, sets)
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
        return action() if self.context.in_transaction else retry(action)


# Appending to an ordered log: the parent is written, the log looked at, all entries are inserted at once.
#
# One entry costs the parent, the last number, the entry and the commit, each a round trip; a hundred of them
# cost no more.


if TYPE_CHECKING:
    ParentWrite = Callable[[RepositoryContext, Ref], bool]

DOCUMENT_VALIDATION_FAILURE: Final = 121


class UntouchableError(Exception):
    """The validator refuses the parent as it is stored, so it can only be rewritten as a whole."""


def append(access: MongoAccess, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
    """Append to an ordered log; see :class:`twinstore.access.protocol.Access`."""
    context = access.context
    if not context.store.capabilities.transactions and not context.in_transaction:
        # Stores without locks find out when they write that another append was faster.
        return retry(lambda: attempt(access, entity, parent, rows, rewrite_parent))
    # In the transaction of a caller no statement may fail if there is another way to do the work.
    if not context.in_transaction and parent.entity.versioned and parent.entity.parent is None:
        try:
            return context.atomic(
                lambda inner: attempt(access.within(inner), entity, parent, rows, count_parent_change)
            )
        except UntouchableError:
            pass  # rolled back; the general path may repair the parent
    return context.atomic(lambda inner: attempt(access.within(inner), entity, parent, rows, rewrite_parent))


def attempt(
    access: MongoAccess, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]], write_parent: ParentWrite
) -> tuple[Row[M], ...]:
    """Append once.

    The parent is written although nothing in it changes, so that appends to it come one after the other from
    here to the commit. Everything is decided before anything is inserted, so that a refusal leaves the
    transaction of a caller as it was.
    """
    if not write_parent(access.context, parent):
        raise not_found(parent.entity, key_text_of(parent), DRIVER)
    keys = keys_of(entity, rows)
    found = access.find(entity, parent.scope, keys) if keys else ()
    stored = [row for row in found if row is not None]
    log = Log(entity, DRIVER, stored, lambda: last_number(access, entity, parent))
    appended = tuple(map(log.place, rows))
    if log.new:
        insert_several(access.context, entity, log.new)
    return appended


def rewrite_parent(context: RepositoryContext, parent: Ref) -> bool:
    """Read the parent and write it as it is; return whether it is there."""
    (parent_row,) = apply(context, [parent], lambda found, _: found)
    return parent_row is not None


def count_parent_change(context: RepositoryContext, parent: Ref) -> bool:
    """Count a change of the parent, and return whether it is there: one round trip instead of two.

    The server returns only the key of the parent: the parent may be large, and its log does not need it.

    Raises:
        UntouchableError: another program wrote it in a form that the validator refuses.
    """
    codec = codec_of(parent.entity)
    condition = merged((filter_of(codec, parent.key), owned_by(codec, parent.scope)))
    with context.writing(parent.entity, parent.key):
        collection = context.collection(parent.entity)
        try:
            change = {"$inc": {VERSION: Int64(1)}}
            found = collection.find_one_and_update(
                condition, change, {ID: 1}, return_document=ReturnDocument.AFTER, session=context.session
            )
        except OperationFailure as error:
            if error.code == DOCUMENT_VALIDATION_FAILURE:
                raise UntouchableError from error
            raise
    return found is not None
