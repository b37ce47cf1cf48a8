"""Pages and page tokens: keyset paging that continues on either backend.

A token is the URL-safe base64 of a JSON object: the entity, the sort key of the last row shown, a print of
filter, order and tenant, and a version. It names no driver, so it stays valid after a switch.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from inspect import BoundArguments, signature
from logging import getLogger
from types import NoneType
from typing import TYPE_CHECKING, Final, Generic, ParamSpec, TypeVar, overload

import pydantic_core
from typing_extensions import override

from twinstore.errors import DocumentDecodeError, ValidationError
from twinstore.models import json_text
from twinstore.models.fields import decimal_number, parse_timestamp
from twinstore.runtime.formatting import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Page", "SortKey", "SortValue", "UndecodableRow", "decode_token", "each", "encode_token"]


P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
SortValue = str | int | datetime | Decimal | None

SORT_TYPES: Final = (str, int, datetime, Decimal, NoneType)
log = getLogger("twinstore.undecodable")

# In the token, because clients keep tokens over an upgrade of the service.
TOKEN_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class UndecodableRow:
    """A stored row that does not form a model, named without any of its values.

    Attributes:
        entity: the entity.
        tenant: its owner, ``None`` if it names none.
        key: its key, as messages show it.
        reason: which paths of it break which rules.
    """

    entity: str
    tenant: str | None
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Page(Sequence[T_co], Generic[T_co]):
    """An immutable page of a list.

    Attributes:
        items: the rows.
        next_page_token: continues the list; ``None`` at the end.
        undecodable: the rows that the page passed over. Only lists over all tenants pass over rows, because
            there one broken row would stop every tenant; a list of one tenant raises ``DocumentDecodeError``.
    """

    items: tuple[T_co, ...]
    next_page_token: str | None = None
    undecodable: tuple[UndecodableRow, ...] = ()

    @override
    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        """Return an item, or a tuple of them."""
        return self.items[index]


def each(fetch: Callable[P, Page[T]], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
    """Yield the rows of all pages of a list: ``each(runs.list, tenant, RunQueryOptions(limit=200))``.

    One page is read at a time. Rows inserted or removed meanwhile neither repeat nor hide other rows.

    Args:
        fetch: the method of a repository.
        args: its arguments; a list that has options needs them, because they hold the page token.
        kwargs: its arguments by name.

    Raises:
        TypeError: ``fetch`` is not continued by a page token, or its options are missing.
    """
    call = list_call(fetch, *args, **kwargs)
    while True:
        page = fetch(*call.args, **call.kwargs)
        yield from page
        if page.next_page_token is None:
            return
        continue_at(call, page.next_page_token)


def list_call(fetch: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> BoundArguments:
    """Return the arguments of a list that can be continued; raise what :func:`each` raises."""
    if not callable(fetch):  # a page, for example, whose rows no message may hold
        raise TypeError(f"each() needs the list method of a repository, not {type(fetch).__name__}")
    parameters = signature(fetch)
    call = parameters.bind(*args, **kwargs)
    if "options" in parameters.parameters:
        if call.arguments.get("options") is None:
            wanted = str(parameters.parameters["options"].annotation).partition(" ")[0]
            raise TypeError(f"each() continues this list by its options; pass a {wanted}")
    elif "page_token" not in parameters.parameters:
        raise TypeError(
            "each() needs a list that takes a page token; this one takes neither page_token nor options"
        )
    return call


def continue_at(call: BoundArguments, token: str) -> None:
    """Change the arguments of a list to those of the page behind a token."""
    options = call.arguments.get("options")
    if options is None:
        call.arguments["page_token"] = token
    else:
        call.arguments["options"] = replace(options, page_token=token)


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of a total order.

    ``time`` keys are instants, ``number`` keys integers, ``decimal`` keys decimals, the others text.
    """

    field: str
    descending: bool = False
    time: bool = False
    nullable: bool = False
    number: bool = False
    decimal: bool = False


def fingerprint(filters: object) -> str:
    """Return what binds a token to its filter, direction and tenant: 16 hex digits."""
    # 64 bits: it guards against mistakes, not against attacks. A caller who forges a token does not see any
    # row that the tenant of the call does not see.
    return sha256(json_text.dumps_sorted(filters)).hexdigest()[:16]


def encode_token(entity: str, token_digest: str, key: Sequence[SortValue]) -> str:
    """Return the token that continues after the row with this sort key."""
    parts = [json_text.format_timestamp(part) if isinstance(part, datetime) else part for part in key]
    text = json_text.dumps({"e": entity, "f": token_digest, "k": parts, "v": TOKEN_VERSION})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode("ascii")


def decode_token(
    token: str, entity: str, token_digest: str, order: Sequence[SortKey]
) -> tuple[SortValue, ...]:
    """Return the sort key after which a list continues.

    Raises:
        ValidationError: malformed, or issued for another list, filter, order or tenant.
    """
    content = _token_content(token)
    if content.get("v") != TOKEN_VERSION or content.get("e") != entity or content.get("f") != token_digest:
        raise ValidationError(
            "Page token belongs to another list, filter, order or tenant; repeat the call that issued it, "
            "or start without a token.",
            entity=entity,
        )
    parts = content.get("k")
    if not isinstance(parts, list) or len(parts) != len(order):
        raise malformed_token()
    return tuple(_key_part(part, key) for part, key in zip(parts, order, strict=True))


