"""Dates inside free JSON, which has no type for them: an object with the one name ``$date``.

Its value is the canonical text of the instant. Stores that hold JSON hold the object as it is; one that has
dates of its own stores a date wherever this object stands inside of free JSON, and reads it as this object.
Any other object with that name, such as one with an offset other than ``+00:00``, is an object as it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from pydantic_core import PydanticCustomError

from twinstore.fields import parse_timestamp
from twinstore.jsontext import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.jsontext import JsonObject

__all__ = ["DATE", "date_in", "date_object"]

DATE: Final = "$date"
"""The one name of an object that stands for a date."""


def date_object(instant: datetime) -> JsonObject:
    """Return the object that stands for an instant in free JSON; what lies below one millisecond is cut.

    Raises:
        PydanticCustomError: the instant has no offset, or lies outside the years 1 to 9999 in UTC.
    """
    return {DATE: format_timestamp(parse_timestamp(instant))}


def date_in(value: Mapping[str, object]) -> datetime | None:
    """Return the instant for which an object of free JSON stands, ``None`` for any other object."""
    text = value.get(DATE)
    if type(text) is not str or len(value) != 1:
        return None
    try:
        found = parse_timestamp(text)
    except PydanticCustomError:
        return None
    # Many texts tell one instant, and only one of them comes back.
    return found if format_timestamp(found) == text else None
