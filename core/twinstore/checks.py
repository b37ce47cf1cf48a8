"""What a verification asks of a module: lists that both sides must answer alike, and what a target must do.

The rows themselves are compared by tools without any help of the module. The lists are questions that only
the module knows; it describes them here, and the tool asks both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from twinstore.paging import Page

__all__ = ["Cutoffs", "ListQuery", "ListedRow", "ModuleChecks", "SmokeTest", "paged", "whole"]

T = TypeVar("T")
St_contra = TypeVar("St_contra", contravariant=True)

ListedRow = tuple[str, ...]
# By entity the instant up to which rows are expired, ``None`` where none expires.
Cutoffs = Mapping[str, datetime | None]


# Without slots: Python 3.11 cannot make a frozen class with slots through its alias, ListQuery[...](...).
@dataclass(frozen=True)
class ListQuery(Generic[St_contra]):
    """One list with fixed filters.

    Attributes:
        name: names it in reports.
        ask: returns a page of a storage from a token on: of each row what identifies it and its place,
            ``None`` for a row that retention has due for removal and that the other side need not have.
        reads: the entities it is made of.
        due: it is in the order in which rows are due next, which has a check of its own; see ``due_order`` of
            :class:`~twinstore.modules.ModuleSpec`.
    """

    name: str
    ask: Callable[[St_contra, str | None], Page[ListedRow | None]]
    reads: tuple[str, ...]
    due: bool = False


# Without slots, for the same reason.
@dataclass(frozen=True)
class SmokeTest(Generic[St_contra]):
    """What a store has to do, tried on rows that it keeps to itself; only a target is asked.

    Attributes:
        title: names it in reports.
        does: what it does, for the summary.
        run: tries it on a storage; yields what went otherwise, as sentences.
    """

    title: str
    does: str
    run: Callable[[St_contra], Iterable[str]]


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


def whole(items: Iterable[T], row: Callable[[T], ListedRow | None]) -> Page[ListedRow | None]:
    """Return a list without pages as one page."""
    page = items if isinstance(items, Page) else Page(tuple(items))
    return replace(paged(page, row), next_page_token=None)
