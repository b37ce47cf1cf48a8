"""What the repositories of the task runner have in common: runs may have no tenant, unless all must."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

from twinstore.access.repository import Repository
from twinstore.errors import TenantScopeError
from twinstore.models.canonical import CanonicalModel
from twinstore.taskrunner.catalog import PACK_RUNS
from twinstore.taskrunner.options import TaskRunnerOptions

if TYPE_CHECKING:
    from twinstore.access.paging import SortValue
    from twinstore.access.protocol import Access
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.tenancy import AllTenants, Tenants
    from twinstore.taskrunner.pack_runs import PackRunState

A = TypeVar("A", bound=CanonicalModel)

DEFAULTS: Final = TaskRunnerOptions()


class TaskRunnerRepository(Repository):
    """Base of the repositories of the task runner."""

    def __init__(self, access: Access, options: TaskRunnerOptions = DEFAULTS) -> None:
        super().__init__(access)
        self._options = options

    def tuned(self, options: TaskRunnerOptions) -> Self:
        """Return the same repository with other options."""
        return type(self)(self._access, options)

    def _admit_run(self, tenant_id: str | AllTenants | None, purpose: str) -> Tenants:
        """Return the scope of a call.

        Raises:
            TenantScopeError: no tenant is named where tenancy is enforced, or not that of the session.
        """
        if tenant_id is None and self._options.tenancy_enforced:
            raise TenantScopeError(
                "Tenancy is enforced, so every run belongs to a tenant; name one, or use ALL_TENANTS.",
                driver=self.driver,
            )
        return self._admit_scope(tenant_id, purpose)

    def _run(self, scope: Tenants, run_id: str) -> PackRunState:
        """Return a run that must be in the scope."""
        return self._required(self._get(PACK_RUNS, scope, (run_id,)), PACK_RUNS, run_id)

    def _every(self, entity: Entity[A], query: Query) -> tuple[A, ...]:
        """Return all rows of a list, which is read in parts."""
        page = self._page(entity, query)
        rows = page.items
        while page.next_page_token is not None:
            after = tuple(entity.value(rows[-1], {}, key.field) for key in query.order)
            # Safe, because what a list is sorted by is a text, a number or an instant.
            page = self._page(entity, replace(query, after=cast("tuple[SortValue, ...]", after)))
            rows += page.items
        return rows
