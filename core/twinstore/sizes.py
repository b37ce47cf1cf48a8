"""How large a row may be: the same on every driver, so that what one store takes the other takes too.

MongoDB stores no document above 16 MiB; the other stores would take more, and a copy of it could not be made.
So the size is counted as MongoDB counts it, whatever the store, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.access import Row
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity

__all__ = ["MOST_BYTES", "check_batch", "check_size", "size_of"]

# What a store adds of its own, such as a second form of the key, a version, or a lease, has the rest.
MOST_BYTES: Final = 16 * 1024 * 1024 - 64 * 1024
# No value takes more than nine times its JSON: the worst is a list of small numbers, each of which is counted
# with its place. What is smaller than this as JSON needs no closer look.
SURELY_FITS: Final = MOST_BYTES // 9
SHOWN_KEY: Final = 300
MEGABYTE: Final = 1_000_000


def check_size(entity: Entity, row: Row) -> None:
    """Refuse a row that is too large for one of the stores.

    Raises:
        ValidationError: it is; names the size and the limit.
    """
    if json_size(row) > SURELY_FITS and (size := exact_size(row)) > MOST_BYTES:
        key = shortened(entity.key_text(entity.key_of(row.model, row.storage)))
        raise ValidationError(
            f"The {entity.singular} {key!r} has {megabytes(size)}, and a row may have "
            f"{megabytes(MOST_BYTES)} (counted as MongoDB does, on every store); nothing was written. Make "
            "its texts or lists shorter, or keep large content elsewhere and store where it is.",
            module=entity.module,
            entity=entity.name,
            key=key,
        )


def check_batch(entity: Entity, rows: Iterable[Row]) -> None:
    """Refuse rows of one call, all of which are written or none, that are too large together.

    Raises:
        ValidationError: they are, or one of them is; names the size and the limit.
    """
    rows = tuple(rows)
    if len(rows) > 1 and sum(map(json_size, rows)) > SURELY_FITS:
        size = sum(map(exact_size, rows))
        if size > MOST_BYTES and max(map(exact_size, rows)) <= MOST_BYTES:
            raise ValidationError(
                f"The {len(rows)} rows of {entity.name} in this call have {megabytes(size)} together, and "
                f"one call may write {megabytes(MOST_BYTES)}, because it is all or nothing; nothing was "
                "written. Split them over several calls.",
                module=entity.module,
                entity=entity.name,
            )
    for row in rows:
        check_size(entity, row)


def json_size(row: Row) -> int:
    """Return about how many bytes a row has as JSON: no fewer than its own names and values take."""
    size = json_length(row.model)
    for value in row.storage.values():
        size += 4 * len(value) if isinstance(value, str) else 8
    return size


def json_length(model: CanonicalModel) -> int:
    """Return the number of bytes of a model as JSON."""
    return len(model.__pydantic_serializer__.to_json(model, exclude_none=True, warnings=False))


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
