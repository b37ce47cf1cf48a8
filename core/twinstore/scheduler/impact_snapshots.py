"""Impact snapshots: which images a selector matched at an instant, and the contract of their repository."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from pydantic import Field

from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.models.collections import Ordered, Unique
from twinstore.models.fields import (
    Count,
    DigestText,
    Flag,
    Id,
    SchemaVersion,
    StringSet,
    Text,
    TextMap,
    Timestamp,
)
from twinstore.models.rules import LengthAtMost, filled_from
from twinstore.scheduler.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from twinstore.access.paging import Page

__all__ = [
    "ImpactImage",
    "ImpactSet",
    "ImpactSnapshotRepository",
    "derived_snapshot_id",
    "derived_snapshot_key",
    "identify",
]

IMPACT_SET_VERSION: Final = "scheduler.impact-set@1"
DERIVED: Final = "snap_"


class ImpactImage(CanonicalModel):
    """One image that the selector matched."""

    image_digest: DigestText
    registry: Text
    repository: Text
    namespaces: StringSet = ()
    tags: StringSet = ()
    used_by_entrypoint: Flag = False
    labels: TextMap = Field(default_factory=dict)


class ImpactSet(CanonicalModel):
    """A selector and the images it matched. ``total`` exceeds the number of images when truncated.

    The document has no tenant and no run; both are storage markers, with the digest of the selector. A
    snapshot without an own ``snapshotId`` is stored under a derived one.
    """

    rules = (
        LengthAtMost(
            "images",
            limit="total",
            code="impact_total",
            message="total should be at least the number of images",
        ),
    )

    schema_version: Annotated[str, SchemaVersion(IMPACT_SET_VERSION)] = IMPACT_SET_VERSION
    selector: Selector
    images: Annotated[
        tuple[ImpactImage, ...],
        Ordered(
            by=("image_digest",),
            unique=Unique(
                field="image_digest",
                code="duplicate_image",
                message="images should name each imageDigest once",
            ),
        ),
    ] = ()
    usage_only: Flag = True
    generated_at: Timestamp
    total: Count = filled_from("images", len)
    snapshot_id: Id | None = None


def derived_snapshot_id(tenant_id: str, snapshot: ImpactSet, run_id: str | None) -> str:
    """Return the id of a snapshot without its own id; it depends only on its arguments."""
    content = CanonicalJsonSerializer.serialize(snapshot)
    return derived_snapshot_key({"tenantId": tenant_id, "runId": run_id}, content)


def derived_snapshot_key(storage: Mapping[str, object], content: bytes) -> str:
    """Return the same id from the storage markers and the canonical JSON of a snapshot without its id."""
    head = f"{storage.get('tenantId')}\n{storage.get('runId') or ''}\n".encode()
    # 128 bits of the digest; released, so it never changes.
    return f"{DERIVED}{sha256(head + content).hexdigest()[:32]}"


def identify(tenant_id: str, snapshot: ImpactSet, run_id: str | None) -> tuple[str, ImpactSet]:
    """Return the key of a snapshot and the snapshot as it is stored.

    An own id that equals the derived one is dropped from the content: MongoDB keeps the id once, as ``_id``,
    and could not distinguish the two.
    """
    if snapshot.snapshot_id is None:
        return derived_snapshot_id(tenant_id, snapshot, run_id), snapshot
    # Nearly every own id leaves here, before anything is derived.
    if not snapshot.snapshot_id.startswith(DERIVED):
        return snapshot.snapshot_id, snapshot
    # The derived id is that of the content without an id, or it would depend on itself.
    anonymous = snapshot.evolve(snapshot_id=None)
    if snapshot.snapshot_id == derived_snapshot_id(tenant_id, anonymous, run_id):
        return snapshot.snapshot_id, anonymous
    return snapshot.snapshot_id, snapshot


class ImpactSnapshotRepository(Protocol):
    """Stores impact snapshots; the tenant is an argument, because the model does not carry it.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form an impact set.
    """

    def upsert(self, tenant_id: str, snapshot: ImpactSet, *, run_id: str | None = None) -> str:
        """Store a snapshot and return its id (its own, or the derived one).

        Repeated call with identical content and run: a no-op. Other content or run under the same id
        replaces the snapshot. Atomic.

        Raises:
            DuplicateError: the id belongs to another tenant.
            ValidationError: the selector names another tenant.
        """
        ...

    def get(self, tenant_id: str, snapshot_id: str) -> ImpactSet | None:
        """Return one snapshot. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        ...

    def get_required(self, tenant_id: str, snapshot_id: str) -> ImpactSet:
        """Return one snapshot as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def get_latest_by_selector(self, tenant_id: str, selector: Selector) -> ImpactSet | None:
        """Return the newest snapshot of a selector, compared by its digest.

        Order: generated_at descending, then snapshot id ascending. Absent: ``None``.
        """
        ...

    def list_by_run(
        self, tenant_id: str, run_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        """Return a page of the snapshots of a run.

        Order: generated_at descending, then snapshot id. Limit 50, at most 200. Empty: an empty page.
        """
        ...

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ImpactSet]:
        """Return a page of all snapshots of a tenant.

        Order: generated_at descending, then snapshot id. Limit 50, at most 200. Empty: an empty page.
        """
        ...

    def count(self, tenant_id: str) -> int:
        """Return how many snapshots all pages of :meth:`list` have together. Empty: 0."""
        ...

    def delete(self, tenant_id: str, snapshot_id: str) -> bool:
        """Remove one snapshot. Absent, foreign or repeated: false."""
        ...

    def purge_generated(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        """Remove the snapshots with ``generatedAt <= before``, oldest first; return how many.

        ``tenant_id=None`` means all tenants, in system scope. Not atomic: removes in batches.
        Repeated call: 0.
        """
        ...
