"""A list as data: filter, total order, limit and starting point, the same for every driver.

The contracts speak in typed options; the module ``queries`` of a module turns them into a :class:`Query`
and each driver compiles that once. Field names are wire names, or names of storage markers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, assert_never

from twinstore.access.paging import Page, SortKey, SortValue, decode_token, fingerprint, paginate
from twinstore.catalog.conditions import (
    COMPARISONS,
    After,
    AtLeast,
    AtMost,
    Before,
    Comparison,
    Condition,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
)
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant, Tenants
from twinstore.errors import ValidationError
from twinstore.models.fields import INT32_MAX
from twinstore.models.json_text import format_timestamp
from twinstore.runtime.formatting import safe_repr

if TYPE_CHECKING:
    from typing import TypeVar

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

__all__ = ["Query", "batch_size_argument", "build_query", "label_of_value", "limit_argument"]


if TYPE_CHECKING:
    T = TypeVar("T")
    R = TypeVar("R")


def _no_owner(row: object) -> None:
    del row


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One list request: the first ``limit`` rows of an entity in a scope that satisfy every condition.

    Attributes:
        entity: its name.
        scope: whose rows.
        where: the conditions.
        order: a total order.
        limit: rows of a page.
        after: the sort key after which the page begins.
        bound: scope, conditions and order of the list to which its page tokens are bound; a query for a part
            of a list keeps those of the list. ``None`` where no token is ever made.
        skips_undecodable: whether the page names a row that cannot be decoded; otherwise it ends the list.
    """

    entity: str
    scope: Tenants
    where: tuple[Condition, ...]
    order: tuple[SortKey, ...]
    limit: int
    after: tuple[SortValue, ...] | None = None
    bound: tuple[Tenants, tuple[Condition, ...], tuple[SortKey, ...]] | None = None
    skips_undecodable: bool = False

    @property
    def fingerprint(self) -> str:
        """What its page tokens hold of it; made here, because few calls have or need a token."""
        return "" if self.bound is None else query_fingerprint(*self.bound)

    @property
    def matches_nothing(self) -> bool:
        """Whether a filter collection is empty, so that no server needs to be asked."""
        return any(isinstance(condition, OneOf) and not condition.values for condition in self.where)

    def page(
        self,
        rows: Sequence[R],
        item: Callable[[R], T],
        key: Callable[[R], Sequence[SortValue]],
        owner: Callable[[R], object] = _no_owner,
    ) -> Page[T]:
        """Return the page made of up to ``limit + 1`` rows in order.

        Args:
            rows: what the store found.
            item: decodes a row; raises ``DocumentDecodeError``.
            key: returns the values by which a row is sorted.
            owner: returns the tenant that a row names, whether or not it can be decoded.
        """
        return paginate(
            rows,
            self.limit,
            entity=self.entity,
            token_digest=lambda: self.fingerprint,
            item=item,
            key=key,
            owner=owner if self.skips_undecodable else None,
        )


def build_query(  # a list is made of exactly these
    entity: str,
    *,
    scope: Tenants,
    where: Sequence[Condition],
    order: Sequence[SortKey],
    limit: int,
    maximum: int,
    page_token: str | None = None,
) -> Query:
    """Return the query of a list; checks the limit and the token."""
    found = Query(
        entity=entity,
        scope=scope,
        where=tuple(where),
        order=tuple(order),
        limit=limit_argument(limit, maximum),
        bound=(scope, tuple(where), tuple(order)),
        # One broken row would stop all tenants; a list of one tenant must not hide that it is incomplete.
        skips_undecodable=scope is ALL_TENANTS,
    )
    if page_token is None:
        return found
    return replace(found, after=decode_token(page_token, entity, found.fingerprint, order))


def query_fingerprint(scope: Tenants, where: Sequence[Condition], order: Sequence[SortKey]) -> str:
    """Return what the page tokens of a list hold of it."""
    return fingerprint(
        {
            # The tenant too, so that a token of one tenant is refused by another instead of showing a wrong
            # page.
            "t": _scope_digest(scope),
            # By name of class: two conditions on one field and value may differ in nothing else.
            "w": [[type(item).__name__, item.field, _token_value(item)] for item in where],
            "o": [[key.field, key.descending] for key in order],
        }
    )


