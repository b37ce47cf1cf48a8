"""``twinstore purge``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from twinstore import jsontext
from twinstore.bulk import KeyRange
from twinstore.catalog import Entity
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.scope import tenant_argument
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.cli.params import Backend, Format, ModuleName, OutputFormat, common, instant_option
from twinstore_backfill.copy.retention import cutoff
from twinstore_backfill.stores import Store, open_store, preflight

__all__ = ["purge"]

PURGES: Final[Mapping[str, Callable[[SchedulerStorage, datetime, str | None], int]]] = {
    "runs": lambda storage, before, tenant: storage.runs.purge_finished(before, tenant_id=tenant),
    "impact_snapshots": lambda storage, before, tenant: storage.impact_snapshots.purge_generated(
        before, tenant_id=tenant
    ),
}


def purge(  # noqa: PLR0917  # the options of a command
    context: typer.Context,
    module: ModuleName,
    before: Annotated[
        str | None, typer.Option("--before", help="Remove what ended then or earlier. Default: by retention.")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    backend: Backend = None,
    execute: Annotated[bool, typer.Option("--execute", help="Remove; without it, only count.")] = False,  # noqa: FBT002  # Typer makes a flag of it
    output: OutputFormat = Format.TEXT,
) -> None:
    """Remove finished data by hand: runs by their end, impact snapshots by their creation."""
    settings = common(context).settings()
    limit = instant_option(before, "--before")
    wanted = tenant_argument(tenant) if tenant is not None else None
    with open_store(module, backend or settings.backend_name(module), settings) as store:
        preflight(store.storage.check_ready)
        found = [_purge(store, entity, limit, wanted, execute=execute) for entity in _entities(store)]
    verb = "removed" if execute else "would be removed"
    rows = [(item["entity"], item["before"] or "kept for ever", item["rows"]) for item in found]
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
    before = limit or cutoff(entity, store.options, datetime.now(UTC))
    rows = 0
    if before is not None and execute:
        rows = PURGES[entity.name](store.storage, before, tenant)
    elif before is not None:
        rows = _due(store, entity, before, tenant)
    return {
        "entity": entity.name,
        "before": jsontext.format_timestamp(before) if before else None,
        "rows": rows,
    }


def _due(store: Store, entity: Entity, before: datetime, tenant: str | None) -> int:
    batches = store.bulk.scan(entity, KeyRange(), tenant_id=tenant)
    return sum(row.expires is not None and row.expires <= before for batch in batches for row in batch)
