"""What lists of policy jobs and of the runs before them are asked for."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from scheduler_service.calls import Limit, PageToken
from twinstore.scheduler import PolicyJobQueryOptions, PolicyRunJobStatus

__all__ = ["JobQuery"]


async def job_query(
    statuses: Annotated[list[PolicyRunJobStatus] | None, Query(alias="status")] = None,
    policy_id: Annotated[str | None, Query(alias="policyId")] = None,
    limit: Limit = 50,
    page_token: PageToken = None,
) -> PolicyJobQueryOptions:
    """Return the filter; `status` is that of the job and may stand several times."""
    return PolicyJobQueryOptions(statuses=statuses, policy_id=policy_id, limit=limit, page_token=page_token)


JobQuery = Annotated[PolicyJobQueryOptions, Depends(job_query)]
