"""Who may see what: the tenant of a call, of a session, and the few calls that see all tenants."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, TypeVar, cast

import pydantic
from pydantic import TypeAdapter

from twinstore.errors import TenantScopeError, ValidationError
from twinstore.models.fields import (
    SYSTEM_TENANT,
    Actor,
    Count,
    Count32,
    FreeObject,
    Id,
    OptionalReference,
    OptionalText,
    TenantText,
    explain,
    parse_timestamp,
)
from twinstore.models.validation import revalidated
from twinstore.observing.observer import CURRENT_NOTIFIER
from twinstore.runtime.forks import ForkSafeLock
from twinstore.runtime.formatting import safe_repr

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.models.canonical import CanonicalModel
    from twinstore.models.json_text import JsonObject
    from twinstore.observing.observer import Notifier

__all__ = [
    "SYSTEM_TENANT",
    "UNBOUND",
    "Scope",
    "count_argument",
    "duration_argument",
    "field_argument",
    "flag_argument",
    "function_argument",
    "id_argument",
    "instant_argument",
    "member_argument",
    "members_argument",
    "object_argument",
    "optional_reference_argument",
    "optional_text_argument",
    "options_argument",
    "system_scope_openings",
    "text_argument",
    "whole_argument",
]


log = logging.getLogger("twinstore.system_scope")
M = TypeVar("M", bound="CanonicalModel")
T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

TENANT_TEXT_ADAPTER: Final = TypeAdapter[str](TenantText)
ID_ADAPTER: Final = TypeAdapter[str](Id)
TEXT_ADAPTER: Final = TypeAdapter[str](Actor)
OPTIONAL_REFERENCE_ADAPTER: Final = TypeAdapter[str | None](OptionalReference)
OPTIONAL_TEXT_ADAPTER: Final = TypeAdapter[str | None](OptionalText)
COUNT_ADAPTER: Final = TypeAdapter[int](Count32)
WHOLE_ADAPTER: Final = TypeAdapter[int](Count)
OBJECT_ADAPTER: Final = TypeAdapter["JsonObject"](FreeObject)

# A purpose is free text. What is counted by it must not grow with the data of a host that puts some in.
MAX_PURPOSES: Final = 100
KNOWN_TENANTS: Final = 1000
MAX_PURPOSE_LENGTH: Final = 100
OTHER_PURPOSE: Final = "other"

_openings: Counter[str] = Counter()
# A Counter adds in two steps, between which another thread may come.
_openings_lock = ForkSafeLock()


@dataclass(frozen=True, slots=True)
class Scope:
    """The tenant a set of repositories is bound to.

    Unbound repositories (no tenant, no purpose) take the tenant of each call and may open system scope;
    bound ones admit their own tenant only, or, opened with a purpose, system scope only, or, opened without
    either, no tenant only.
    """

    tenant_id: str | None = None
    purpose: str | None = None
    without_tenant: bool = False

    def admit(self, tenant_id: str) -> str:
        """Return the normalised tenant of a call.

        Raises:
            ValidationError: not an acceptable tenant id.
            TenantScopeError: the reserved tenant, or not the tenant of this session.
        """
        # The tenant of a session was validated when it was opened; most calls name it in the same spelling.
        own = self.tenant_id
        # Its own text, because what is equal to it may be of another class.
        tenant = own if own is not None and tenant_id == own else tenant_argument(tenant_id)
        # After the id was checked: a bad id is a bad argument in any session.
        if self.purpose is not None:
            raise TenantScopeError(
                f"This session has system scope ({self.purpose}); open one for tenant {tenant!r} instead."
            )
        if self.without_tenant:
            raise TenantScopeError(
                f"This session has no tenant; open one for tenant {tenant!r} to reach what belongs to it."
            )
        if self.tenant_id is not None and tenant != self.tenant_id:
            raise TenantScopeError(
                f"Tenant {tenant!r} differs from {self.tenant_id!r}, the tenant of this session; "
                "open a session for it."
            )
        return tenant

    def admit_system(self, purpose: str) -> str:
        """Open system scope for one call; return its purpose. Logged and counted.

        Raises:
            TenantScopeError: the repositories are bound to one tenant.
        """
        if self.tenant_id is not None or self.without_tenant:
            bound = "no tenant" if self.tenant_id is None else f"tenant {self.tenant_id!r}"
            raise TenantScopeError(
                f"'{purpose}' sees all tenants, but this session is bound to {bound}; "
                "call it on the storage, or in a session opened with a purpose and no tenant."
            )
        record_system_scope(purpose)
        return purpose

    def admit_no_tenant(self) -> None:
        """Admit a call about the rows without a tenant.

        Raises:
            TenantScopeError: the repositories are bound to a tenant, or have system scope.
        """
        if self.tenant_id is not None:
            raise TenantScopeError(
                f"This call names no tenant, but the session is bound to tenant {self.tenant_id!r}; "
                "name that one, or open a session without a tenant."
            )
        if self.purpose is not None:
            raise TenantScopeError(
                f"This session has system scope ({self.purpose}); ask for ALL_TENANTS, "
                "or open a session without tenant and purpose for what belongs to no tenant."
            )


UNBOUND: Final = Scope()


def bound_scope(
    tenant_id: str | None,
    purpose: str | None,
    notifier: Notifier | None = None,
    *,
    without_tenant: bool = False,
) -> Scope:
    """Return the scope of a session: one tenant, system scope with a purpose, or no tenant.

    Args:
        tenant_id: the one tenant.
        purpose: why all tenants are needed.
        notifier: reports the opening of system scope; ``None``: the notifier of the present call.
        without_tenant: whether the module has rows without a tenant, so that neither may be given.

    Raises:
        TenantScopeError: both are given, or neither where every row has a tenant.
    """
    if tenant_id is None and purpose is None and without_tenant:
        return Scope(without_tenant=True)
    if (tenant_id is None) == (purpose is None):
        raise TenantScopeError("Open a session for one tenant, or without a tenant and with a purpose.")
    if tenant_id is None:
        # It is logged in full and is a label of a counter, so it must be text without lone surrogates.
        reason = text_argument(cast("str", purpose), "purpose")
        record_system_scope(reason, notifier)
        return Scope(purpose=reason)
    return Scope(tenant_id=tenant_argument(tenant_id))


def record_system_scope(purpose: str, notifier: Notifier | None = None) -> None:
    """Log and count one opening of system scope, and notify the observers of the storage."""
    with _openings_lock:
        known = purpose in _openings or (len(_openings) < MAX_PURPOSES and len(purpose) <= MAX_PURPOSE_LENGTH)
        counted = purpose if known else OTHER_PURPOSE
        _openings[counted] += 1
    log.info("system scope opened: %s", purpose)
    active_notifier = notifier or CURRENT_NOTIFIER.get()
    if active_notifier is not None:
        active_notifier.system_scope_opened(counted)


def system_scope_openings() -> dict[str, int]:
    """Return how often system scope was opened in this process, by purpose.

    After 100 purposes, and for one of more than 100 characters, further ones are counted as ``other``.
    """
    with _openings_lock:
        return dict(_openings)


def tenant_argument(value: str) -> str:
    """Return a normalised tenant id.

    Raises:
        TenantScopeError: the reserved tenant.
        ValidationError: blank, too long, or with a colon or control character.
    """
    # Every call names one, and mostly one of a few. What is equal to a text may be of another class.
    return known_tenant(value) if type(value) is str else checked_tenant(value)


def checked_tenant(value: object) -> str:
    """Return the same, whatever is given."""
    tenant = adapted(TENANT_TEXT_ADAPTER, value, "tenant_id")
    if tenant == SYSTEM_TENANT:
        raise TenantScopeError("Tenant 'system' is reserved; use the id of a real tenant.")
    return tenant


known_tenant: Final = lru_cache(maxsize=KNOWN_TENANTS)(checked_tenant)


def id_argument(value: str, name: str) -> str:
    """Return a normalised id, or raise ``ValidationError`` naming the argument."""
    return adapted(ID_ADAPTER, value, name)


def text_argument(value: str, name: str) -> str:
    """Return trimmed, non-empty text, or raise ``ValidationError`` naming the argument."""
    return adapted(TEXT_ADAPTER, value, name)


def optional_reference_argument(value: str | None, name: str) -> str | None:
    """Return a trimmed foreign id or ``None``, or raise ``ValidationError`` naming the argument."""
    return adapted(OPTIONAL_REFERENCE_ADAPTER, value, name)


def optional_text_argument(value: str | None, name: str) -> str | None:
    """Return trimmed text or ``None``, or raise ``ValidationError`` naming the argument."""
    return adapted(OPTIONAL_TEXT_ADAPTER, value, name)


def instant_argument(value: datetime, name: str) -> datetime:
    """Return an aware UTC instant in whole milliseconds, or raise ``ValidationError`` naming the argument."""
    try:
        return parse_timestamp(value)
    except ValueError as error:
        raise ValidationError(f"Argument {name}: {error}") from error


def count_argument(value: int, name: str) -> int:
    """Return a whole number from 0 of at most 32 bits, or raise ``ValidationError`` naming the argument."""
    return adapted(COUNT_ADAPTER, value, name)


def whole_argument(value: int, name: str) -> int:
    """Return a whole number from 0 of at most 64 bits, or raise ``ValidationError`` naming the argument."""
    return adapted(WHOLE_ADAPTER, value, name)


def field_argument(cls: type[CanonicalModel], field: str, value: T, name: str) -> T:
    """Return an argument as a model holds it in a field, or raise ``ValidationError`` naming the argument.

    ``field`` is its Python name. Its annotation decides; a ``field_validator`` of the class does not run.
    """
    # Safe, because what a field holds is of the type that it admits.
    return cast("T", adapted(field_adapter(cls, field), value, name))


@cache
def field_adapter(cls: type[CanonicalModel], field: str) -> TypeAdapter[object]:
    """Return what validates a field of a model alone."""
    return TypeAdapter(cls.model_fields[field].rebuild_annotation(), config=cls.model_config)


def object_argument(value: JsonObject, name: str) -> JsonObject:
    """Return free JSON in canonical form, or raise ``ValidationError`` naming the argument."""
    return adapted(OBJECT_ADAPTER, value, name)


def model_argument(value: object, cls: type[M], name: str) -> M:
    """Return a model of that class, checked at every depth, or raise ``ValidationError`` naming the argument.

    What is returned is another object: a caller that changes its own later changes nothing here.
    """
    return revalidated(instance_argument(value, cls, name), cls, name)


def instance_argument(value: object, cls: type[T], name: str) -> T:
    """Return the value when it is of that class, or raise ``ValidationError`` naming the argument."""
    if isinstance(value, cls):
        return value
    raise ValidationError(f"Argument {name} should be a {cls.__name__}, not {type(value).__name__}.")


def duration_argument(value: object, name: str) -> timedelta:
    """Return a length of time, or raise ``ValidationError`` naming the argument."""
    if isinstance(value, timedelta):
        # As a plain one, whatever class of another library it is of and however that counts.
        return timedelta.__pos__(value)
    raise ValidationError(f"Argument {name} should be a timedelta, not {safe_repr(value)}.")


def adapted(adapter: TypeAdapter[T], value: object, name: str) -> T:
    """Return what a type makes of a value, or raise ``ValidationError`` naming the argument."""
    try:
        return adapter.validate_python(value)
    except pydantic.ValidationError as error:
        problem = explain(error.errors(include_url=False, include_input=False)[0])
        raise ValidationError(f"Argument {name}: {problem}.") from error


def member_argument(value: object, cls: type[E], name: str) -> E:
    """Return a member of an enumeration, or raise ``ValidationError`` naming the argument."""
    try:
        return cls(cast("str", value))
    # Whatever else its comparison raises: the value may be of any class.
    except (ValueError, TypeError, RecursionError) as error:
        known = ", ".join(member.value for member in cls)
        raise ValidationError(
            f"Argument {name}: {safe_repr(value)} is not a valid {cls.__name__}; the values are {known}."
        ) from error


def flag_argument(value: bool, name: str) -> bool:  # noqa: FBT001  # the argument that is looked at
    """Return a flag, or raise ``ValidationError`` naming the argument."""
    if value is True or value is False:
        return value
    raise ValidationError(f"Argument {name} should be True or False, not {safe_repr(value)}.")


def function_argument(value: object, name: str) -> None:
    """Raise ``ValidationError`` naming the argument when it cannot be called."""
    if not callable(value):
        raise ValidationError(f"Argument {name} should be a function, not {safe_repr(value)}.")


def members_argument(values: object, cls: type[E], name: str) -> tuple[E, ...]:
    """Return members of an enumeration, or raise ``ValidationError`` naming the argument."""
    # A text is a collection too, of its letters.
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
        given = cast("Iterable[object]", values)
        return tuple(member_argument(value, cls, name) for value in given)
    raise ValidationError(
        f"Argument {name} should be a collection of {cls.__name__}, not {safe_repr(values)}."
    )


def options_argument(value: T | None, cls: type[T]) -> T:
    """Return the options of a list, the default ones for ``None``; everything else is no options."""
    return cls() if value is None else instance_argument(value, cls, "options")
