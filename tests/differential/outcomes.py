"""What a caller can observe of a call, in a form that can be compared between drivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pydantic

from twinstore.access.paging import Page
from twinstore.catalog.row import Row
from twinstore.errors import InvalidTransitionError, TwinstoreError
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Returned:
    """The call returned: models as canonical bytes, pages with their token."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The call raised; everything but the name of the driver counts."""

    kind: str
    message: str
    details: tuple[object, ...] = ()


Outcome = Returned | Raised


def observe(action: Callable[[], object]) -> Outcome:
    """Return the outcome of a call; an error that no caller expects is passed on."""
    try:
        return Returned(comparable(action()))
    except TwinstoreError as error:
        return Raised(type(error).__name__, error.message, details(error))
    except pydantic.ValidationError as error:
        return Raised(type(error).__name__, str(error))


def details(error: TwinstoreError) -> tuple[object, ...]:
    """Return what an error carries beside its message, without the driver."""
    moves = (error.from_state, error.to_state) if isinstance(error, InvalidTransitionError) else ()
    return (error.code, error.http_status, error.retryable, error.entity, error.key, *moves)


def comparable(value: object) -> object:
    """Return a result in a form that is equal exactly when the results are."""
    if isinstance(value, CanonicalModel):
        return (type(value).__name__, CanonicalJsonSerializer.serialize(value))
    if isinstance(value, Page):
        passed = [(row.entity, row.tenant, row.key) for row in value.undecodable]
        return ("page", [comparable(item) for item in value], value.next_page_token, passed)
    if isinstance(value, Row):
        return (comparable(value.model), sorted(value.storage.items()))
    if isinstance(value, tuple):
        return [comparable(item) for item in value]
    return (type(value).__name__, value)
