"""Whose rows a copy reads, where rules change the field that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.catalog.tenancy import TenancyKind
from twinstore.errors import ValidationError
from twinstore_backfill.rules.model import ANY, KeyRule, RenameRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.rules.model import JobRules, Rule


def decides_tenant(rules: JobRules, entity: Entity) -> bool:
    """Whether a rule changes the tenant of the rows of an entity."""
    return any(makes_tenant(rule, entity) for rule in rules.changing(entity))


def makes_tenant(rule: Rule, entity: Entity) -> bool:
    """Whether this rule changes it."""
    name = entity.tenant_field
    # A function has no path, and keeps the tenant.
    first = {*rule.path[:1], *(rule.to[:1] if isinstance(rule, RenameRule) else ())}
    return name is not None and not first.isdisjoint({name, f"_{name}", ANY})


def check_selection(rules: JobRules, entities: Iterable[Entity]) -> None:
    """Refuse tenants whose rows cannot be found: children have the tenant of a parent that rules change.

    Raises:
        ValidationError: there are such rows.
    """
    for entity in entities:
        if entity.tenancy.kind is not TenancyKind.PARENT or entity.parent is None:
            continue
        above = entity.parent.entity
        if decides_tenant(rules, above) or rules.of(above, KeyRule):
            raise ValidationError(
                f"--tenant selects the rows of {entity.name} by their {above.singular}, whose tenant or key "
                "the rules of the job change; copy all tenants."
            )
