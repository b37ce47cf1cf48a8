"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import DigestSet, Flag, StringSet, TenantId
from twinstore.scheduler.enums import SelectorScope
from twinstore.scheduler.selectors import LabelFilter, LabelKey

__all__ = ["LabelFilterChanges", "SelectorChanges"]


class LabelFilterChanges(TypedDict, total=False):
    """What ``LabelFilter.evolve`` may change."""

    key: LabelKey
    values: StringSet


class SelectorChanges(TypedDict, total=False):
    """What ``Selector.evolve`` may change."""

    scope: SelectorScope
    tenant_id: TenantId | None
    namespaces: StringSet
    repositories: StringSet
    digests: DigestSet
    include_tags: StringSet
    labels: tuple[LabelFilter, ...]
    resolves_tags: Flag
