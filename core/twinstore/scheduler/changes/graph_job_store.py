"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import TenantId
from twinstore.scheduler.enums import GraphJobStatus, GraphJobType
from twinstore.scheduler.graph_jobs import GraphJob

__all__ = ["GraphJobResponseChanges"]


class GraphJobResponseChanges(TypedDict, total=False):
    """What ``GraphJobResponse.evolve`` may change."""

    id: str
    tenant_id: TenantId
    kind: GraphJobType
    status: GraphJobStatus
    payload: GraphJob
