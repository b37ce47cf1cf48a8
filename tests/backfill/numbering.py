"""Models of any entity of the scheduler under keys of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from twinstore.catalog.row import Row
from twinstore.models.shapes import Kind
from twinstore.scheduler.catalog import POLICY_JOBS, SCHEDULES, TRIGGERS
from twinstore.scheduler.graph_jobs import GraphJob, GraphJobEvent
from twinstore.testing.scheduler.graph_jobs import digits_of

if TYPE_CHECKING:
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example

__all__ = ["identified", "numbered_row"]


def identified(example: Example, model: CanonicalModel, tenant: str, number: int) -> CanonicalModel:
    """Return a model under a key of its own."""
    entity, key = example.entity, f"{tenant}-{number:06}"
    if entity is TRIGGERS:
        return example.small(tenant, key)
    if isinstance(model, GraphJob):
        return model.evolve(id=f"{model.id[:4]}{digits_of(key)}")
    if isinstance(model, GraphJobEvent):
        payload = model.payload.evolve(job=identified(example, model.payload.job, tenant, number))
        return model.evolve(event_id=str(UUID(digits_of(key))), payload=payload)
    parts = {part.field for part in entity.key_parts} - {entity.tenant_field}
    identity: dict[str, object] = {
        own: number + 1 if entity.shapes[wire].value.kind is Kind.INTEGER else key
        for wire, own in entity.identity.items()
        if wire in parts
    }
    if entity.single_key is not None and not identity:
        identity[entity.shapes[entity.single_key].name] = key
    if entity is SCHEDULES:
        # Unique in its tenant.
        identity["name"] = f"{getattr(model, 'name', '')[:80]} {number}"
    if getattr(model, "run_id", None) is not None and entity is POLICY_JOBS:
        identity["run_id"] = key
    return model.evolve(**identity)


def numbered_row(example: Example, model: CanonicalModel, tenant: str, number: int) -> Row:
    """Return a model under a key of its own, with its markers; what a store assigns follows the number."""
    row = example.row(tenant, identified(example, model, tenant, number))
    assigned = example.entity.assigned
    return Row(row.model, {**row.storage, assigned: number + 1}) if assigned else row
