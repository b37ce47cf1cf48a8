"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Count, DigestText, Flag, Id, StringSet, Text, TextMap, Timestamp
from twinstore.scheduler.impact_snapshots import ImpactImage
from twinstore.scheduler.selectors import Selector

__all__ = ["ImpactImageChanges", "ImpactSetChanges"]


class ImpactImageChanges(TypedDict, total=False):
    """What ``ImpactImage.evolve`` may change."""

    image_digest: DigestText
    registry: Text
    repository: Text
    namespaces: StringSet
    tags: StringSet
    used_by_entrypoint: Flag
    labels: TextMap


class ImpactSetChanges(TypedDict, total=False):
    """What ``ImpactSet.evolve`` may change."""

    schema_version: str
    selector: Selector
    images: tuple[ImpactImage, ...]
    usage_only: Flag
    generated_at: Timestamp
    total: Count
    snapshot_id: Id | None
