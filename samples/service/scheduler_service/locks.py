"""Locks: who holds what. They are acquired by programs that hold a connection, not over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Response

from scheduler_service.calls import Call, Id, absent
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute
from twinstore.scheduler import LockInfo

router = APIRouter(route_class=CanonicalRoute, tags=["locks"])


@router.get("/locks/{lock_key}", response_model=LockInfo, summary="Read who holds a lock, or held it last")
def get_lock(call: Call, lock_key: Id) -> Response:
    """It is free when `expiresAt` is not in the future by the clock of the database."""
    found = call.scheduler.locks.inspect(lock_key, tenant_id=call.tenant)
    if found is None:
        raise absent("lock", lock_key)
    return CanonicalResponse(found)
