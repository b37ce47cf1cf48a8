"""Ranges whose workers died: cut in two by their keys, until the row that kills them is alone.

Nothing but keys is read of such a range. All other rows of it are copied; the row is named in quarantine.
"""

from __future__ import annotations

from dataclasses import replace
from logging import getLogger
from typing import TYPE_CHECKING, Final

from twinstore.access.query import Query, key_order
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.ledger import QuarantineLine, Suspicion
from twinstore.ledger.models import key_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.ledger import Claim, Ledger

log = getLogger(__name__)

DIED: Final = "its workers died"
KEYS_AT_ONCE: Final = 1000


def isolate(source: BulkPort, ledger: Ledger, entity: Entity, claim: Claim) -> bool:
    """Come closer to the row of a range that kills workers; return whether the range may be copied as it is.

    Raises:
        LeaseLostError: the range was taken over.
    """
    keys = list(keys_in(source, entity, claim.within))
    if not keys:
        return True
    middle = len(keys) // 2
    if middle:
        sizes = middle, len(keys) - middle
        lower, upper = (Suspicion.ROW if size == 1 else Suspicion.PART for size in sizes)
        ledger.split(claim, keys[middle], lower=lower, upper=upper)
        log.warning("range %d of %s is cut in two, because %s", claim.number, entity.name, DIED)
    elif claim.suspicion is not Suspicion.ROW:
        ledger.suspect(claim)
    else:
        log.warning("a row of %s is in quarantine, because %s", entity.name, DIED)
        # Whose row it is, is not read.
        line = {"number": claim.number, "line": 1, "tenant": "", "key": key_json(keys[0]), "reason": DIED}
        stored = QuarantineLine.model_validate({"job_id": claim.job_id, "entity": entity.name, **line})
        ledger.finish_unread(claim, stored)
    return False


def keys_in(source: BulkPort, entity: Entity, within: KeyRange) -> Iterator[Key]:
    """Yield the keys of the rows of a range, read without the rows."""
    access, order = source.access(), key_order(entity)
    query = Query(entity=entity.name, scope=ALL_TENANTS, where=(), order=order, limit=KEYS_AT_ONCE)
    if within.lower is not None:
        # Pages begin after a key; this one was that of a row when the range was cut.
        yield within.lower
        query = replace(query, after=within.lower)
    while keys := access.keys(entity, query):
        for key in keys:
            if within.upper is not None and key >= within.upper:
                return
            yield key
        query = replace(query, after=keys[-1])