def _scope_digest(scope: Tenants) -> object:
    """Return what represents a scope in a token; an id never looks like the list."""
    if isinstance(scope, Tenant):
        return scope.id
    return None if scope is ALL_TENANTS else ["no tenant"]


def _token_value(condition: Condition) -> object:
    if isinstance(condition, OneOf):
        # The order in which a caller names them does not change the list.
        return sorted(condition.values)
    return None if isinstance(condition, (IsNull, IsPresent)) else condition.value


def limit_argument(limit: int, maximum: int) -> int:
    """Return the limit, or raise ``ValidationError`` below 1 and above the maximum."""
    # Not reduced: a caller that asks for 1,000 rows and gets 200 without an error misses the others.
    if type(limit) is not int or not 1 <= limit <= maximum:
        raise ValidationError(
            f"Argument limit should be a whole number from 1 to {maximum}, not {safe_repr(limit)}."
        )
    return limit


def batch_size_argument(batch_size: int) -> int:
    """Return the size of a batch, reduced to 32 bits; raise ``ValidationError`` below 1."""
    if type(batch_size) is not int or batch_size < 1:
        raise ValidationError(
            f"Argument batch_size should be a whole number of at least 1, not {safe_repr(batch_size)}."
        )
    return min(batch_size, INT32_MAX)


def query_of_key(entity: Entity, scope: Tenants, key: Key) -> Query:
    """Return the query that matches the row of a key and no other."""
    return Query(
        entity=entity.name,
        scope=scope,
        where=tuple(Equals(name, value) for name, value in zip(entity.key, key, strict=True)),
        order=key_order(entity),
        limit=1,
    )


def key_order(entity: Entity) -> tuple[SortKey, ...]:
    """Return the order by key."""
    return tuple(SortKey(part.field, number=part.type.is_number) for part in entity.key_parts)


def assigned_marker(entity: Entity) -> str:
    """Return the marker that is the insertion number of a row.

    Raises:
        LookupError: there is none; a programmer's mistake.
    """
    if entity.assigned is None:
        raise LookupError(f"{entity.name} has no insertion number")
    return entity.assigned


def newest_query(entity: Entity, *where: Condition) -> Query:
    """Return the query of the row that was inserted last, of those that satisfy some conditions."""
    order = (SortKey(assigned_marker(entity), descending=True, number=True),)
    return Query(entity=entity.name, scope=ALL_TENANTS, where=where, order=order, limit=1)


def expired_query(entity: Entity, scope: Tenants, before: datetime, batch_size: int) -> Query:
    """Return the query of the rows that retention removes next, oldest first.

    Raises:
        LookupError: the entity has no retention; a programmer's mistake.
    """
    retention = entity.retention
    if retention is None:
        raise LookupError(f"{entity.name} is never removed by age")
    return Query(
        entity=entity.name,
        scope=scope,
        where=(*retention.where, AtMost(retention.field, before)),
        order=(SortKey(retention.field, time=True), *key_order(entity)),
        limit=batch_size_argument(batch_size),
    )


def pinned_key(entity: Entity, query: Query) -> Key | None:
    """Return the key whose row is the only one a query can match, ``None`` when it may match several."""
    equal = {item.field: item.value for item in query.where if isinstance(item, Equals)}
    parts = [equal.get(name) for name in entity.key]
    found = tuple(part for part in parts if isinstance(part, (str, int)))
    return found if len(found) == len(parts) else None


def label_of_value(value: object) -> str:
    """Return the text under which ``count`` counts a value: its wire form, empty when it is absent."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_timestamp(value) if isinstance(value, datetime) else str(value)


def holds(condition: Condition, value: object) -> bool:
    """Whether a condition is true of the value of its field."""
    match condition:
        case Equals(_, wanted):
            return value == wanted
        case OneOf(_, wanted):
            return value in wanted
        case IsNull():
            return value is None
        case IsPresent():
            return value is not None
        case After() | Before() | AtMost() | AtLeast():
            return _compares(condition, value)
        case NotAfter(field, bound):
            return not _compares(After(field, bound), value)
        case _:
            assert_never(condition)


def _compares(condition: Comparison, value: object) -> bool:
    """Whether an instant or number is on the right side of the bound; nothing else compares with it."""
    kind = datetime if isinstance(condition.value, datetime) else (int, Decimal)
    # A bool is an int in Python, but on no server.
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return COMPARISONS[type(condition)](value, condition.value)
