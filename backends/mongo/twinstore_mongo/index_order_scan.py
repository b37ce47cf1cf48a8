"""In which order a list is read: that of an index, because the server would sort everything that matches.

An index serves a list when, behind the fields that the list pins to one value, it has the fields of the
order, read forwards or backwards. Where it has only the leading instant in order, rows are read along it and
those of one instant are sorted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from twinstore.query import Equals, IsNull, IsPresent, OneOf
from twinstore.tenancy import ALL_TENANTS
from twinstore_mongo.derive import document_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from pymongo.cursor import Cursor

    from twinstore.catalog import Entity
    from twinstore.paging import SortKey
    from twinstore.query import Condition, Query
    from twinstore_mongo.connection import Document

    Sort = list[tuple[str, int]]
    Find = Callable[[Document], "Cursor[Document]"]

__all__ = ["Reading", "Readings", "along_index"]

# With so many rows more, the last instant that is needed is mostly complete.
SPARE: Final = 16


@dataclass(frozen=True, slots=True)
class Path:
    """An index as a way to read a list: its fields, each with whether it descends, and the rows it holds."""

    fields: tuple[tuple[str, bool], ...]
    where: tuple[Condition, ...] = ()
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """How a list is read.

    Attributes:
        order: the total order of the list; without the keys that can make no difference.
        along: the sort of the index, where it differs from the order in rows of the same leading value.
    """

    order: Sort
    along: Sort | None = None


class Readings:
    """How the lists of one entity are read, decided once for each shape of a list."""

    def __init__(self, entity: Entity, names: Mapping[str, str]) -> None:
        self._tenant = entity.tenant_field
        self._names = names
        indexes = document_indexes(entity)
        key = Path(tuple((name, False) for name in entity.key), unique=True)
        self._paths = (key, *(Path(index.directions, index.where, index.unique) for index in indexes))
        self._partial = frozenset(condition for index in indexes for condition in index.where)
        self._known: dict[Hashable, Reading] = {}

    def of(self, query: Query) -> Reading:
        """Return how a list is read; values of its conditions matter only where an index has the same."""
        conditions = tuple(
            [item if item in self._partial else (type(item), item.field) for item in query.where]
        )
        shape = (query.order, query.scope is ALL_TENANTS, conditions)
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = self._decide(query)
        return found

    def _decide(self, query: Query) -> Reading:
        pinned = {item.field for item in query.where if isinstance(item, Equals)}
        if self._tenant is not None and query.scope is not ALL_TENANTS:
            pinned.add(self._tenant)
        usable = [path for path in self._paths if all(implied(item, query.where) for item in path.where)]
        order = distinguishing(query.order, usable, pinned)
        sort = [(self._names[key.field], -1 if key.descending else 1) for key in order]
        # The server merges the ranges of several values as well as it reads one.
        equal = pinned | {item.field for item in query.where if isinstance(item, OneOf)}
        # Rows of one leading value are sorted here, which pays where few share it: with instants only.
        if not order or not order[0].time or any(serves(tail_of(path, equal), order) for path in usable):
            return Reading(sort)
        best = max((along(tail_of(path, pinned), order) for path in usable), key=len)
        return Reading(sort, [(self._names[name], direction) for name, direction in best] or None)


def implied(condition: Condition, where: Iterable[Condition]) -> bool:
    """Whether the conditions of a list say that its rows are in an index."""
    present = isinstance(condition, IsPresent)
    return any(
        item == condition or (present and item.field == condition.field and not isinstance(item, IsNull))
        for item in where
    )


def distinguishing(order: Sequence[SortKey], paths: Iterable[Path], pinned: set[str]) -> list[SortKey]:
    """Return the keys of an order up to where no two rows can be equal any more, without the pinned ones."""
    uniques = [{name for name, _ in path.fields} for path in paths if path.unique]
    known = set(pinned)
    kept: list[SortKey] = []
    for key in order:
        if any(fields <= known for fields in uniques):
            break
        if key.field not in known:
            kept.append(key)
            known.add(key.field)
    return kept


def tail_of(path: Path, equal: set[str]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a path behind the leading ones that have one value."""
    leading = next((n for n, (name, _) in enumerate(path.fields) if name not in equal), len(path.fields))
    return path.fields[leading:]


def serves(tail: Sequence[tuple[str, bool]], order: Sequence[SortKey]) -> bool:
    """Whether an index has an order, forwards or backwards."""
    if [name for name, _ in tail[: len(order)]] != [key.field for key in order]:
        return False
    turned = {descends is not key.descending for (_, descends), key in zip(tail, order, strict=False)}
    return len(turned) == 1


def along(tail: Sequence[tuple[str, bool]], order: Sequence[SortKey]) -> Sort:
    """Return the sort of an index that has the leading key of an order, under wire names; else nothing."""
    found: Sort = []
    for (name, descends), key in zip(tail, order, strict=False):
        if name != key.field:
            break
        turned = tail[0][1] is not order[0].descending
        found.append((name, -1 if descends is not turned else 1))
    return found


def along_index(find: Find, condition: Document, reading: Reading, wanted: int) -> list[Document]:
    """Return the first ``wanted`` documents in an order of which the index has the leading field only."""
    (time, _), *rest = reading.order
    found = list(find(condition).sort(reading.along or reading.order).limit(wanted + SPARE))
    groups = [list(group) for _, group in groupby(found, key=lambda row: row.get(time))]
    if len(found) < wanted + SPARE:  # there are no more, so the last instant is complete
        return in_order(groups, rest)[:wanted]
    *complete, last = groups
    rows = in_order(complete, rest)[:wanted]
    if len(rows) < wanted:
        # Rows of the last instant may be missing, and not the last ones of the order.
        instant = {"$and": [condition, {time: last[0].get(time)}]}
        rows += find(instant).sort(rest).limit(wanted - len(rows))
    return rows


def in_order(groups: Iterable[list[Document]], rest: Sort) -> list[Document]:
    """Return the rows of groups of equal time, each group by the rest of the order."""
    rows: list[Document] = []
    for group in groups:
        for name, direction in reversed(rest):
            group.sort(key=lambda row, name=name: rank(row.get(name)), reverse=direction < 0)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        rows += group
    return rows


def rank(value: Any) -> tuple[int, Any]:  # noqa: ANN401  # whatever is stored
    """Return what sorts a value; one that is not a key cannot be read anyway and only needs some place."""
    if value is None:
        return 0, ""
    if isinstance(value, str):
        return 2, value
    return (1, value) if isinstance(value, int) else (3, repr(value))
