"""Artifacts of pack runs: what became of each output, and the contract of their store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id, Name, Text, Timestamp
from twinstore.taskrunner.enums import PackArtifactStatus

if TYPE_CHECKING:
    from twinstore.catalog.tenancy import AllTenants

__all__ = ["PackRunArtifact", "PackRunArtifactUploader"]


class PackRunArtifact(CanonicalModel):
    """The record of one output of a run; the bytes are stored elsewhere.

    ``type`` is ``file``, ``object`` or another category. What a status needs is asked of new writes only, so
    that every stored record can be read.
    """

    run_id: Id
    name: Id
    type: Name
    source_path: Text | None = None
    stored_path: Text | None = None
    status: PackArtifactStatus
    notes: Text | None = None
    captured_at: Timestamp


class PackRunArtifactUploader(Protocol):
    """Stores the records of outputs, one for each name of a run; none is ever removed.

    A record belongs to the owner of its run; see :class:`~twinstore.taskrunner.pack_runs.PackRunStateStore`
    for ``tenant_id``. All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when
    bound to another tenant or when tenancy is enforced and no tenant is named, ``UnavailableError`` when the
    store cannot be reached and ``DocumentDecodeError`` for a stored document that does not form a record.
    """

    def upload(
        self, artifact: PackRunArtifact, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact:
        """Insert a record, or replace the pending one of its run and name; return it. Atomic.

        Stores the record, not the bytes. Repeated call with an equal record: no write.

        Raises:
            NotFoundError: the run is unknown or outside the scope.
            InvalidTransitionError: the stored record is final.
            ValidationError: ``copied`` without ``storedPath``, ``skipped`` without ``notes``, or
                ``materialized`` for another type than ``object``.
        """
        ...

    def get(
        self, run_id: str, name: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact | None:
        """Return one record. Absent: ``None``, also for a run outside the scope."""
        ...

    def get_required(
        self, run_id: str, name: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact:
        """Return one record as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> tuple[PackRunArtifact, ...]:
        """Return the records of a run.

        Order: name. Empty, also for an unknown run and one outside the scope: ``()``.
        """
        ...
