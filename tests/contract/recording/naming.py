"""The name of a statement: from the call of the driver that sends it, the same way on both servers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.access.protocol import UniqueKey
from twinstore.access.query import Query
from twinstore.catalog.conditions import Equals, OneOf
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from twinstore.catalog.conditions import Condition

__all__ = ["Call", "call_of", "statement_name"]

# Methods that are called from a generator or a thread of their driver, by what callers know them as.
PUBLIC: Final = {"one": "view"}
# What migrations, surveys of the catalog and planted faults send is pinned by the files of the migrations, or
# by tests of its own.
LEFT_OUT: Final = (
    "backend",
    "comparison",
    "connection",
    "corruption",
    "database",
    "initializer",
    "migrator",
    "pool",
    "proposal",
    "survey",
)


@dataclass(frozen=True, slots=True)
class Call:
    """The outermost call of a driver that is in progress.

    Attributes:
        operation: the method, such as ``page``; those of the bulk port begin with ``bulk``.
        entity: the entity that it is about, empty where its arguments name none.
        details: what of its arguments makes a difference to the statement.
    """

    operation: str
    entity: str
    details: str


def call_of(package: str) -> Call | None:
    """Return the call of a driver that the caller is inside of; ``None`` for none that is recorded."""
    outermost: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the only way to the callers of a call
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == f"{package}.connection.undocumented":
            return None  # tried out once for a process, in whichever call comes first
        if module.startswith(f"{package}."):
            outermost = frame
        frame = frame.f_back
    if outermost is None:
        return None
    parts = str(outermost.f_globals["__name__"]).split(".")[1:]
    if parts[-1] in LEFT_OUT or "survey" in outermost.f_code.co_name:
        return None
    name = outermost.f_code.co_name.strip("_")
    name = PUBLIC.get(name, name)
    values = outermost.f_locals
    entity = getattr(values.get("entity"), "name", "")
    operation = f"bulk.{name}" if parts[0].startswith("bulk") else name
    return Call(operation, str(entity), details_of(values))


def details_of(values: dict[str, object]) -> str:
    """Return what of the arguments of a call makes a difference to its statements."""
    query = values.get("query")
    if isinstance(query, Query):
        return described(query, values.get("by"))
    keys, scope = values.get("keys"), values.get("scope")
    parts = [] if scope is None else [scope_text(scope)]
    if isinstance(keys, tuple | list) and keys:
        key = keys[0]
        parts.append(f"by {key.index.name}" if isinstance(key, UniqueKey) else "by key")
        parts += ["several"] if len(keys) > 1 else []
    return ", ".join(parts)


def described(query: Query, by: object) -> str:
    """Return a list in words, without the values of its conditions."""
    parts = [scope_text(query.scope)]
    if query.where:
        parts.append("where " + " and ".join(map(condition_text, query.where)))
    if isinstance(by, str):
        return ", ".join((*parts, f"by {by}"))
    parts.append("order " + order_text(query))
    return ", ".join((*parts, "next page") if query.after is not None else parts)


def condition_text(condition: Condition) -> str:
    """Return a condition in words."""
    if isinstance(condition, OneOf):
        return f"{condition.field} one of {'several' if len(condition.values) > 1 else 'one'}"
    if isinstance(condition, Equals):
        return condition.field
    return f"{condition.field} {type(condition).__name__}"


def order_text(query: Query) -> str:
    """Return an order as indexes write it."""
    return " ".join(f"{'-' if key.descending else ''}{key.field}" for key in query.order)


def scope_text(scope: object) -> str:
    """Return a scope in words."""
    if isinstance(scope, Tenant):
        return "a tenant"
    return "all tenants" if scope is ALL_TENANTS else "no tenant"


def statement_name(call: Call, entity: str, verb: str) -> str:
    """Return the name of a statement about an entity."""
    words: Sequence[str] = [
        f"{entity}.{call.operation}",
        f"({verb})" if verb else "",
        f"for {call.entity}" if call.entity not in {"", entity} else "",
        call.details,
    ]
    return " ".join(word for word in words if word)
