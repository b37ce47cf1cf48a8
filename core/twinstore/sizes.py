"""How large a row may be: the same on every driver, so that what one store takes the other takes too.

MongoDB stores no document above 16 MiB; the other stores would take more, and a copy of it could not be made.
So the size is counted as MongoDB counts it, whatever the store, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from itertools import zip_longest
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Final, Union, cast, get_args, get_origin

from pydantic import BaseModel

from twinstore.errors import DocumentDecodeError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twinstore.access import Access, Row
    from twinstore.catalog import Entity
    from twinstore.tenancy import Tenants

__all__ = ["MOST_BYTES", "check_batch", "check_replacement", "check_size", "size_of"]

# What a store adds of its own, such as a second form of the key, a version, or a lease, has the rest.
MOST_BYTES: Final = 16 * 1024 * 1024 - 64 * 1024
# A row above the limit that an older version has stored may still change its state, which adds a few fields.
GROWTH: Final = 64 * 1024
# What a field, an item of a list or a member of a map has beside its texts, at most.
PART: Final = 64
WIDEST: Final = 4
# So many times its JSON a document has at most. What gains most is a list of digits: two bytes each, and in
# BSON a type, the place in up to seven digits, its end, and 64 bits.
OF_JSON: Final = 10
# What a value is to a measurement.
OTHER, TEXT, MODEL, LIST, MAP = range(5)
FORMS: Final[dict[object, int]] = {}
FIXED: Final = (int, float, datetime, timedelta, Enum, type(None))
SHOWN_KEY: Final = 300
MEGABYTE: Final = 1_000_000


def check_size(entity: Entity, row: Row, stored: Row | None = None) -> None:
    """Refuse a row that is too large for one of the stores.

    Args:
        entity: what it is.
        row: what is to be written.
        stored: the row of the same key that it replaces. One that is above the limit already may stay so.

    Raises:
        ValidationError: it is; names the size and the limit.
    """
    if may_be_large(entity, (row,)) and (size := exact_size(row)) > limit_of((stored,)):
        key = shortened(entity.key_text(entity.key_of(row.model, row.storage)))
        raise ValidationError(
            f"The {entity.singular} {key!r} has {megabytes(size)}, and a row may have "
            f"{megabytes(MOST_BYTES)} (counted as MongoDB does, on every store); nothing was written. Make "
            "its texts or lists shorter, or keep large content elsewhere and store where it is.",
            **entity.located(key),
        )


def check_replacement(access: Access, entity: Entity, scope: Tenants, row: Row) -> None:
    """Refuse a row that is too large, unless the stored one is so already; the store is asked for large ones.

    Raises:
        ValidationError: it is; names the size and the limit.
    """
    if may_be_large(entity, (row,)) and exact_size(row) > MOST_BYTES:
        stored = None
        with suppress(DocumentDecodeError):
            (stored,) = access.find(entity, scope, [entity.key_of(row.model, row.storage)])
        check_size(entity, row, stored)


def check_batch(entity: Entity, rows: Iterable[Row], stored: Iterable[Row | None] = ()) -> None:
    """Refuse rows of one call, all of which are written or none, that are too large together.

    Args:
        entity: what they are.
        rows: what is to be written.
        stored: the rows that they replace, in the same order; nothing where all of them are new.

    Raises:
        ValidationError: they are, or one of them is; names the size and the limit.
    """
    rows = tuple(rows)
    # Nearly always, and then each of them fits alone too.
    if not may_be_large(entity, rows):
        return
    before = tuple(stored)
    if len(rows) > 1:
        size = sum(map(exact_size, rows))
        if size > limit_of(before) and max(map(exact_size, rows)) <= MOST_BYTES:
            raise ValidationError(
                f"The {len(rows)} rows of {entity.name} in this call have {megabytes(size)} together, and "
                f"one call may write {megabytes(MOST_BYTES)}, because it is all or nothing; nothing was "
                "written. Split them over several calls.",
                **entity.located(),
            )
    for row, replaced in zip_longest(rows, before):
        check_size(entity, row, replaced)


def limit_of(stored: Iterable[Row | None]) -> int:
    """Return how many bytes rows may have that replace these."""
    size = sum(exact_size(row) for row in stored if row is not None)
    return size + GROWTH if size > MOST_BYTES else MOST_BYTES


def may_be_large(entity: Entity, rows: Sequence[Row]) -> bool:
    """Whether rows may be above the limit together."""
    # Where a store makes their JSON anyway, nearly all are so far below it that its length tells.
    by_json = any(item.of_content is not None for item in entity.derived)
    if by_json and sum(map(most_by_json, rows)) <= MOST_BYTES:
        return False
    return sum(map(most_of, rows)) > MOST_BYTES


def most_by_json(row: Row) -> int:
    """Return how many bytes a row has at most, as its JSON tells; too many where it has none."""
    markers = row.storage.values()
    try:
        content = row.content
    except (TypeError, ValueError):
        return MOST_BYTES + 1
    stored = PART * len(markers) + WIDEST * sum(len(value) for value in markers if isinstance(value, str))
    return OF_JSON * len(content) + stored


def most_of(row: Row) -> int:
    """Return how many bytes a row has at most; nearly every row is far below the limit by this alone."""
    total = PART * len(row.storage)
    waiting: list[object] = [row.model, *row.storage.values()]
    # By type and not by isinstance, because every row that is written passes here.
    while waiting:
        value = waiting.pop()
        kind = type(value)
        form = FORMS.get(kind)
        if form is None:
            form = FORMS[kind] = form_of(kind)
        if form == TEXT:
            text = cast("str", value)
            total += len(text) if text.isascii() else WIDEST * len(text)
        elif form == MODEL:
            names, parts = fields_of(cast("type[BaseModel]", kind))
            total += parts * PART
            values = vars(value)
            for name in names:
                part = values.get(name)
                # Most of what a model has, and here for a third of the time.
                if type(part) is str:
                    total += len(part) if part.isascii() else WIDEST * len(part)
                elif part is not None:
                    waiting.append(part)
        elif form == LIST:
            items = cast("list[object]", value)
            total += PART * len(items)
            waiting += items
        elif form == MAP:
            members = cast("Mapping[str, object]", value)
            total += PART * len(members)
            waiting += members
            waiting += members.values()
    return total


def form_of(kind: type) -> int:
    """Return what the values of a type are."""
    if issubclass(kind, FIXED):
        return OTHER
    for base, form in ((str, TEXT), (BaseModel, MODEL), ((list, tuple), LIST)):
        if issubclass(kind, base):
            return form
    return MAP if issubclass(kind, Mapping) else OTHER


@cache
def fields_of(model: type[BaseModel]) -> tuple[tuple[str, ...], int]:
    """Return the fields of a model whose size depends on their value, and how many fields it has."""
    fields = model.model_fields
    return tuple(name for name, field in fields.items() if not is_fixed(field.annotation)), len(fields)


def is_fixed(annotation: object) -> bool:
    """Whether every value of a type takes about the same."""
    if get_origin(annotation) is Annotated:
        return is_fixed(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return all(map(is_fixed, get_args(annotation)))
    return isinstance(annotation, type) and issubclass(annotation, FIXED)


def exact_size(row: Row) -> int:
    """Return the bytes of a row as a document."""
    return size_of(row.model.wire()) + size_of(row.storage)


def size_of(document: Mapping[str, object]) -> int:
    """Return how many bytes a document has in BSON, every integer in 64 bits."""
    total = 0
    # A list and no recursion: free JSON may be nested as deep as a parser allows.
    waiting: list[object] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            members = cast("Mapping[str, object]", value)
            # The type and the end of the name of each member; the length and the end of the whole.
            total += 5 + 2 * len(members) + sum(map(text_size, members))
            waiting += members.values()
        elif isinstance(value, list | tuple):
            items = cast("list[object]", value)
            total += 5 + 2 * len(items) + places_size(len(items))
            waiting += items
        elif isinstance(value, str):
            total += 5 + text_size(value)
        elif isinstance(value, bool):
            total += 1
        elif value is not None:
            total += 8
    return total


def text_size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def places_size(count: int) -> int:
    """Return how many digits the numbers from 0 to below ``count`` have together."""
    digits, total, least = 1, 0, 0
    while least < count:
        beyond = 10**digits
        total += digits * (min(beyond, count) - least)
        digits, least = digits + 1, beyond
    return total


def megabytes(size: int) -> str:
    """Return a number of bytes as messages show it."""
    return f"{size / MEGABYTE:.2f} MB"


def shortened(text: str) -> str:
    """Return the beginning of a text that a message names."""
    return text if len(text) <= SHOWN_KEY else text[:SHOWN_KEY] + "…"
