"""A list as data: filter, total order, limit and starting point, the same for every driver.

The contracts speak in typed options; :mod:`twinstore.scheduler.queries` turns them into a :class:`Query`
and each driver compiles that once. Field names are wire names, or names of storage markers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from twinstore.errors import ValidationError
from twinstore.paging import KeyPart, Page, SortKey, decode_token, fingerprint, paginate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    T = TypeVar("T")
    R = TypeVar("R")

__all__ = [
    "After",
    "AtMost",
    "Before",
    "Condition",
    "Equals",
    "IsNull",
    "OneOf",
    "Query",
    "batch_size_argument",
    "build_query",
    "limit_argument",
]

Value = str | bool | datetime


@dataclass(frozen=True, slots=True)
class Equals:
    """The field has this value."""

    field: str
    value: Value


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field has one of these values; none of them matches nothing."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class After:
    """The instant is later than this one."""

    field: str
    value: datetime


@dataclass(frozen=True, slots=True)
class Before:
    """The instant is earlier than this one."""

    field: str
    value: datetime


@dataclass(frozen=True, slots=True)
class AtMost:
    """The instant is present and not later than this one."""

    field: str
    value: datetime


@dataclass(frozen=True, slots=True)
class IsNull:
    """The field is absent or null."""

    field: str


Condition = Equals | OneOf | After | Before | AtMost | IsNull


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One list request. ``tenant_id=None`` means all tenants (system scope)."""

    entity: str
    tenant_id: str | None
    where: tuple[Condition, ...]
    order: tuple[SortKey, ...]
    limit: int
    after: tuple[KeyPart, ...] | None = None
    fingerprint: str = ""

    @property
    def matches_nothing(self) -> bool:
        """Whether a filter collection is empty, so that no server needs to be asked."""
        return any(isinstance(condition, OneOf) and not condition.values for condition in self.where)

    def page(
        self, rows: Sequence[R], item: Callable[[R], T], key: Callable[[R], Sequence[KeyPart]]
    ) -> Page[T]:
        """Return the page made of up to ``limit + 1`` rows in order."""
        return paginate(rows, self.limit, entity=self.entity, print_=self.fingerprint, item=item, key=key)


def build_query(  # a list is made of exactly these
    entity: str,
    *,
    tenant_id: str | None,
    where: Sequence[Condition],
    order: Sequence[SortKey],
    limit: int,
    maximum: int,
    page_token: str | None = None,
) -> Query:
    """Return the query of a list; checks the limit and the token."""
    print_ = fingerprint(
        {
            "t": tenant_id,
            "w": [[type(item).__name__, item.field, _shown(item)] for item in where],
            "o": [[key.field, key.descending] for key in order],
        }
    )
    return Query(
        entity=entity,
        tenant_id=tenant_id,
        where=tuple(where),
        order=tuple(order),
        limit=limit_argument(limit, maximum),
        after=None if page_token is None else decode_token(page_token, entity, print_, order),
        fingerprint=print_,
    )


def _shown(condition: Condition) -> object:
    if isinstance(condition, OneOf):
        return sorted(condition.values)
    return None if isinstance(condition, IsNull) else condition.value


def limit_argument(limit: int, maximum: int) -> int:
    """Return the limit, reduced to its maximum; raise ``ValidationError`` below 1."""
    if type(limit) is not int or limit < 1:
        raise ValidationError(f"Argument limit should be a whole number of at least 1, not {limit!r}.")
    return min(limit, maximum)


def batch_size_argument(batch_size: int) -> int:
    """Return the size of a batch; raise ``ValidationError`` below 1."""
    if type(batch_size) is not int or batch_size < 1:
        raise ValidationError(
            f"Argument batch_size should be a whole number of at least 1, not {batch_size!r}."
        )
    return batch_size
