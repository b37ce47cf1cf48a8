"""Corruptions of rows that are copied as released, of which only key, tenant and fence are determined.

Whatever else such a row holds belongs to whoever had it last. What a service reads all the same is no
corruption there; what no service can read is one in any field.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from twinstore.planting import Role
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.selftest.mutations import Mutation
from twinstore_backfill.selftest.spots import edited, put

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from twinstore.catalog import Entity
    from twinstore_backfill.selftest.spots import Spot

__all__ = ["of_released"]

# No service reads a row with one of these at the top, in a field that every row has.
UNREADABLE: Final = frozenset({Kind.NULL, Kind.FORM, Kind.KEY_RENAMED, Kind.KEY_DOUBLED})


def of_released(entity: Entity, spot: Spot, found: Iterator[Mutation]) -> Iterator[Mutation]:
    """Yield, of the corruptions of a place, those that are some in a row that is copied as released."""
    if entity.release is None or spot.place.role is not Role.FIELD:
        yield from found
    elif spot.place.field == entity.release.fence:
        yield from _of_fence(spot, found)
    elif spot.at_top and entity.shapes[spot.place.field].always_written:
        shape = entity.shapes[spot.place.field]
        # What has a default is read as that where it is missing.
        required = {Kind.MISSING} if entity.model.model_fields[shape.name].is_required() else set()
        yield from (mutation for mutation in found if mutation.kind in UNREADABLE | required)


def _of_fence(spot: Spot, found: Iterator[Mutation]) -> Iterator[Mutation]:
    """Yield the corruptions of a fence: a target may be ahead in it and never behind."""

    def lower(values: Mapping[str, object]) -> dict[str, object]:
        value = cast("int", spot.value)
        return edited(values, spot.path, lambda container: put(container, spot.name, type(value)(value - 1)))

    for mutation in found:
        if mutation.kind is Kind.STEP:
            yield replace(mutation, free=True, form="ahead")
            yield replace(mutation, build=lower, form="behind")
        else:
            yield mutation
