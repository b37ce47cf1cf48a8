"""The base of all repositories: who may call, what arguments are, and the steps that several of them take.

A repository reads from top to bottom without a look at any driver: it admits the caller, normalises the
arguments, asks a rule what is to be stored, and lets :class:`~twinstore.access.protocol.Access` store it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, cast

from twinstore.access.defaults import PartialProgress
from twinstore.access.errors import required
from twinstore.access.guard import check_batch
from twinstore.access.paging import Page
from twinstore.access.protocol import Ref, WritingOperation
from twinstore.access.query import expired_query, query_of_key
from twinstore.access.retry import retry
from twinstore.access.scope import instant_argument, model_argument
from twinstore.access.unit_state import write_refused
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, AllTenants, Tenant, Tenants
from twinstore.errors import ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.runtime.forks import NotPicklable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from twinstore.access.protocol import Access, Rows, ServerClock, UniqueKey
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

__all__ = ["PURGE", "Repository"]


P = ParamSpec("P")
T = TypeVar("T")
# The operation of a driver that removes every row of a list at once, where batches would each cost a look at
# everything. It takes the entity and the query.
PURGE: Final = WritingOperation("purge")
A = TypeVar("A", bound=CanonicalModel)
B = TypeVar("B", bound=CanonicalModel)


class Repository(NotPicklable):
    """Base of the repositories of all modules."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def driver(self) -> str:
        """The name of the driver, for messages."""
        return self._access.binding.driver

    def _admit(self, tenant_id: str) -> Tenant:
        binding = self._access.binding
        binding.state.check()
        return Tenant(binding.scope.admit(tenant_id))

    def _admit_system(self, purpose: str) -> Tenants:
        binding = self._access.binding
        binding.state.check()
        binding.scope.admit_system(purpose)
        return ALL_TENANTS

    def _admit_optional(self, tenant_id: str | None, purpose: str) -> Tenants:
        return self._admit_system(purpose) if tenant_id is None else self._admit(tenant_id)

    def _admit_scope(self, tenant_id: str | AllTenants | None, purpose: str) -> Tenants:
        """Return the scope of a call where some rows have a tenant; ``None`` means those without."""
        if tenant_id is ALL_TENANTS:
            return self._admit_system(purpose)
        if tenant_id is not None:
            return self._admit(tenant_id)
        binding = self._access.binding
        binding.state.check()
        binding.scope.admit_no_tenant()
        return NO_TENANT

    def _model(self, value: object, cls: type[A], name: str) -> A:
        """Return a model that a caller hands in, checked as a whole; nothing else checks what is written."""
        self._access.binding.state.check()
        return model_argument(value, cls, name)

    def _models(self, values: object, cls: type[A], name: str) -> tuple[A, ...]:
        """Return several models that a caller hands in, each checked as a whole."""
        self._access.binding.state.check()
        if isinstance(values, Iterable):
            # Safe, because nothing is said of what it holds.
            return tuple(model_argument(value, cls, name) for value in cast("Iterable[object]", values))
        raise ValidationError(
            f"Argument {name} should be a sequence of {cls.__name__}, not {type(values).__name__}."
        )

    def _find(self, entity: Entity[A], scope: Tenants, key: Key | UniqueKey) -> Row[A] | None:
        (row,) = self._access.find(entity, scope, (key,))
        return row

    def _get(self, entity: Entity[A], scope: Tenants, key: Key | UniqueKey) -> A | None:
        (row,) = self._access.find(entity, scope, (key,))
        return None if row is None else row.model

    def _check_writable(self) -> None:
        """Refuse a write before anything is read for it."""
        binding = self._access.binding
        if binding.read_only:
            raise write_refused(binding.driver)

    def _special(self, operation: str, general: Callable[P, T]) -> Callable[P, T]:
        """Return the driver's own statement of a hot operation, or the general way."""
        # Safe, because a special operation takes the arguments of the general way and gives the same answer.
        return cast("Callable[P, T]", self._access.special(operation) or general)

    def _required(self, found: T | None, entity: Entity, key: str) -> T:
        return required(found, entity, key, self.driver)

    def _page(self, entity: Entity[A], query: Query) -> Page[A]:
        return models_of(self._access.page(entity, query))

    def _count(self, entity: Entity, query: Query, by: str = "tenantId") -> int:
        """Return how many rows a list has on all its pages; ``by`` is a field with few values."""
        return sum(self._access.count(entity, query, by).values())

    def _change(
        self,
        entity: Entity[A],
        scope: Tenants,
        key: Key,
        rule: Callable[[Row[A] | None, ServerClock], Row[A] | None],
        *,
        replaces_unreadable: bool = False,
    ) -> Row[A] | None:
        """Change one row; return it as it is stored then."""

        def changed(rows: Rows, now: ServerClock) -> Rows:
            # Safe, because a driver returns rows of the entity of each ref.
            return (rule(cast("Row[A] | None", rows[0]), now),)

        ref = Ref(entity, scope, key, replaces_unreadable=replaces_unreadable)
        (stored,) = self._access.change((ref,), changed)
        return cast("Row[A] | None", stored)

    def _revise(
        self,
        entity: Entity[A],
        scope: Tenants,
        key: Key,
        revised: Callable[[A | None], A | None],
        *,
        replaces_unreadable: bool = False,
    ) -> A | None:
        """Store what a rule makes of one model without markers; return what is stored then.

        ``None`` and an equal model leave it as it is: nothing was decided that others could depend on.
        """

        def rule(stored: Row[A] | None, now: ServerClock) -> Row[A] | None:
            del now
            before = None if stored is None else stored.model
            after = revised(before)
            # Not written: it would count as a change, and conflict with another writer for nothing.
            return None if after is None or after == before else Row(after)

        row = self._change(entity, scope, key, rule, replaces_unreadable=replaces_unreadable)
        return None if row is None else row.model

    def _change_pair(
        self,
        first: Ref[A],
        second: Ref[B],
        rule: Callable[[Row[A] | None, Row[B] | None], tuple[Row[A] | None, Row[B] | None]],
    ) -> tuple[Row[A] | None, Row[B] | None]:
        """Change two rows in one step, locked in this order; return them as they are stored then."""

        def changed(rows: Rows, now: ServerClock) -> Rows:
            del now
            return rule(cast("Row[A] | None", rows[0]), cast("Row[B] | None", rows[1]))

        stored = self._access.change((first, second), changed)
        return cast("Row[A] | None", stored[0]), cast("Row[B] | None", stored[1])

    def _append_to_logs(
        self,
        entity: Entity[A],
        parent: Entity,
        scope: Tenants,
        rows: Sequence[Row[A]],
        key: Callable[[A], str],
    ) -> Sequence[Row[A]]:
        """Append to the logs of some parents, all or nothing; return the rows as they are stored."""
        # In the order of their keys, so that callers which append to the same logs do not deadlock.
        keys = sorted({key(row.model) for row in rows})
        if len(keys) == 1:
            return self._access.append(entity, Ref(parent, scope, (keys[0],)), rows)
        check_batch(entity, rows)  # together, as they are written

        def together() -> Sequence[Row[A]]:
            stored: dict[str, Iterator[Row[A]]] = {}
            with self._access.unit(scope, atomic=False) as unit:
                for each in keys:
                    own = [row for row in rows if key(row.model) == each]
                    stored[each] = iter(unit.append(entity, Ref(parent, scope, (each,)), own))
            return [next(stored[key(row.model)]) for row in rows]

        return together() if self._access.binding.in_unit else retry(together)

    def _remove(self, entity: Entity, scope: Tenants, key: Key) -> bool:
        return self._access.remove(entity, query_of_key(entity, scope, key)) > 0

    def _purge(self, entity: Entity, scope: Tenants, before: datetime, batch_size: int) -> int:
        """Remove the rows that retention judges by an instant up to ``before``, oldest first, in batches."""
        query = expired_query(entity, scope, instant_argument(before, "before"), batch_size)
        self._check_writable()
        return self._special(PURGE, self._purge_in_batches)(entity, query)

    def _purge_in_batches(self, entity: Entity, query: Query) -> int:
        """Remove every row that matches a list, the first ones first, so many at a time as its limit says."""
        removed = 0
        # In batches, each a transaction: one over millions of rows would block writers and fill the log.
        with self._partial_progress() as steps:
            while batch := self._access.remove(entity, query):
                removed += batch
                steps.done()
        return removed

    def _partial_progress(self) -> PartialProgress:
        """Return the block of a call whose steps are independent."""
        return PartialProgress(in_unit=self._access.binding.in_unit)


def models_of(page: Page[Row[A]]) -> Page[A]:
    """Return a page of rows as the page of their models."""
    return Page(tuple(row.model for row in page.items), page.next_page_token, page.undecodable)