def _token_content(token: str) -> dict[str, json_text.JsonValue]:
    try:
        # Tokens have no padding, so that they need no escaping in a URL.
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        content = json_text.parse_json(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (AttributeError, ValueError, binascii.Error, RecursionError) as error:
        raise malformed_token() from error
    if not isinstance(content, dict):
        raise malformed_token()
    return content


def _key_part(part: json_text.JsonValue, key: SortKey) -> SortValue:
    # What a token holds comes from a client: each part is checked before any server compares with it.
    if part is None and key.nullable:
        return None
    if key.number:
        return _number(part)
    if not isinstance(part, str) or not _storable(part):
        raise malformed_token()
    if not (key.time or key.decimal):
        return part
    try:
        return decimal_number(part) if key.decimal else parse_timestamp(part)
    except pydantic_core.PydanticCustomError as error:
        raise malformed_token() from error


def _number(part: json_text.JsonValue) -> int:
    if type(part) is not int or not json_text.INT64_MIN <= part <= json_text.INT64_MAX:
        raise malformed_token()
    return part


def _storable(text: str) -> bool:
    """Whether a store takes the text: neither U+0000 nor a lone surrogate."""
    return "\x00" not in text and text.encode(errors="ignore").decode() == text


def has_place(value: SortValue) -> bool:
    """Whether a token can name a stored value; of decimals some are none to a model, such as NaN."""
    try:
        return not isinstance(value, Decimal) or decimal_number(value) == value
    except pydantic_core.PydanticCustomError:
        return False


def malformed_token() -> ValidationError:
    """Return the error of a token that no list gave."""
    return ValidationError(
        "Page token is malformed; pass back the exact next_page_token, or start without one."
    )


def paginate(  # a page is made of exactly these
    rows: Sequence[R],
    limit: int,
    *,
    entity: str,
    token_digest: Callable[[], str],
    item: Callable[[R], T],
    key: Callable[[R], Sequence[SortValue]],
    owner: Callable[[R], object] | None,
) -> Page[T]:
    """Return the page made of up to ``limit + 1`` rows; the extra row only shows that there is more.

    Args:
        rows: what the store found, in order.
        limit: how many to show.
        entity: the entity that the token belongs to.
        token_digest: returns the print of filter, order and tenant for the token.
        item: decodes a row.
        key: returns the values by which a row is sorted.
        owner: returns the tenant of a row that cannot be decoded, which is passed over then; ``None`` where
            such a row ends the list.

    Raises:
        DocumentDecodeError: a row cannot be decoded and is not passed over, or a page that is not the last
            holds nothing but rows that are not even at a place in the order.
    """
    page_rows = rows[:limit]
    # Before the token: a row that cannot be decoded may have no value to sort by either.
    items, skipped = decoded(page_rows, item, owner)
    if len(rows) <= limit:
        return Page(tuple(items), None, tuple(row for row, _ in skipped))
    token = _token_after(page_rows, entity, token_digest(), key, skipped[0][1] if skipped else None)
    return Page(tuple(items), token, tuple(row for row, _ in skipped))


def decoded(
    rows: Sequence[R], item: Callable[[R], T], owner: Callable[[R], object] | None
) -> tuple[list[T], list[tuple[UndecodableRow, DocumentDecodeError]]]:
    """Return the rows that can be decoded, and those that were passed over, each with its error.

    Raises:
        DocumentDecodeError: a row cannot be decoded and ``owner`` is ``None``.
    """
    items: list[T] = []
    skipped: list[tuple[UndecodableRow, DocumentDecodeError]] = []
    for row in rows:
        try:
            items.append(item(row))
        except DocumentDecodeError as error:
            if owner is None:
                raise
            skipped.append((undecodable_row(error, owner(row)), error))
    return items, skipped


def undecodable_row(error: DocumentDecodeError, owner: object) -> UndecodableRow:
    """Return the name of a row that was passed over, and log it once in the life of the process."""
    tenant = owner if isinstance(owner, str) else None
    row = UndecodableRow(error.entity or "", tenant, error.key or "", error.reason or error.message)
    _log_once(row.entity, short_repr(row.key), short_repr(row.tenant), row.reason)
    return row


@lru_cache(maxsize=10_000)
def _log_once(entity: str, key: str, tenant: str, reason: str) -> None:
    log.warning(
        "%s %s of tenant %s is passed over by lists of all tenants: %s. Repair or quarantine the document.",
        entity,
        key,
        tenant,
        reason,
    )


def _token_after(
    page_rows: Sequence[R],
    entity: str,
    token_digest: str,
    key: Callable[[R], Sequence[object]],
    broken: DocumentDecodeError | None,
) -> str:
    """Return the token that continues after the last row that has a place in the order.

    The rows after it on this page are broken, and the next page names them again.
    """
    for row in reversed(page_rows):
        try:
            values = key(row)
        except pydantic_core.PydanticCustomError:
            # Only a row that cannot be decoded holds such a value.
            continue
        parts = [value for value in values if isinstance(value, SORT_TYPES) and has_place(value)]
        # Rows of a store return any stored value; a row that can be decoded returns the values that sort it.
        if len(parts) == len(values):
            return encode_token(entity, token_digest, parts)
    raise broken or malformed_token()
