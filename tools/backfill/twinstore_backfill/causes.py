"""Why rows cannot be moved, by name. One fact has one cause: in a copy, its quarantine, and a verification.

The reasons are sentences for people. Ledgers and drivers keep them as text, so the cause is found from how
such a sentence begins; every sentence here is one of ours, and a test makes each of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.bulk.port import NO_PARENT, TOO_LARGE
from twinstore.bulk.unique_moves import INDEX_TAKEN, UNIQUE_VALUE_TAKEN, noun_of
from twinstore.catalog.keys import KeyType
from twinstore.models.fields import UNKNOWN_PROPERTY
from twinstore_backfill.rules.model import REFUSED, RuleKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog.entity import Entity

__all__ = ["KEY_MISMATCH", "REPEATED", "Cause", "cause_of", "no_key", "not_normal"]

# :mod:`twinstore_backfill.rules.kinds` explains them; ``other`` is what only another driver says.
MODEL: Final = "model"
UNKNOWN: Final = "unknown"
KEY: Final = "key"
REPEATED_KEY: Final = "repeated_key"
TENANT: Final = "tenant"
MAP_NAMES: Final = "map_names"
BROKEN: Final = "broken"
FUNCTION: Final = "function"
RULE: Final = "rule"
UNIQUE: Final = "unique"
ORPHAN: Final = "orphan"
TARGET: Final = "target"
OTHER: Final = "other"
DOCUMENT: Final = "document"


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """The cause of a quarantined row, without any value of it.

    Attributes:
        name: one of the constants above.
        detail: the field, the path or the index, empty where there is none.
    """

    name: str
    detail: str = ""

    def __str__(self) -> str:
        """Return the cause as rules and reports write it."""
        return f"{self.name}:{self.detail}" if self.detail else self.name


REPEATED: Final = (
    "another row of the source has the same key, and only the first is copied; remove one of them"
)
KEY_MISMATCH: Final = (
    "it is stored under a key that does not follow from its content; correct one of them at the source"
)
NO_KEY: Final = "the stored key is not "


def no_key(entity: Entity) -> str:
    """Return the message that the value stored in place of the key is not a key."""
    if all(part.type is KeyType.TEXT for part in entity.key_parts):
        return f"{NO_KEY}a string"
    wanted = ", ".join(f"{part.field} ({part.type.value})" for part in entity.key_parts)
    return f"{NO_KEY}made of {wanted}"


def not_normal(wire: str) -> str:
    """Say that a stored key or tenant is not as the models write it."""
    return (
        f"the stored {wire} has leading or trailing whitespace or is not normalised; correct it at the source"
    )


# How the sentences of drivers and of a comparison begin that name neither a field nor an index.
SENTENCES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (f"{re.escape(REPEATED)}|a row before it has the same key", REPEATED_KEY),
        (f"{re.escape(KEY_MISMATCH)}|{NO_KEY}", KEY),
        (r"its _id |its fields _id and |it holds its key in its _id|its key is neither ", KEY),
        (r"its field \S+ and its content name different rows", KEY),
        (r"the id is not a text|the key is not a UUID", KEY),
        (r"it follows a row with a higher key|it belongs to a different run", KEY),
        (r"it is stored under the key of another row", KEY),
        (r"\S+: names that are blank, or differ only in case", MAP_NAMES),
        (r"holds text that is not UTF-8|holds what the client does not give back", BROKEN),
        (r"a document holds what cannot be given back|a value of the form bson", BROKEN),
        (re.escape(REFUSED), FUNCTION),
        (r"its run has no file ", ORPHAN),
        (re.escape(NO_PARENT), ORPHAN),
        (f"{re.escape(TOO_LARGE)}|it is larger than any row", TARGET),
        (r"the target refuses it |the validator of the target refuses it", TARGET),
    )
)
NORMAL: Final = re.compile(re.escape(not_normal("*")).replace(r"\*", r"(\S+)"))
OF_RULE: Final = re.compile(rf"([^:]+): (?:\[\[)?(?:{'|'.join(RuleKind)})(?:\]\]|:) ")
OF_MARKER: Final = re.compile(r"(?:its markers|the marker) ([^\s,]+)")
# What a value is stored as, or holds; the place comes first.
OF_FORM: Final = re.compile(
    r"([^:]+): (?:a value of the form |binary data of subtype |a text, and not binary|holds .*, which "
    r"|the name occurs twice|the items of the list are not numbered|.* is a type of BSON )"
)
# A driver of files puts the place before the sentence.
PLACE: Final = re.compile(r"\S+(?: line \d+)?: ")


def cause_of(entity: Entity, reason: str) -> Cause:
    """Return the cause of a reason for which a copy or a verification leaves a row of an entity out."""
    place = PLACE.match(reason)
    for text in (reason, reason[place.end() :]) if place else (reason,):
        found = next(_causes(entity, text), None)
        if found is not None:
            return found
    return Cause(OTHER)


def _causes(entity: Entity, reason: str) -> Iterator[Cause]:
    if reason.startswith(f"{entity.model.__name__} "):
        yield _of_model(entity, reason.removeprefix(f"{entity.model.__name__} "))
    if reason.startswith((UNIQUE_VALUE_TAKEN, INDEX_TAKEN)):
        index = _index(entity, reason)
        yield Cause(TARGET) if index is None else Cause(UNIQUE, index)
    if found := OF_RULE.match(reason):
        yield Cause(RULE, found[1].partition(".")[2])
    for sentence in (NORMAL, OF_FORM, OF_MARKER):
        if found := sentence.match(reason):
            yield _of_field(entity, found[1])
    yield from (Cause(name) for sentence, name in SENTENCES if sentence.match(reason))


def _of_model(entity: Entity, problems: str) -> Cause:
    """Return the cause of the first problem that a model names: its path, a colon, and the rule."""
    path, _, rule = problems.partition(": ")
    if rule.startswith(UNKNOWN_PROPERTY):
        return Cause(UNKNOWN, ".".join(name for name in path.split(".") if not name.isdecimal()))
    return Cause(MODEL) if path == DOCUMENT else _of_field(entity, path)


def _of_field(entity: Entity, path: str) -> Cause:
    field = re.split(r"[.\[]", path, maxsplit=1)[0]
    if field in entity.key or field == entity.document_id:
        return Cause(KEY)
    return Cause(TENANT) if field == entity.tenant_field else Cause(MODEL, field)


def _index(entity: Entity, reason: str) -> str | None:
    """Return the name of the unique index that a reason names, ``None`` where only the server has it."""
    said = {f"{UNIQUE_VALUE_TAKEN}: its {noun_of(index)} by ": index.name for index in entity.uniques} | {
        f"{INDEX_TAKEN} {index.name} ": index.name for index in entity.uniques
    }
    return next((name for start, name in said.items() if reason.startswith(start)), None)
