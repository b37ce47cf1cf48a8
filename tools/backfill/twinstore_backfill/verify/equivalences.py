"""How a source row differs from what a copy of it stores: where, and by which rule of normalising.

An equivalence is harmless where nobody looks for the value. Inside a key, a tenant, a unique value, a filter,
an order or a retention, the two stores answer the same list differently, so there it leaves the proof open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from twinstore.fields import parse_timestamp
from twinstore.stored import NUMBERS, unmarked
from twinstore_backfill.verify.differences import member
from twinstore_backfill.verify.pairing import is_instant, paired

if TYPE_CHECKING:
    from twinstore.catalog import Entity

__all__ = ["BESIDE", "IGNORED", "Change", "changes", "is_harmless", "looked_for"]

MISSING: Final = object()
# A text that a store keeps with more digits than milliseconds have.
LONGEST_INSTANT: Final = len("2025-10-26T14:05:00.123+00:00")
OTHER: Final = "normalised"
DEFAULT: Final = "default_for_absent"
# What the source repeats or derives beside the content of a row contradicts it. A copy goes by the content;
# the lists of the source go by what contradicts it.
BESIDE: Final = "beside"
# An unknown property that was dropped on request.
IGNORED: Final = "ignored"
# A rule of the model without a name here, names that fell together, and what was ignored without a reason:
# nobody can tell that nothing is lost. A default is what the service reads in the source too, but no list of
# the source finds it.
UNNAMED: Final = frozenset({OTHER, DEFAULT, BESIDE, "case", IGNORED, "key_collision"})


@dataclass(frozen=True, slots=True)
class Change:
    """One place where normalising changed something.

    Attributes:
        kind: the rule, such as ``whitespace``.
        path: the place, as reports show it.
        field: the field of the row that holds it.
        approved: somebody gave a reason why it may be lost.
    """

    kind: str
    path: str
    field: str
    approved: bool = False


def looked_for(entity: Entity) -> frozenset[str]:
    """Return the fields of an entity by which rows are found, ordered or removed."""
    fields = {*entity.key, *(name for index in entity.indexes for name in index.names)}
    fields |= {condition.field for index in entity.indexes for condition in index.where}
    if entity.tenant_field is not None:
        fields.add(entity.tenant_field)
    if entity.retention is not None:
        fields |= {entity.retention.field, *(item.field for item in entity.retention.where)}
    if entity.parent is not None:
        fields.add(entity.parent.field)
    return frozenset(fields)


def is_harmless(change: Change, fields: frozenset[str]) -> bool:
    """Whether both stores still answer alike; ``fields`` are those of :func:`looked_for`."""
    return change.approved or (change.kind not in UNNAMED and change.field not in fields)


def changes(given: Mapping[str, object], stored: Mapping[str, object]) -> Iterator[Change]:
    """Yield where a scanned row differs from what a copy of it stores, in order of the paths."""
    for part in ("doc", "storage"):
        yield from _changes(part, "", given.get(part), stored.get(part))


def _changes(path: str, field: str, given: object, stored: object, *, again: bool = True) -> Iterator[Change]:
    """Yield the changes of one value; ``again`` allows to look at a list in another order, too."""
    if given == stored and type(given) is type(stored):
        return
    if isinstance(given, dict) and (mark := unmarked(given)) is not None:
        yield Change(_kind_of_mark(mark[0], mark[1], stored), path, field)
    elif isinstance(given, dict) and isinstance(stored, dict):
        yield from _changes_of_objects(path, field, given, stored, again=again)
    elif isinstance(given, list) and isinstance(stored, list) and len(given) == len(stored):
        yield from _changes_of_lists(path, field, given, stored, again=again)
    else:
        yield Change(_kind(given, stored), path, field)


def _changes_of_lists(
    path: str, field: str, given: Sequence[object], stored: Sequence[object], *, again: bool
) -> Iterator[Change]:
    """Yield the changes of a list whose members a copy may have brought in order."""
    if _is_reordered(given, stored):
        yield Change("set_order", path, field)
        return
    found = _changes_of_members(path, field, given, stored, range(len(given)), again=again)
    unnamed = _unnamed(found) if again else 0
    places = paired(given, stored) if unnamed else None
    if places is not None:
        # Once only: each list inside it in two orders would be looked at twice as often for each depth.
        moved = _changes_of_members(path, field, given, stored, places, again=False)
        if _unnamed(moved) < unnamed:
            yield Change("set_order", path, field)
            found = moved
    yield from found


def _unnamed(found: Sequence[Change]) -> int:
    """Return how many changes no rule explains."""
    return sum(change.kind == OTHER for change in found)


def _changes_of_members(
    path: str,
    field: str,
    given: Sequence[object],
    stored: Sequence[object],
    places: Sequence[int],
    *,
    again: bool,
) -> list[Change]:
    return [
        change
        for number, (one, place) in enumerate(zip(given, places, strict=True))
        for change in _changes(f"{path}[{number}]", field, one, stored[place], again=again)
    ]


def _changes_of_objects(
    path: str, field: str, given: Mapping[str, object], stored: Mapping[str, object], *, again: bool
) -> Iterator[Change]:
    # Sets and counts, because a free map may have many thousands of names.
    folded = {folded_name(name) for name in stored}
    alike = Counter(map(folded_name, given))
    lost = {folded_name(name) for name in given if name not in stored}
    for name in sorted(given.keys() | stored.keys()):
        place = (member(path, name), field or name)
        if name in given and name in stored:
            yield from _changes(*place, given[name], stored[name], again=again)
        elif name in given:
            kind = _kind_of_lost(name, given[name], folded)
            collides = bool(field) and alike[folded_name(name)] > 1
            yield Change("key_collision" if collides else kind, *place)
        elif name not in lost:
            yield Change(_kind(MISSING, stored[name]), *place)


def folded_name(name: str) -> str:
    """Return what names of a free map have in common that a copy takes for one."""
    return name.strip().casefold()


def _kind_of_lost(name: str, value: object, folded: AbstractSet[str]) -> str:
    """Return why a name of the source is not in what a copy stores."""
    if folded_name(name) in folded:
        return "key_case"
    mark = unmarked(value) if isinstance(value, dict) else None
    absent = value is None or (mark is not None and mark[1] is None)
    return "null_for_absent" if absent else _kind_of_absent(value)


def _kind_of_mark(form: str, value: object, stored: object) -> str:
    if form == "text" and isinstance(stored, str):
        return "text_timestamp"
    if form in NUMBERS and isinstance(stored, int | float):
        return "number_type"
    if form == "bounds":
        return "list_bounds"
    if form == "object" and value == stored:
        return "date_object"
    return "null_for_absent" if value is None and stored is MISSING else OTHER


def _kind(given: object, stored: object) -> str:
    """Return the rule that turned a value into another one."""
    if isinstance(given, str) and isinstance(stored, str):
        return _kind_of_texts(given, stored)
    if isinstance(given, list) and isinstance(stored, list):
        return "set_order" if _same_members(given, stored) else OTHER
    if stored is MISSING:
        return _kind_of_absent(given)
    # Nothing is stored where a copy writes the default of the field, or a key that stands elsewhere.
    return DEFAULT if given is None or given is MISSING or given == "" else OTHER


def _kind_of_texts(given: str, stored: str) -> str:
    if not given.strip():
        return DEFAULT
    if given.strip() == stored:
        return "whitespace"
    if len(given) > LONGEST_INSTANT > len(stored) - 1 and given[:19] == stored[:19]:
        return "sub_millisecond"
    if is_instant(given) and is_instant(stored) and parse_timestamp(given) == parse_timestamp(stored):
        return "text_timestamp"
    return "case" if given.strip().casefold() == stored.casefold() else OTHER


def _kind_of_absent(given: object) -> str:
    """Return the rule by which a copy leaves out a value."""
    if isinstance(given, str) and given and not given.strip():
        return "whitespace"
    return "null_for_absent" if given in (None, "", [], {}) else OTHER


def _is_reordered(given: Sequence[object], stored: Sequence[object]) -> bool:
    """Whether two lists of one length have the same members in another order, texts but for outer blanks."""
    if sorted(map(orjson.dumps, given)) == sorted(map(orjson.dumps, stored)):
        return True
    texts = [item.strip() for item in given if isinstance(item, str)]
    return len(texts) == len(given) and texts != stored and sorted(texts) == sorted(map(str, stored))


def _same_members(given: Sequence[object], stored: Sequence[object]) -> bool:
    """Whether two lists have the same members but for order, repetition, blanks and what is empty."""
    members = {item.strip() if isinstance(item, str) else str(item) for item in given} - {""}
    return members == {item if isinstance(item, str) else str(item) for item in stored}
