"""Removing rows past their age, oldest first, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.query import batch_size_argument
from twinstore.scope import SYSTEM_TENANT
from twinstore_postgres.errors import Subject

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.catalog import Entity
    from twinstore_postgres.work import Step, Work

__all__ = ["purge"]


def purge(  # noqa: PLR0917  # a purge is made of exactly these
    work: Work,
    entity: Entity,
    statements: tuple[bytes, bytes],
    before: datetime,
    tenant: str | None,
    batch_size: int,
) -> int:
    """Delete in batches until one is not full; return how many rows went.

    Args:
        work: the access to the server.
        entity: what is removed.
        statements: for all tenants (instant, limit) and for one (instant, tenant, limit).
        before: rows with this instant or an earlier one go.
        tenant: one tenant, or ``None`` for all.
        batch_size: rows per batch, at least 1.
    """
    size = batch_size_argument(batch_size)
    every, one = statements
    step: Step = (every, (before, size)) if tenant is None else (one, (before, tenant, size))
    removed = 0
    while True:
        (result,) = work.write(tenant or SYSTEM_TENANT, Subject(entity), step)
        removed += result.count
        if result.count < size:
            return removed
