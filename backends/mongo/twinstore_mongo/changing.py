"""Reading some rows, letting a rule decide, and writing what it returns."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from twinstore.access import Row, UniqueKey
from twinstore.canonical import CanonicalModel
from twinstore.errors import ConcurrencyError, DuplicateError
from twinstore_mongo.codec import codec_of
from twinstore_mongo.context import translating
from twinstore_mongo.parents import check_parent
from twinstore_mongo.reading import one, several
from twinstore_mongo.writes import insert, rival, swap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.access import Ref, Rows, Rule
    from twinstore.catalog import Entity
    from twinstore.tenancy import Tenants
    from twinstore_mongo.connection import Document
    from twinstore_mongo.context import RepositoryContext
    from twinstore_mongo.parents import Held

__all__ = ["RuleEndedError", "apply", "insert_row"]

M = TypeVar("M", bound=CanonicalModel)


class RuleEndedError(Exception):
    """Carries the error with which a rule ended its step past everything that repeats steps."""

    def __init__(self, error: ConcurrencyError) -> None:
        super().__init__(str(error))
        self.error = error


def insert_row(
    context: RepositoryContext, entity: Entity[M], scope: Tenants, row: Row[M], held: Held = ()
) -> None:
    """Insert a row below its parent.

    Raises:
        NotFoundError: the parent is absent or foreign.
        DuplicateError: the key or a unique value is taken.
    """
    check_parent(context, entity, scope, row, held)
    insert(context, entity, row)


def apply(context: RepositoryContext, refs: Sequence[Ref], rule: Rule) -> Rows:
    """Take one step over some rows; see :meth:`twinstore.access.Access.change`.

    Raises:
        ConcurrencyError: another writer was faster.
    """
    found = documents_of(context, refs)
    before: Rows = tuple(
        None if document is None else codec_of(ref.entity).decode(document)
        for ref, document in zip(refs, found, strict=True)
    )
    try:
        after = rule(before, lambda: server_time(context))
    except ConcurrencyError as error:
        # The answer of the rule, not a lost race: repeating the step would only ask it again.
        raise RuleEndedError(error) from error
    entities = [ref.entity for ref in refs]
    # A parent that this step reads or writes is known to exist, which saves the round trip that asks.
    held: Held = ()
    if any(entity.parent is not None for entity in entities):
        there = [*zip(entities, before, strict=True), *zip(entities, after, strict=True)]
        held = tuple((entity, row) for entity, row in there if row is not None)
    # Parents first: without transactions nobody is to see a row whose parent is not there yet.
    for ref, document, old, new in sorted(zip(refs, found, before, after, strict=True), key=depth_of):
        if new is not None:
            write(context, ref, document, old, new, held)
    return tuple(old if new is None else new for old, new in zip(before, after, strict=True))


def documents_of(context: RepositoryContext, refs: Sequence[Ref]) -> list[Document | None]:
    """Return the document of each ref; those of one entity come in one round trip."""
    if len(refs) == 1:
        return [one(context, refs[0].entity, refs[0].scope, refs[0].key)]
    alike: dict[tuple[Entity, Tenants, str], list[int]] = {}
    for place, ref in enumerate(refs):
        kind = ref.key.index.name if isinstance(ref.key, UniqueKey) else ""
        alike.setdefault((ref.entity, ref.scope, kind), []).append(place)
    found: list[Document | None] = [None] * len(refs)
    for (entity, scope, _), places in alike.items():
        documents = several(context, entity, scope, [refs[place].key for place in places])
        for place, document in zip(places, documents, strict=True):
            found[place] = document
    return found


def depth_of(item: tuple[Ref, *tuple[object, ...]]) -> int:
    """Return how many ancestors the row of a write has."""
    return item[0].entity.depth


def write(  # noqa: PLR0917  # what was found, what it means, and what is to be there
    context: RepositoryContext,
    ref: Ref[Any],
    document: Document | None,
    old: Row[Any] | None,
    new: Row[Any],
    held: Held,
) -> None:
    """Insert a row, or replace the one that was found.

    An equal one is written only where its version counts: elsewhere the server would neither store it nor
    notice it.
    """
    entity = ref.entity
    if document is None:
        insert_absent(context, ref, new, held)
    elif entity.versioned or new != old:
        swap(context, entity, ref.scope, document, new)


def insert_absent(context: RepositoryContext, ref: Ref[M], row: Row[M], held: Held) -> None:
    """Insert a row that was not there when it was looked for."""
    try:
        insert_row(context, ref.entity, ref.scope, row, held)
    except DuplicateError as error:
        raise rival(context, ref.entity, ref.scope, ref.key, error) from error.__cause__


def server_time(context: RepositoryContext) -> datetime:
    """Return the time by the clock of the server."""
    with translating(context.store.where.reading):
        return context.store.now()
