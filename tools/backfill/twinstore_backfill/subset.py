"""A part of the rows: those from one key to another, or those that are dated within a period.

A copy or comparison of a part says nothing about the rest, so it never counts as one of the whole: a copy of
a part is a separate job, and a comparison of a part ends with PARTIAL at best.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from twinstore.catalog.keys import INT64_MIN, KeyRange, KeyType, can_bound
from twinstore.errors import ValidationError
from twinstore.models import json_text
from twinstore.models.fields import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyPart

WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
OPTIONS: Final = {
    "key_from": "--key-from",
    "key_to": "--key-to",
    "since": "--since",
    "until": "--until",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """Which rows are selected; a subset without any bound selects all of them.

    Attributes:
        key_from, key_to: rows from the one key (included) to the other (excluded), each given as the texts of
            its parts or of the first ones. Empty: no bound.
        since, until: rows that are dated from the one (included) to the other (excluded).
    """

    key_from: tuple[str, ...] = ()
    key_to: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        """Bring the instants into one form, and refuse a period without an instant in it."""
        for name in ("since", "until"):
            if (instant := getattr(self, name)) is not None:
                # The class is frozen; two spellings of a part would make two jobs.
                object.__setattr__(self, name, parse_timestamp(instant))
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValidationError(
                f"--since {json_text.format_timestamp(self.since)} is not before "
                f"--until {json_text.format_timestamp(self.until)}, so it selects no rows."
            )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return a part from what :meth:`document` says of it."""
        keys = {name: tuple(map(str, document[name] or ())) for name in ("key_from", "key_to")}
        return cls(**keys, since=document["since"], until=document["until"])

    def __bool__(self) -> bool:
        return self.by_key or self.by_time

    @property
    def by_key(self) -> bool:
        """Whether keys bound it."""
        return bool(self.key_from or self.key_to)

    @property
    def by_time(self) -> bool:
        """Whether instants bound it."""
        return self.since is not None or self.until is not None

    @property
    def options(self) -> tuple[str, ...]:
        """The options that make it a part."""
        return tuple(option for name, option in OPTIONS.items() if getattr(self, name) not in {(), None})

    def check(self, entities: Sequence[Entity]) -> None:
        """Refuse a part that cannot be determined.

        Raises:
            ValidationError: keys for another number of entities than one, a bound that is not a key or is
                beyond the other one, or an entity whose description names no instant.
        """
        if self.by_key:
            if len(entities) != 1:
                raise ValidationError(
                    "--key-from and --key-to mean the keys of one entity; name it with --entity."
                )
            self.within(entities[0])
        undated = [entity.name for entity in entities if entity.dated is None]
        if self.by_time and undated:
            raise ValidationError(
                f"--since and --until cannot choose rows of {', '.join(undated)}: nothing says by which "
                "instant. Name the other entities with --entity."
            )

    def within(self, entity: Entity) -> KeyRange:
        """Return the selected keys.

        Raises:
            ValidationError: a bound is not a key of the entity, or the bounds leave nothing between them.
        """
        lower, upper = (_bound(entity, option, getattr(self, name)) for name, option in BOUNDS)
        if upper is not None and upper == tuple(map(_least, entity.key_parts)):
            raise ValidationError(
                f"--key-to {_shown(self.key_to)} is before every key, so it selects no rows."
            )
        if lower is not None and upper is not None and lower >= upper:
            raise ValidationError(
                f"--key-from {_shown(self.key_from)} is not before --key-to {_shown(self.key_to)}, so "
                "it selects no rows; texts are in the order of code points."
            )
        return KeyRange(lower, upper)

    def ranges(self, entity: Entity, cut: Iterable[KeyRange]) -> Iterator[KeyRange]:
        """Yield what lies within the part of ranges that cover everything, in order."""
        if not self.by_key:
            yield from cut
            return
        wanted = self.within(entity)
        for piece in cut:
            common = intersection(piece, wanted)
            if common is not None:
                yield common
            if wanted.upper is not None and piece.upper is not None and piece.upper >= wanted.upper:
                return

    def admits(self, instant: datetime | None) -> bool:
        """Whether a row of that date belongs to the part; a row without a readable date always does."""
        if instant is None:
            return True
        return (self.since is None or instant >= self.since) and (self.until is None or instant < self.until)

    def document(self, entities: Sequence[Entity]) -> dict[str, object]:
        """Return it for reports and as part of the settings of a job; an absent bound is null.

        Raises:
            ValidationError: as :meth:`check`.
        """
        within = self.within(entities[0]) if self.by_key else KeyRange()
        return {
            "key_from": None if within.lower is None else list(within.lower),
            "key_to": None if within.upper is None else list(within.upper),
            "since": None if self.since is None else json_text.format_timestamp(self.since),
            "until": None if self.until is None else json_text.format_timestamp(self.until),
            "dated_by": {entity.name: entity.dated for entity in entities} if self.by_time else {},
        }


BOUNDS: Final = (("key_from", "--key-from"), ("key_to", "--key-to"))
EVERYTHING: Final = Subset()


def intersection(one: KeyRange, other: KeyRange) -> KeyRange | None:
    """Return the keys that lie in both ranges, ``None`` where there can be none."""
    lower = max((key for key in (one.lower, other.lower) if key is not None), default=None)
    upper = min((key for key in (one.upper, other.upper) if key is not None), default=None)
    if lower is not None and upper is not None and lower >= upper:
        return None
    return KeyRange(lower, upper)


def _bound(entity: Entity, option: str, given: tuple[str, ...]) -> Key | None:
    """Return a bound: the given parts, and the least possible value for the absent ones."""
    if not given:
        return None
    parts = entity.key_parts
    if len(given) <= len(parts):
        key = tuple(_value(text, part) for text, part in zip(given, parts, strict=False))
        left_out = tuple(_least(part) for part in parts[len(given) :])
        found = tuple(value for value in (*key, *left_out) if value is not None)
        if len(found) == len(parts) and entity.admits_key(found) and can_bound(found):
            return found
    described = ", ".join(f"{part.field} ({part.type.value})" for part in parts)
    raise ValidationError(
        f"{option} {_shown(given)} is not a bound for the keys of {entity.name}, which are {described}; give "
        f"{option} once for each part, at least for the first."
    )


def _value(text: str, part: KeyPart) -> str | int | None:
    """Return one part of a bound, ``None`` if the text is not valid."""
    match part.type:
        case KeyType.INT64:
            return int(text) if WHOLE_NUMBER.fullmatch(text) else None
        case KeyType.UUID:
            return text if _is_uuid(text) else None
        case _:
            return text


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _least(part: KeyPart) -> str | int:
    match part.type:
        case KeyType.INT64:
            return INT64_MIN
        case KeyType.UUID | KeyType.BINARY_UUID:
            return str(UUID(int=0))
        case KeyType.OBJECT_ID:
            return "0" * 24
        case KeyType.HEX:
            return UUID(int=0).hex
        case KeyType.TEXT:
            return ""


def _shown(parts: Sequence[str]) -> str:
    return "/".join(map(repr, parts))


def described(document: Mapping[str, object]) -> str:
    """Return a part as people read it, from what :meth:`Subset.document` says of it."""
    keys = [
        f"{word} {json_text.dumps(document[name]).decode()}"
        for word, name in (("from key", "key_from"), ("before key", "key_to"))
        if document.get(name) is not None
    ]
    times = [
        f"{word} {document[name]}"
        for word, name in (("dated since", "since"), ("dated before", "until"))
        if document.get(name) is not None
    ]
    return "rows " + " and ".join((*keys, *times))
