"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import OptionalText, TenantId, TextMap, Timestamp
from twinstore.scheduler.enums import GraphJobEventKind, GraphJobStatus, GraphJobType
from twinstore.scheduler.graph_job_events import EventId, GraphJobEventPayload
from twinstore.scheduler.graph_jobs import GraphJob

__all__ = ["GraphJobEventChanges", "GraphJobEventPayloadChanges"]


class GraphJobEventChanges(TypedDict, total=False):
    """What ``GraphJobEvent.evolve`` may change."""

    event_id: EventId
    kind: GraphJobEventKind
    tenant: TenantId
    ts: Timestamp
    payload: GraphJobEventPayload
    attributes: TextMap


class GraphJobEventPayloadChanges(TypedDict, total=False):
    """What ``GraphJobEventPayload.evolve`` may change."""

    job_type: GraphJobType
    job: GraphJob
    status: GraphJobStatus
    occurred_at: Timestamp
    result_uri: OptionalText
