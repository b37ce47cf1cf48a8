"""Claiming due triggers: a page in four round trips, and two more for each round that other workers win.

An update of several documents only counts them. So it sets a holder that no other call has, by which the
documents are found; a second update sets the real one. A worker that dies in between leaves a holder that
nobody is, until the lease ends.
"""

from __future__ import annotations

from dataclasses import replace
from random import sample
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.scheduler.catalog import TRIGGERS
from twinstore.scheduler.repositories.schedules import CLAIM
from twinstore_mongo.access.marking import readable_ids, set_to
from twinstore_mongo.access.queries import compiled
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.layout import ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.access.protocol import FieldUpdates
    from twinstore.access.query import Query
    from twinstore.catalog.row import Row
    from twinstore.scheduler.triggers import Trigger
    from twinstore_mongo.access.access import MongoAccess, Special
    from twinstore_mongo.access.execution import RepositoryContext

T = TypeVar("T")
# How many times as many triggers as are wanted are read at most: of more, those that lose meet often enough.
WIDEST: Final = 16

CODEC: Final = codec_of(TRIGGERS)
HOLDER: Final = CODEC.names["claimedBy"]


def claim(access: MongoAccess, query: Query, sets: FieldUpdates) -> tuple[Row[Trigger], ...]:
    """Claim the first triggers of a list."""
    seen = query.limit
    while found := readable_ids(access.context, TRIGGERS, replace(query, limit=seen)):
        claimed = claim_each(access.context, query, some(found, query.limit), sets)
        if claimed:
            return claimed
        # Others were faster with all of them. Not the next ones, which those who lost want as well.
        seen = min(4 * seen, WIDEST * query.limit)
    return ()


def some(items: Sequence[T], number: int) -> list[T]:
    """Return so many items in their order, at random where there are more."""
    return [items[place] for place in sorted(sample(range(len(items)), min(number, len(items))))]


def claim_each(
    context: RepositoryContext, query: Query, ids: Sequence[object], sets: FieldUpdates
) -> tuple[Row[Trigger], ...]:
    """Claim those of some triggers that are still free; return them as they are then."""
    holder = token_hex(16)
    among = {ID: {"$in": ids}}
    free = {**among, "$and": [compiled(CODEC, query)]}
    with context.independent_steps() as steps, context.following() as causal, causal.writing(TRIGGERS):
        triggers = context.collection(TRIGGERS)
        taken = [{"$set": set_to(CODEC, {**sets, "claimedBy": holder})}]
        if not triggers.update_many(free, taken, session=causal.session).modified_count:
            return ()
        steps.done()
        own = {**among, HOLDER: holder}
        found = {row[ID]: row for row in map(converted, triggers.find(own, session=causal.session))}
        triggers.update_many(own, {"$set": {HOLDER: sets["claimedBy"]}}, session=causal.session)
    return tuple(CODEC.decode({**found[key], HOLDER: sets["claimedBy"]}) for key in ids if key in found)


OPERATIONS: Final[Mapping[str, Special]] = {CLAIM: claim}
