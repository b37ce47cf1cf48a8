"""The compare-and-set of graph jobs: one statement instead of a read, a rule and a write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.catalog.row import Row
from twinstore.models.json_text import format_timestamp
from twinstore.scheduler.catalog import GRAPH_JOBS
from twinstore.scheduler.enums import GraphJobStatus
from twinstore.scheduler.repositories.graph_jobs import REPLACE
from twinstore_postgres.connection.errors import Subject
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.mapping.tenancy import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog.tenancy import Tenant
    from twinstore.scheduler.graph_jobs import GraphJob
    from twinstore_postgres.access.access import PostgresAccess, Special

TABLE: Final = table_of(GRAPH_JOBS)
PAYLOAD: Final = [column.field for column in TABLE.columns].index("payload")
# Afterwards the job has moved on, if it stood as expected and the move is one that the rules allow; whatever
# else is the case, nothing has changed. The time is whole milliseconds, as the library writes it everywhere.
REPLACE_JOB: Final = b"""
UPDATE scheduler.graph_jobs
   SET status = %s, payload = %s, correlation_id = %s,
       updated_at = date_trunc('milliseconds', clock_timestamp())
 WHERE id = %s AND tenant_id = %s AND type = %s AND status = %s AND created_at = %s
   AND (payload->>'startedAt' IS NULL OR payload->>'startedAt' = %s)
"""


def replace_job(access: PostgresAccess, scope: Tenant, job: GraphJob, expected: GraphJobStatus) -> bool:
    """Move a job to its next status; false if the general path has to report why not."""
    if job.status is GraphJobStatus.RUNNING and job.started_at is None:
        return False
    payload = TABLE.encode(Row(job, {"updatedAt": job.created_at}))[PAYLOAD]
    started = None if job.started_at is None else format_timestamp(job.started_at)
    values = (
        *(job.status.number, payload, job.correlation_id),
        *(job.uuid, scope.id, job.type.number, expected.number, job.created_at, started),
    )
    subject = Subject(GRAPH_JOBS, (job.uuid,))
    (result,) = access.execution.write(setting(scope), subject, (REPLACE_JOB, values))
    return result.count > 0


OPERATIONS: Final[Mapping[str, Special]] = {REPLACE: replace_job}
