"""What tools ask of a module: lists that two sides must answer alike, and what a store must do.

The rows themselves are compared by tools without any help of the module. The lists are questions that only
the module knows; it describes them here, and the tool asks both sides, or one side and compares with what is
stored there. What a service does to a store is described as a :class:`Trial`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Never, Protocol, TypeVar

from twinstore.access.paging import Page

if TYPE_CHECKING:
    from twinstore.access.query import Query
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.row import Row

__all__ = [
    "Cutoffs",
    "ListQuery",
    "ListedRow",
    "ModuleChecks",
    "NeededRows",
    "SmokeTest",
    "StoredList",
    "Trial",
    "TrialStep",
    "expect",
    "never_committed",
    "paged",
    "single_page",
]


T = TypeVar("T")
M_contra = TypeVar("M_contra", contravariant=True)
St_contra = TypeVar("St_contra", contravariant=True)

ListedRow = tuple[str, ...]
# By entity the instant up to which rows are expired, ``None`` where none expires.
Cutoffs = Mapping[str, datetime | None]


# Without slots: Python 3.11 cannot make a frozen class with slots through its alias, StoredList[...](...).
@dataclass(frozen=True)
class StoredList(Generic[M_contra]):
    """Which rows a list is made of, and in which order: by it a tool computes the list from the rows.

    Attributes:
        entity: whose rows.
        query: scope, conditions and order; its limit and starting point do not matter.
        row: what identifies a row in the list, from its model, as ``fetch`` of the list returns it.
    """

    entity: Entity
    query: Query
    row: Callable[[M_contra], ListedRow | None]


# Without slots: Python 3.11 cannot make a frozen class with slots through its alias, ListQuery[...](...).
@dataclass(frozen=True)
class ListQuery(Generic[St_contra]):
    """One list with fixed filters.

    Attributes:
        name: names it in reports.
        fetch: returns a page of a storage from a token on: of each row what identifies it and its place,
            ``None`` for a row that has expired and that the other side need not have.
        reads: the entities it is made of.
        due: it is in the order in which rows are due next, which has a separate check; see ``due_order`` of
            :class:`~twinstore.plugins.module_spec.ModuleSpec`.
        stored: the rows that make it and their order, for ``twinstore smoke``; ``None`` if it is made of more
            than one query, so that only the order of its rows can be checked.
    """

    name: str
    fetch: Callable[[St_contra, str | None], Page[ListedRow | None]]
    reads: tuple[str, ...]
    due: bool = False
    stored: StoredList[Never] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededRows:
    """Rows that a service passes over in silence while another entity has no row for them.

    Attributes:
        kind: by which a user accepts that there are such rows.
        entity: whose rows.
        where: which of them; deleted ones, for example, need nothing.
        other: the entity that needs a row for each of them.
        field: the field of that row that holds their key, which has one part.
        consequence: what the service never does with them.
        remedy: what to do, as a clause.
    """

    kind: str
    entity: Entity
    where: tuple[Condition, ...]
    other: Entity
    field: str
    consequence: str
    remedy: str


# Without slots, for the same reason.
@dataclass(frozen=True)
class SmokeTest(Generic[St_contra]):
    """What a store has to do, tried on rows that it keeps to itself; only a target is asked.

    Attributes:
        title: names it in reports.
        does: what it does, for the summary.
        run: tries it on a storage; yields what went otherwise, as sentences.
        held: reads what is held on a storage without concurrent writes; yields a sentence for each.
    """

    title: str
    does: str
    run: Callable[[St_contra], Iterable[str]]
    held: Callable[[St_contra], Iterable[str]] | None = None


@dataclass(frozen=True)
class TrialStep:
    """One step of a trial: what it is called, and what does it.

    ``run`` yields what went otherwise than it must, as sentences, and may raise an error of the library. A
    step that fails ends the trial, because the next ones build on it.
    """

    name: str
    run: Callable[[], Iterable[str]]


# Without slots, for the same reason.
@dataclass(frozen=True)
class Trial(Generic[St_contra]):
    """What ``twinstore smoke`` does on a deployed store, in a tenant that it makes up and empties afterwards.

    Services work on the same store meanwhile. So instants lie far in the future, where no call that is about
    all tenants finds a row due, expired or silent; and what cannot be removed again is written in a unit of
    work that is never committed.

    Attributes:
        rows: returns from the tenant a row of each entity that is to be inserted, found, listed and removed,
            parents first. A row that no tenant owns, or that is never removed, is not committed.
        steps: returns what else is done with the storage in this tenant, in order.
    """

    rows: Callable[[str], Iterable[tuple[Entity, Row]]] | None = None
    steps: Callable[[St_contra, str], Iterable[TrialStep]] | None = None


class ModuleChecks(Protocol[St_contra]):
    """The lists of a module; made from the cut-offs of its entities and the rows per page."""

    def of_tenant(self, tenant: str, source: St_contra) -> Iterable[ListQuery[St_contra]]:
        """Return the lists of a tenant; some may filter by ids that the source shows first."""
        ...

    def over_all(self) -> Iterable[ListQuery[St_contra]]:
        """Return the lists in system scope."""
        ...


def paged(page: Page[T], row: Callable[[T], ListedRow | None]) -> Page[ListedRow | None]:
    """Return the page of what identifies its rows."""
    return Page(tuple(row(item) for item in page), page.next_page_token, page.undecodable)


def single_page(items: Iterable[T], row: Callable[[T], ListedRow | None]) -> Page[ListedRow | None]:
    """Return a list without pages as one page."""
    page = items if isinstance(items, Page) else Page(tuple(items))
    return replace(paged(page, row), next_page_token=None)


class NotCommittedError(Exception):
    """Ends a unit of work that is not to leave anything."""


@contextmanager
def never_committed(unit: AbstractContextManager[T]) -> Generator[T]:
    """Open a unit of work that is rolled back at its end; an error inside ends it as usual."""
    with suppress(NotCommittedError), unit as opened:
        yield opened
        raise NotCommittedError


def expect(what: str, *, found: object, wanted: object) -> Iterable[str]:
    """Return the sentence that something is not as it must be, or nothing."""
    return () if found == wanted else (f"{what} is {found!r}; expected {wanted!r}",)
