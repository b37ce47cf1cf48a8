"""Pages and page tokens: keyset paging that continues on either backend.

A token is the URL-safe base64 of a JSON object: the entity, the sort key of the last row shown, a print of
filter, order and tenant, and a version. It names no driver, so it stays valid after a switch.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Generic, TypeVar, overload

import pydantic_core
from typing_extensions import override

from twinstore import jsontext
from twinstore.errors import ValidationError
from twinstore.fields import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Page", "SortKey", "SortValue", "decode_token", "encode_token"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
SortValue = str | int | datetime | None

# In the token, because clients keep tokens over an upgrade of the service.
TOKEN_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Page(Sequence[T_co], Generic[T_co]):
    """An immutable page of a list. ``next_page_token`` is ``None`` at the end."""

    items: tuple[T_co, ...]
    next_page_token: str | None = None

    @override
    def __len__(self) -> int:
        """Return the number of items on this page."""
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        """Return an item, or a tuple of them."""
        return self.items[index]


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of a total order: ``time`` keys are instants, ``number`` keys integers, the others text."""

    field: str
    descending: bool = False
    time: bool = False
    nullable: bool = False
    number: bool = False


def fingerprint(filters: object) -> str:
    """Return what binds a token to its filter, direction and tenant: 16 hex digits."""
    # 64 bits: it guards against mistakes, not against attacks. Whoever forges a token sees no row that the
    # tenant of the call does not see.
    return sha256(jsontext.dumps_sorted(filters)).hexdigest()[:16]


def encode_token(entity: str, print_: str, key: Sequence[SortValue]) -> str:
    """Return the token that continues after the row with this sort key."""
    parts = [jsontext.format_timestamp(part) if isinstance(part, datetime) else part for part in key]
    text = jsontext.dumps({"e": entity, "f": print_, "k": parts, "v": TOKEN_VERSION})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode("ascii")


def decode_token(token: str, entity: str, print_: str, order: Sequence[SortKey]) -> tuple[SortValue, ...]:
    """Return the sort key after which a list continues.

    Raises:
        ValidationError: malformed, or issued for another list, filter, order or tenant.
    """
    content = _token_content(token)
    if content.get("v") != TOKEN_VERSION or content.get("e") != entity or content.get("f") != print_:
        raise ValidationError(
            "Page token belongs to another list, filter, order or tenant; repeat the call that issued it, "
            "or start without a token.",
            entity=entity,
        )
    parts = content.get("k")
    if not isinstance(parts, list) or len(parts) != len(order):
        raise _malformed()
    return tuple(_key_part(part, key) for part, key in zip(parts, order, strict=True))


def _token_content(token: str) -> dict[str, jsontext.JsonValue]:
    try:
        # The padding is left out of tokens, so that they need no escaping in a URL.
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        content = jsontext.parse_json(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (AttributeError, ValueError, binascii.Error, RecursionError) as error:
        raise _malformed() from error
    if not isinstance(content, dict):
        raise _malformed()
    return content


def _key_part(part: jsontext.JsonValue, key: SortKey) -> SortValue:
    # What a token holds comes from a client: each part is checked before any server compares with it.
    if part is None and key.nullable:
        return None
    if key.number:
        return _number(part)
    if not isinstance(part, str) or not _storable(part):
        raise _malformed()
    if not key.time:
        return part
    try:
        return parse_timestamp(part)
    except pydantic_core.PydanticCustomError as error:
        raise _malformed() from error


def _number(part: jsontext.JsonValue) -> int:
    if type(part) is not int or not jsontext.INT64_MIN <= part <= jsontext.INT64_MAX:
        raise _malformed()
    return part


def _storable(text: str) -> bool:
    """Whether a store takes the text: neither U+0000 nor a lone surrogate."""
    return "\x00" not in text and text.encode(errors="ignore").decode() == text


def _malformed() -> ValidationError:
    return ValidationError(
        "Page token is malformed; pass back the exact next_page_token, or start without one."
    )


def paginate(  # a page is made of exactly these
    rows: Sequence[R],
    limit: int,
    *,
    entity: str,
    print_: str,
    item: Callable[[R], T],
    key: Callable[[R], Sequence[SortValue]],
) -> Page[T]:
    """Return the page made of up to ``limit + 1`` rows; the extra row only tells that there is more."""
    shown = rows[:limit]
    more = len(rows) > limit
    # Before the token: a row that cannot be decoded may have no value to sort by either.
    items = tuple(item(row) for row in shown)
    token = encode_token(entity, print_, key(shown[-1])) if more else None
    return Page(items, token)
