"""Whose rows a call is about: one tenant's, those without a tenant, or all rows.

"No tenant" is a value like any other. "The tenant is unknown" is not: a tool reports it for a stored row
whose tenant field is broken, and no call accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from typing_extensions import override

__all__ = [
    "ALL_TENANTS",
    "NO_TENANT",
    "UNKNOWN_TENANT",
    "Owner",
    "StoredOwner",
    "Tenancy",
    "TenancyKind",
    "Tenant",
    "Tenants",
    "owner_of",
]


@dataclass(frozen=True, slots=True)
class Tenant:
    """The rows of one tenant; ``id`` is normalised already."""

    id: str


class TenantSentinel(Enum):
    """The scopes and owners that are not a tenant."""

    NO_TENANT = "no tenant"
    ALL_TENANTS = "all tenants"
    UNKNOWN_TENANT = "unknown tenant"

    @override
    def __repr__(self) -> str:
        return self.name


NO_TENANT: Final = TenantSentinel.NO_TENANT
"""The rows without a tenant, where an entity admits them."""
ALL_TENANTS: Final = TenantSentinel.ALL_TENANTS
"""Every row, regardless of its owner; system scope."""
UNKNOWN_TENANT: Final = TenantSentinel.UNKNOWN_TENANT
"""The owner of a stored row whose tenant field holds no tenant id; never the scope of a call."""

NoTenant = Literal[TenantSentinel.NO_TENANT]
AllTenants = Literal[TenantSentinel.ALL_TENANTS]
UnknownTenant = Literal[TenantSentinel.UNKNOWN_TENANT]

Owner = Tenant | NoTenant
"""Who owns a row."""
Tenants = Tenant | NoTenant | AllTenants
"""Whose rows a call sees."""
StoredOwner = Tenant | NoTenant | UnknownTenant
"""Who owns a row that a tool read, as far as it is known."""


class TenancyKind(Enum):
    """How a row belongs to a tenant."""

    REQUIRED = "every row has a tenant"
    OPTIONAL = "a row may be without tenant"
    NONE = "rows have no tenant"
    PARENT = "a row belongs to the tenant of its parent"


@dataclass(frozen=True, slots=True)
class Tenancy:
    """How rows belong to tenants, and the field that says so (``None``: there is none)."""

    kind: TenancyKind
    field: str | None = None

    @classmethod
    def required(cls, name: str = "tenantId") -> Tenancy:
        """Every row names its tenant."""
        return cls(TenancyKind.REQUIRED, name)

    @classmethod
    def optional(cls, name: str = "tenantId") -> Tenancy:
        """A row names its tenant or has none; "no tenant" is a separate scope."""
        return cls(TenancyKind.OPTIONAL, name)

    @classmethod
    def none(cls) -> Tenancy:
        """Tenants do not matter; every scope sees every row."""
        return cls(TenancyKind.NONE)

    @classmethod
    def through_parent(cls) -> Tenancy:
        """A row is seen by callers that see its parent; it does not name a tenant itself."""
        return cls(TenancyKind.PARENT)


# In tallies and reports owners are texts. No tenant id is empty or contains a colon.
UNKNOWN_LABEL: Final = ""
NO_TENANT_LABEL: Final = ":none"
# No tenant id is as long. A label is in every tally and in every line of a row, so it must be short.
MAX_LABEL_LENGTH: Final = 256


def owner_of(tenant_id: str | None) -> Owner:
    """Return the owner that a model names."""
    return NO_TENANT if tenant_id is None else Tenant(tenant_id)


def label_of(owner: StoredOwner) -> str:
    """Return the text under which the rows of an owner are counted.

    A stored text that no store can keep as a label, or that would look like another one, counts as unknown.
    """
    if isinstance(owner, Tenant):
        return owner.id if _is_label(owner.id) else UNKNOWN_LABEL
    return NO_TENANT_LABEL if owner is NO_TENANT else UNKNOWN_LABEL


def names_tenant(label: str) -> bool:
    """Whether a label is the id of a tenant."""
    return label not in {UNKNOWN_LABEL, NO_TENANT_LABEL}


def shown(label: str) -> str:
    """Return the label of an owner as people read it."""
    return {UNKNOWN_LABEL: "(unknown tenant)", NO_TENANT_LABEL: "(no tenant)"}.get(label, label)


def _is_label(text: str) -> bool:
    """Whether a text is short, not reserved, and not refused by a store for U+0000 or a lone surrogate."""
    if len(text) > MAX_LABEL_LENGTH or text == NO_TENANT_LABEL or "\x00" in text:
        return False
    # ASCII first, as nearly all ids: the other test copies the text twice.
    return text.isascii() or text.encode(errors="ignore").decode() == text


def admits(scope: Tenants, owner: Owner) -> bool:
    """Whether a row of this owner is seen in a scope."""
    return scope is ALL_TENANTS or scope == owner


def setting_of(scope: Tenants, *, every: str, none: str) -> str:
    """Return a scope as text, for a store that takes it as text: the id, or the text for all or for none."""
    if isinstance(scope, Tenant):
        return scope.id
    return every if scope is ALL_TENANTS else none
