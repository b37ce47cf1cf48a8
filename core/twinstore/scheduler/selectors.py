"""Selectors: which images a schedule or an impact snapshot is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import StringConstraints

from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel, content_digest
from twinstore.models.collections import Ordered, Unique
from twinstore.models.fields import NO_NUL, DigestSet, Flag, StringSet, TenantId
from twinstore.models.rules import RequiresEntry
from twinstore.scheduler.enums import SelectorScope

if TYPE_CHECKING:
    from twinstore.catalog.tenancy import Tenant

__all__ = ["LabelFilter", "Selector", "digest_for", "selector_digest"]

SCOPE: Final = "scope"
TENANT: Final = "tenantId"

LabelKey = Annotated[
    str, StringConstraints(strict=True, strip_whitespace=True, to_lower=True, min_length=1, pattern=NO_NUL)
]


class LabelFilter(CanonicalModel):
    """A label key (lower-case) with the values it may have."""

    key: LabelKey
    values: StringSet = ()


class Selector(CanonicalModel):
    """A normalised choice of images; what is stored is exactly what the serializer emits."""

    rules = (
        RequiresEntry(
            by="scope",
            entries=(
                (SelectorScope.BY_NAMESPACE, "namespaces"),
                (SelectorScope.BY_REPOSITORY, "repositories"),
                (SelectorScope.BY_DIGEST, "digests"),
                (SelectorScope.BY_LABELS, "labels"),
            ),
            code="selector_scope",
            message="Scope '{scope}' needs at least one entry in {field}",
        ),
    )

    scope: SelectorScope
    tenant_id: TenantId | None = None
    namespaces: StringSet = ()
    repositories: StringSet = ()
    digests: DigestSet = ()
    include_tags: StringSet = ()
    labels: Annotated[
        tuple[LabelFilter, ...],
        Ordered(
            by=("key",),
            unique=Unique(
                field="key",
                code="duplicate_label",
                message="Label keys should be unique; merge the values of equal keys",
            ),
        ),
    ] = ()
    resolves_tags: Flag = False

    def owned_by(self, tenant_id: str) -> bool:
        """Whether the selector names no tenant, or this one."""
        return self.tenant_id is None or self.tenant_id == tenant_id


def selector_digest(selector: Selector, tenant_id: str) -> str:
    """Return the digest of the selector as its owner sees it; input order and duplicates do not matter."""
    owned = selector if selector.tenant_id == tenant_id else selector.evolve(tenant_id=tenant_id)
    return CanonicalJsonSerializer.digest(owned)


def digest_for(selector: Selector, tenant: Tenant) -> str:
    """Return the same digest for a tenant that is admitted, without building another model for it."""
    wire = {**selector.wire(), TENANT: tenant.id}
    # In the order of the fields, where the tenant comes second.
    ordered = {SCOPE: wire[SCOPE], TENANT: tenant.id, **wire}
    return content_digest(CanonicalJsonSerializer.serialize_wire(Selector, ordered))
