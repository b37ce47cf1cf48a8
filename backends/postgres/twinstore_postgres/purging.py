"""Removing rows past their age, oldest first, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.errors import ValidationError
from twinstore.scope import SYSTEM_TENANT
from twinstore_postgres.errors import Subject

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.catalog import Entity
    from twinstore_postgres.work import Work

__all__ = ["purge"]


def purge(  # noqa: PLR0913, PLR0917  # a purge is made of exactly these
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
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValidationError(
            f"Argument batch_size should be a whole number of at least 1, not {batch_size!r}."
        )
    every, one = statements
    if tenant is None:
        scope, step = SYSTEM_TENANT, (every, (before, batch_size))
    else:
        scope, step = tenant, (one, (before, tenant, batch_size))
    removed = 0
    while True:
        (result,) = work.write(scope, Subject(entity), step)
        removed += result.count
        if result.count < batch_size:
            return removed
