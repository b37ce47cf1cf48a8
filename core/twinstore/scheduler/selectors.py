"""Selectors: which images a schedule or an impact snapshot is about."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Final, Self

from pydantic import AfterValidator, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from twinstore.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.fields import NO_NUL, DigestSet, Flag, StringSet, TenantId
from twinstore.scheduler.enums import SelectorScope

__all__ = ["LabelFilter", "Selector", "selector_digest"]

LabelKey = Annotated[
    str, StringConstraints(strict=True, strip_whitespace=True, to_lower=True, min_length=1, pattern=NO_NUL)
]


class LabelFilter(CanonicalModel):
    """A label key (lower-case) with the values it may have."""

    key: LabelKey
    values: StringSet = ()


def labels_by_key(labels: tuple[LabelFilter, ...]) -> tuple[LabelFilter, ...]:
    """Sort label filters by key and refuse a key that occurs twice."""
    keys = {label.key for label in labels}
    if len(keys) != len(labels):
        raise PydanticCustomError(
            "duplicate_label", "Label keys should be unique; merge the values of equal keys"
        )
    return tuple(sorted(labels, key=attrgetter("key")))


class Selector(CanonicalModel):
    """A normalised choice of images; what is stored is exactly what the serializer emits."""

    scope: SelectorScope
    tenant_id: TenantId | None = None
    namespaces: StringSet = ()
    repositories: StringSet = ()
    digests: DigestSet = ()
    include_tags: StringSet = ()
    labels: Annotated[tuple[LabelFilter, ...], AfterValidator(labels_by_key)] = ()
    resolves_tags: Flag = False

    @model_validator(mode="after")
    def _scope_has_its_filter(self) -> Self:
        needed = SCOPE_FILTERS.get(self.scope)
        if needed and not getattr(self, needed):
            raise PydanticCustomError(
                "selector_scope",
                "Scope '{scope}' needs at least one entry in {field}",
                {"scope": str(self.scope), "field": needed},
            )
        return self

    def owned_by(self, tenant_id: str) -> bool:
        """Whether the selector names no tenant, or this one."""
        return self.tenant_id is None or self.tenant_id == tenant_id


SCOPE_FILTERS: Final = {
    SelectorScope.BY_NAMESPACE: "namespaces",
    SelectorScope.BY_REPOSITORY: "repositories",
    SelectorScope.BY_DIGEST: "digests",
    SelectorScope.BY_LABELS: "labels",
}


def selector_digest(selector: Selector, tenant_id: str) -> str:
    """Return the digest of the selector as its owner sees it; input order and duplicates do not matter."""
    owned = selector if selector.tenant_id == tenant_id else selector.evolve(tenant_id=tenant_id)
    return CanonicalJsonSerializer.digest(owned)
