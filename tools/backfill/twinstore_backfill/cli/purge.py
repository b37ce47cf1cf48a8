"""``twinstore purge``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import typer

from twinstore import jsontext
from twinstore.bulk import KeyRange
from twinstore.catalog import Entity
from twinstore.query import expired_query
from twinstore.scope import tenant_argument
from twinstore.tenancy import ALL_TENANTS, Tenant
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.cli.params import Backend, Format, ModuleName, OutputFormat, common, instant_option
from twinstore_backfill.copy.retention import cutoff, is_due
from twinstore_backfill.stores import Store, chosen_module, open_store, preflight

__all__ = ["purge"]

# Each batch is a transaction of its own, so that writers of the service wait for one at most.
BATCH: Final = 1000


def purge(  # noqa: PLR0917  # the options of a command
    context: typer.Context,
    module: ModuleName = None,
    before: Annotated[
        str | None,
        typer.Option("--before", help="Remove what ended at this instant or earlier. Default: by retention."),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    backend: Backend = None,
    execute: Annotated[bool, typer.Option("--execute", help="Remove; without it, only count.")] = False,  # noqa: FBT002  # Typer makes a flag of it
    output: OutputFormat = Format.TEXT,
) -> None:
    """Remove by hand what has outlived its retention, such as finished runs and old impact snapshots."""
    settings = common(context).settings()
    limit = instant_option(before, "--before")
    wanted = tenant_argument(tenant) if tenant is not None else None
    name = chosen_module(module, settings)
    with open_store(name, backend or settings.backend_name(name), settings) as store:
        preflight(store.storage.check_ready)
        found = [_purge(store, entity, limit, wanted, execute=execute) for entity in _entities(store)]
    verb = "removed" if execute else "would be removed"
    rows = [(item["entity"], item["before"] or "never removed", item["rows"]) for item in found]
    emit(
        output,
        {"executed": execute, "tenant": wanted, "entities": found},
        table(("entity", "up to", f"rows {verb}"), rows),
        *([] if execute else ["Nothing was changed. Add --execute to remove them."]),
    )


def _entities(store: Store) -> list[Entity]:
    return [entity for entity in store.bulk.entities() if entity.retention is not None]


def _purge(
    store: Store, entity: Entity, limit: datetime | None, tenant: str | None, *, execute: bool
) -> dict[str, object]:
    # By the clock of the store: with one of ours that is ahead, rows would be removed too early.
    before = limit or cutoff(entity, store.options, store.bulk.now())
    rows = 0
    if before is not None:
        rows = (_remove if execute else _due)(store, entity, before, tenant)
    return {
        "entity": entity.name,
        "before": jsontext.format_timestamp(before) if before else None,
        "rows": rows,
    }


def _remove(store: Store, entity: Entity, before: datetime, tenant: str | None) -> int:
    """Remove what is due in batches; return how many rows of the entity went."""
    access = store.bulk.access()
    query = expired_query(entity, ALL_TENANTS if tenant is None else Tenant(tenant), before, BATCH)
    removed = 0
    while batch := access.remove(entity, query):
        removed += batch
    return removed


def _due(store: Store, entity: Entity, before: datetime, tenant: str | None) -> int:
    with store.bulk.view() as view:
        batches = view.rows(entity, KeyRange(), tenant_id=tenant)
        # By the scan of a comparison, which needs no model: a row that cannot be decoded is due all the same.
        return sum(is_due(entity, row, before) for batch in batches for row in batch)
