"""Checks the result of a caller's function or a rule before any driver writes it.

A function that gets a stored row and returns the new one could name another tenant or another key. A driver
that wrote it would change a row that the call is not about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from twinstore.access.scope import function_argument
from twinstore.errors import ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.validation import revalidated

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

__all__ = ["check_written", "checked"]


M = TypeVar("M", bound=CanonicalModel)


def checked(
    change: Callable[[M | None], M | None], entity: Entity, tenant: str, key: Key, model: type[M]
) -> Callable[[M | None], M | None]:
    """Return a function that does what ``change`` does and checks what it returns; ``None`` stays ``None``.

    Args:
        change: gets the stored row, or ``None``, and returns the new one, or ``None`` to leave it.
        entity: what is changed.
        tenant: the tenant of the call, normalised.
        key: the key of the call, normalised, in key order.
        model: the class of the entity.

    Raises:
        ValidationError: ``change`` is not a function. The result raises what :func:`check_written` raises.
    """
    function_argument(change, "change")

    def apply(stored: M | None) -> M | None:
        returned = change(stored)
        return None if returned is None else check_written(entity, tenant, key, model, returned)

    return apply


def check_written(entity: Entity, tenant: str, key: Key, model: type[M], returned: object) -> M:
    """Return what was returned to be written, when it is the row that was asked about.

    Raises:
        ValidationError: a value of another type, of another tenant or with another key, or one that breaks a
            rule of its model.
    """
    expected: dict[str, str | int] = dict(zip(entity.key, key, strict=True))
    if entity.tenant_field is not None:
        expected[entity.tenant_field] = tenant
    if not isinstance(returned, model):
        raise refused(entity, key, f"is a {type(returned).__name__}, not a {model.__name__}")
    written = revalidated(returned, model, "change")
    for wire, name in entity.identity.items():
        found = getattr(written, name, None)
        if found != expected[wire]:
            raise refused(entity, key, f"has {name} {found!r} instead of {expected[wire]!r}")
    return written


def refused(entity: Entity, key: Key, why: str) -> ValidationError:
    """Return the error of a returned value that is not the row that was asked about."""
    text = ":".join(map(str, key))
    return ValidationError(
        f"What was returned for the {entity.singular} {text!r} {why}; nothing was written. Return that row "
        "with tenant and key as they are, or None to leave it.",
        **entity.located(text),
    )
