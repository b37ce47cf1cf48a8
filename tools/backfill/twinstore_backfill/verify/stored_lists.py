"""Checking the lists of one store: in the order of the contract, no row twice, no stored row missing.

The list that a service gets is compared with the one that follows from the rows themselves: read in another
way, filtered and sorted here. Services write meanwhile, so a difference counts only if the rows were the
same before and after, and if it remains when the list is queried again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from twinstore.access.defaults import matches
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, TenancyKind, Tenant, shown
from twinstore.errors import TwinstoreError, UnavailableError
from twinstore.plugins.checks import ListedRow
from twinstore_backfill.verify.lists import LARGEST_PAGE, PAGES, ListFinding, list_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from twinstore.access.paging import SortKey
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.tenancy import StoredOwner, Tenants
    from twinstore.models.canonical import CanonicalModel
    from twinstore.plugins.checks import ListQuery, StoredList
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.context import VerifyContext
from twinstore_backfill.verify.lists import AnyStorage

# Up to this many rows are read whole and sorted here; of more the server selects those that a list shows.
WHOLE: Final = 10_000
# A service that writes in every one of them keeps the question open.
ATTEMPTS: Final = 5
FIRST: Final = PAGES * LARGEST_PAGE


@dataclass(frozen=True, slots=True)
class FetchedList:
    """The first pages of a list.

    Attributes:
        rows: what they show.
        has_more: whether there are more, ``None`` where the list does not say.
    """

    rows: Sequence[ListedRow | None]
    has_more: bool | None


@dataclass(frozen=True, slots=True)
class ExpectedList:
    """The list that follows from the rows.

    Attributes:
        rows: the first of them.
        total: how many there are.
        problem: how the server deviates from the contract, if it selected them.
    """

    rows: Sequence[ListedRow | None]
    total: int
    problem: str = ""


class StoredRows:
    """The rows of a store as lists are computed from them; those of one entity and tenant are kept."""

    def __init__(self, store: Store, counts: Mapping[str, Mapping[str, int]], most: int = WHOLE) -> None:
        """Take the store, by entity the number of rows by label of the owner, and how many to sort here."""
        self._store = store
        self._counts = counts
        self._most = most
        self._kept: dict[tuple[str, Tenants], Sequence[Row]] = {}
        self.undecodable: dict[str, str] = {}

    def expected(self, stored: StoredList[CanonicalModel], *, refresh: bool) -> ExpectedList:
        """Return the first rows of a list as it follows from the rows, and its length.

        Unless the rows must be read again, they may be from an earlier moment.
        """
        if self._size(stored) > min(WHOLE, self._most):
            return self._by_server(stored)
        rows = [
            row for row in self._rows(stored, refresh=refresh) if matches(stored.entity, stored.query, row)
        ]
        found = sorted_rows(stored.entity, rows, stored.query.order)
        return ExpectedList([stored.row(row.model) for row in found[:FIRST]], len(found))

    def keep(self, tenant: str | None) -> None:
        """Forget the rows of other tenants."""
        scope = ALL_TENANTS if tenant is None else Tenant(tenant)
        self._kept = {place: rows for place, rows in self._kept.items() if place[1] == scope}

    def forget(self) -> None:
        """Forget the rows that were read."""
        self._kept.clear()

    def _size(self, stored: StoredList[CanonicalModel]) -> int:
        counts, scope = self._counts[stored.entity.name], stored.query.scope
        return counts.get(scope.id, 0) if isinstance(scope, Tenant) else sum(counts.values())

    def _rows(self, stored: StoredList[CanonicalModel], *, refresh: bool) -> Sequence[Row]:
        place = (stored.entity.name, stored.query.scope)
        if refresh or place not in self._kept:
            self._kept[place] = tuple(self._read(stored.entity, stored.query.scope))
        return self._kept[place]

    def _read(self, entity: Entity, scope: Tenants) -> Iterable[Row]:
        tenant = scope.id if isinstance(scope, Tenant) else None
        with self._store.bulk.view() as view:
            for batch in view.records(entity, KeyRange(), tenant_id=tenant):
                for record in batch:
                    if record.model is None:
                        self._record_undecodable(entity, record)
                    elif is_in(entity, scope, record.owner):
                        yield Row(record.model, record.storage)

    def _record_undecodable(self, entity: Entity, record: Record) -> None:
        key = entity.key_text(record.key) if record.key is not None else "without a key"
        self.undecodable[f"{entity.name} {key}"] = (
            f"{entity.singular} {key!r} of tenant {shown(record.label)} cannot be decoded: {record.error}; "
            "repair or remove it"
        )

    def _by_server(self, stored: StoredList[CanonicalModel]) -> ExpectedList:
        """Let the server choose the rows, and look here whether they are in order."""
        entity, query = stored.entity, replace(stored.query, limit=FIRST + 1, after=None)
        access = self._store.bulk.access()
        rows = access.page(entity, query).items
        by = entity.tenant_field or entity.key[0]
        total = sum(access.count(entity, query, by).values())
        listed = [stored.row(row.model) for row in rows[:FIRST]]
        if list(rows) != sorted_rows(entity, rows, query.order):
            return ExpectedList(listed, total, "the server does not return rows in the order of the contract")
        return ExpectedList(listed, total)


def compare_with_rows(context: VerifyContext, item: ListFinding, page: int, rows: StoredRows) -> ListFinding:
    """Compare a list of the target with its rows, where the source cannot answer that list.

    Of a list whose module does not say which rows make it, only repeated rows are looked for.
    """
    queries = list_queries(context, item.tenant, page, context.source.storage)
    query = next(query for query in queries if query.name == item.query)
    known = rows_of(query) is not None
    found = check_list(query, context.target, rows)
    return replace(found, tenant=item.tenant, by_rows=known, by_repeats=not known)


def rows_of(query: ListQuery[AnyStorage]) -> StoredList[CanonicalModel] | None:
    """Return which rows make a list, and their order, ``None`` where its module does not say it."""
    stored = cast("StoredList[CanonicalModel] | None", query.stored)
    return None if stored is None or stored.entity.tenancy.kind is TenancyKind.PARENT else stored


def check_list(query: ListQuery[AnyStorage], store: Store, rows: StoredRows) -> ListFinding:
    """Ask for the first three pages of a list and compare them with the rows."""
    try:
        found = _check_list(query, store, rows)
    except UnavailableError:
        raise
    except TwinstoreError as error:
        return ListFinding(query.name, "fail", 0, error.message)
    return found


def _check_list(query: ListQuery[AnyStorage], store: Store, rows: StoredRows) -> ListFinding:
    stored = rows_of(query)
    if stored is None:
        return _check_without_rows(query, store)
    before = rows.expected(stored, refresh=False)
    previous, count, changes = "", 0, 0
    for _ in range(ATTEMPTS):
        answer = fetch_pages(query, store.storage)
        problem, count = repeated(answer) or difference(answer, before), len(answer.rows)
        if not problem:
            return ListFinding(query.name, "pass", count)
        after = rows.expected(stored, refresh=True)
        # A row that came and went between the two reads of the rows is gone at the next query.
        if after == before and problem == previous:
            return ListFinding(query.name, "fail", count, problem)
        previous = problem if after == before else ""
        changes += after != before
        before = after
    # Another answer every time, about rows that stay the same.
    if not changes:
        return ListFinding(query.name, "fail", count, previous)
    return ListFinding(query.name, "inconclusive", 0, f"its rows changed in {changes} of {ATTEMPTS} attempts")


def _check_without_rows(query: ListQuery[AnyStorage], store: Store) -> ListFinding:
    """Check a list without comparing it with rows; query a list again that moved between two pages."""
    problem, count = "", 0
    for _ in range(ATTEMPTS):
        answer = fetch_pages(query, store.storage)
        problem, count = repeated(answer), len(answer.rows)
        if not problem:
            break
    return ListFinding(query.name, "fail" if problem else "pass", count, problem)


def fetch_pages(query: ListQuery[AnyStorage], storage: AnyStorage) -> FetchedList:
    """Return the first pages as the service gets them; raises what the repository raises."""
    rows: list[ListedRow | None] = []
    token: str | None = None
    for _ in range(PAGES):
        page = query.fetch(storage, token)
        for broken in page.undecodable:
            raise TwinstoreError(
                f"{broken.entity} {broken.key!r} of tenant {broken.tenant!r} is passed over, because it "
                f"cannot be decoded: {broken.reason}; repair or remove it"
            )
        rows += page
        token = page.next_page_token
        if token is None:
            # Due rows are queried up to a limit, and the answer does not say whether there are more.
            full = query.due and query.stored is not None and len(rows) >= query.stored.query.limit
            return FetchedList(rows, None if full else False)
    return FetchedList(rows, has_more=True)


def repeated(answer: FetchedList) -> str:
    """Say which row a list shows twice."""
    seen = set[ListedRow | None]()
    for row in answer.rows:
        if row is not None and row in seen:
            return f"{'/'.join(row)} is listed twice"
        seen.add(row)
    return ""


def difference(answer: FetchedList, expected: ExpectedList) -> str:
    """Say where a list is not what the rows make it."""
    if expected.problem:
        return expected.problem
    for place, (mine, other) in enumerate(zip(answer.rows, expected.rows, strict=False), start=1):
        if mine != other:
            return f"row {place}: {named(mine)} is listed, but by the stored rows it should be {named(other)}"
    if len(answer.rows) > len(expected.rows):
        more = answer.rows[len(expected.rows)]
        return f"row {len(expected.rows) + 1}: {named(more)} is listed, but not stored so"
    if answer.has_more is False and expected.total != len(answer.rows):
        return f"{len(answer.rows)} rows are listed, but {expected.total} are stored"
    if answer.has_more and expected.total <= len(answer.rows):
        return f"the list continues after {len(answer.rows)} rows, but {expected.total} are stored"
    return ""


def named(row: ListedRow | None) -> str:
    """Return a row of a list as findings show it."""
    return "nothing" if row is None else "/".join(row)


def sorted_rows(entity: Entity, rows: Iterable[Row], order: Sequence[SortKey]) -> list[Row]:
    """Return rows in the order of a list, absent values first."""
    found = list(rows)
    # Sorting is stable, so the least significant key comes first.
    for key in reversed(order):
        found.sort(key=sort_key(entity, key), reverse=key.descending)
    return found


def sort_key(entity: Entity, key: SortKey) -> Callable[[Row], tuple[bool, object]]:
    """Return what compares rows by one value; an absent one comes before every other."""

    def sort_value(row: Row) -> tuple[bool, object]:
        value = entity.value(row.model, row.storage, key.field)
        return (value is not None, value)

    return sort_value


def is_in(entity: Entity, scope: Tenants, owner: StoredOwner) -> bool:
    """Whether the rows of an owner belong to a list."""
    if scope is ALL_TENANTS or entity.tenancy.kind is TenancyKind.NONE:
        return True
    return scope == owner
