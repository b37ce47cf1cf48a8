"""What a write of an impact snapshot must satisfy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from twinstore.scheduler.selectors import Selector


def check_owner(selector: Selector, tenant_id: str) -> None:
    """Refuse a selector that names another tenant."""
    if not selector.owned_by(tenant_id):
        raise ValidationError(
            f"The selector of the snapshot names another tenant than {tenant_id!r}; "
            "leave its tenantId out or correct it.",
            entity="impact_snapshots",
        )
