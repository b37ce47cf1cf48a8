"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Id, LowerKeyMap, PositiveInt, TenantText, Timestamp

__all__ = ["LockInfoChanges"]


class LockInfoChanges(TypedDict, total=False):
    """What ``LockInfo.evolve`` may change."""

    lock_key: Id
    tenant_id: TenantText
    holder_id: Id
    acquired_at: Timestamp
    expires_at: Timestamp
    renewed_at: Timestamp | None
    fence: PositiveInt
    metadata: LowerKeyMap
