"""Reaching the rows of the ledger: pages, units, single changes, and the errors of what is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar, cast

from twinstore.access.protocol import Ref
from twinstore.access.query import Query, key_order
from twinstore.access.retry import retry
from twinstore.catalog.conditions import Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import NotFoundError
from twinstore.ledger.catalog import CONFLICTS, QUARANTINE
from twinstore.models.canonical import CanonicalModel

if TYPE_CHECKING:
    from twinstore.access.paging import SortKey
    from twinstore.access.protocol import Access, Rows, ServerClock
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")

# Bounds what is in memory at a time.
PAGE: Final = 1000


class LedgerRows:
    """Base of the ledger: how its parts read and write."""

    def __init__(self, access: Access, *, atomic: bool = True) -> None:
        """Take the rows of the target; see :meth:`twinstore.bulk.port.BulkPort.access`.

        Args:
            access: the rows of the ledger and of everything else in its store.
            atomic: whether the store has transactions; without them only one worker may use the ledger.
        """
        self._access = access
        self._atomic = atomic

    @property
    def driver(self) -> str:
        """The name of the driver, for messages."""
        return self._access.binding.driver

    def _in_unit(self, action: Callable[[Access], T]) -> T:
        """Do something in one transaction, where the store has them; repeat it after a lost race."""

        def once() -> T:
            with self._access.unit(ALL_TENANTS, atomic=self._atomic) as unit:
                return action(unit)

        return retry(once)

    def _query(
        self, entity: Entity, where: Sequence[Condition], order: tuple[SortKey, ...], limit: int
    ) -> Query:
        # An order by what is the same in all rows would keep servers from finding the start of a page by it.
        same = {item.field for item in where if isinstance(item, Equals)}
        sort_keys = tuple(key for key in order if key.field not in same) or order[-1:]
        return Query(entity=entity.name, scope=ALL_TENANTS, where=tuple(where), order=sort_keys, limit=limit)

    def _first(self, access: Access, entity: Entity[M], where: Sequence[Condition]) -> Row[M] | None:
        page = access.page(entity, self._query(entity, where, key_order(entity), 1))
        return page[0] if page else None

    def _all(
        self, entity: Entity[M], where: Sequence[Condition], order: tuple[SortKey, ...], limit: int = PAGE
    ) -> Iterator[Row[M]]:
        query = self._query(entity, where, order, limit)
        while True:
            page = self._access.page(entity, query)
            yield from page
            if page.next_page_token is None:
                return
            last = page[-1]
            after = [entity.value(last.model, last.storage, key.field) for key in query.order]
            query = replace(query, after=cast("tuple[str | int | datetime | None, ...]", tuple(after)))

    def _forget(self, access: Access, entity: Entity, where: Sequence[Condition]) -> None:
        query = self._query(entity, where, key_order(entity), PAGE)
        while access.remove(entity, query):
            pass

    def _forget_lines(self, access: Access, job_id: str, number: int) -> None:
        where = (Equals("jobId", job_id), Equals("number", number))
        for entity in (QUARANTINE, CONFLICTS):
            self._forget(access, entity, where)

    def _required(self, found: M | None, job_id: str) -> M:
        if found is None:
            raise self._unknown(job_id)
        return found

    def _unknown(self, job_id: str) -> NotFoundError:
        return NotFoundError(
            f"Job {job_id!r} does not exist; start it first.", driver=self.driver, key=job_id
        )


def change_model(
    access: Access, entity: Entity[M], key: Key, rule: Callable[[M | None, ServerClock], M | None]
) -> M | None:
    """Change one row without markers; return it as it is stored then."""

    def changed(rows: Rows, now: ServerClock) -> Rows:
        row = cast("Row[M] | None", rows[0])
        model = rule(None if row is None else row.model, now)
        return (None if model is None else Row(model),)

    (stored,) = access.change((Ref(entity, ALL_TENANTS, key),), changed)
    return None if stored is None else cast("Row[M]", stored).model
