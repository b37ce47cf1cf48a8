"""What all models of tracking share: names in snake_case on the wire, and instants that the store sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

from pydantic import AfterValidator, ConfigDict

from twinstore.access.scope import instant_argument
from twinstore.clock import SystemClock
from twinstore.models.canonical import CanonicalModel
from twinstore.models.collections import without_repeats
from twinstore.models.fields import Count32, Id

if TYPE_CHECKING:
    from datetime import datetime

AUTOMATIC: Final = ("created_at", "updated_at")
"""The fields that a repository sets by the clock of its storage, whatever a caller says."""


class TrackingRecord(CanonicalModel):
    """Base of the models: the customer's names are the same on the wire and in Python."""

    model_config = ConfigDict(alias_generator=None)


IdList = Annotated[tuple[Id, ...], AfterValidator(without_repeats)]
SlotList = Annotated[tuple[Count32, ...], AfterValidator(without_repeats)]


def new_id() -> str:
    """Return a random UUID as ids of sessions and tasks have it."""
    return str(uuid4())


def started_now(now: datetime | None) -> datetime:
    """Return the instant that a caller gives, or that of the operating system."""
    return SystemClock().now() if now is None else instant_argument(now, "now")
