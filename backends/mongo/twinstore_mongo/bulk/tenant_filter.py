"""Whose rows a tool reads: the filter of one tenant, and what the stored owner of a document is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twinstore.access.scope import tenant_argument
from twinstore.catalog.tenancy import (
    MAX_LABEL_LENGTH,
    NO_TENANT,
    UNKNOWN_TENANT,
    StoredOwner,
    TenancyKind,
    Tenant,
)
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore_mongo.client.types import Document

# No document of ours has a field of this name.
PARENT: Final = "_twinstore_parent"
# In bytes; longer text is not a tenant.
LONGEST_TENANT: Final = 4 * MAX_LABEL_LENGTH


@dataclass(frozen=True, slots=True)
class TenantFilter:
    """The rows of one tenant, or all.

    Attributes:
        condition: the filter, as far as a filter can decide.
        joins: the stages that decide the rest, if parents own the rows.
    """

    condition: Document
    joins: Sequence[Document] = ()

    @property
    def stages(self) -> list[Document]:
        """Everything as stages of an aggregation."""
        return [{"$match": self.condition}, *self.joins]


def tenant_filter(entity: Entity, tenant_id: str | None, name_of: Callable[[Entity], str]) -> TenantFilter:
    """Return the rows of a tenant, or all; where tenants do not matter those are the same.

    Args:
        entity: whose rows.
        tenant_id: the tenant; ``None`` for all rows.
        name_of: returns the name of the collection of an entity.
    """
    if tenant_id is None:
        return TenantFilter({})
    return _tenant_filter(entity, tenant_argument(tenant_id), name_of)


def _tenant_filter(entity: Entity, tenant: str, name_of: Callable[[Entity], str]) -> TenantFilter:
    owner = codec_of(entity).tenant
    if owner is not None:
        return TenantFilter({owner: tenant})
    if entity.tenancy.kind is not TenancyKind.PARENT or entity.parent is None:
        return TenantFilter({})
    parent = entity.parent.entity
    of_parent = _tenant_filter(parent, tenant, name_of)
    join = {
        "from": name_of(parent),
        "localField": codec_of(entity).names[entity.parent.field],
        "foreignField": codec_of(parent).key[-1],
        # One is enough to know, and nothing of it is needed.
        "pipeline": [*of_parent.stages, {"$limit": 1}, {"$project": {"_id": 1}}],
        "as": PARENT,
    }
    return TenantFilter({}, [{"$lookup": join}, {"$match": {PARENT: {"$ne": []}}}, {"$unset": PARENT}])


def counted_owner(tenant: str | None) -> object:
    """Return the expression by which documents are counted: the tenant, ``false`` if it is unknown.

    A document as a tenant could be as large as the largest answer of the server.

    Args:
        tenant: the stored name of the field, ``None`` where there is none.
    """
    if tenant is None:
        return None
    stored, kind = f"${tenant}", {"$type": f"${tenant}"}
    is_short = {"$lte": [{"$strLenBytes": stored}, LONGEST_TENANT]}
    is_absent = {"$in": [kind, ["missing", "null", "undefined"]]}
    return {"$cond": [{"$cond": [{"$eq": [kind, "string"]}, is_short, is_absent]}, stored, False]}


def owner_of_value(entity: Entity, stored: Any) -> StoredOwner:  # noqa: ANN401  # any stored value
    """Return the owner that a document names; ``stored`` is the value of the tenant field."""
    if entity.tenant_field is None:
        return NO_TENANT
    if isinstance(stored, str):
        return Tenant(stored)
    absent = stored is None and entity.tenancy.kind is TenancyKind.OPTIONAL
    return NO_TENANT if absent else UNKNOWN_TENANT
