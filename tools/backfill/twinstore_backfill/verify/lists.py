"""Asking both sides for the same lists: same keys, same order, page tokens exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from logging import getLogger
from typing import TYPE_CHECKING, Literal

from twinstore.errors import DocumentDecodeError, ValidationError
from twinstore.module_storage import ModuleStorage
from twinstore_backfill.report.texts import clipped

if TYPE_CHECKING:
    from twinstore.checks import ListedRow, ListQuery

__all__ = ["AnyStorage", "ListFinding", "compare_list"]

log = getLogger(__name__)

# The first page needs no token, the second takes the source's, the third the target's.
PAGES = 3
AnyStorage = ModuleStorage[object, object]


@dataclass(frozen=True, slots=True)
class ListFinding:
    """What comparing one list showed.

    Attributes:
        query: its name.
        result: what it amounts to.
        rows: how many rows were compared.
        problem: the first difference.
        unread: the entities that the list reads, where the source alone cannot answer it.
        made_of: the entities whose rows came in another order or number; nothing where a side gave an error.
    """

    query: str
    result: Literal["pass", "fail", "inconclusive"]
    rows: int
    problem: str = ""
    made_of: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """A page of one side, or why there is none."""

    rows: Sequence[ListedRow]
    token: str | None
    error: str = ""


def compare_list(
    query: ListQuery[AnyStorage],
    source: AnyStorage,
    target: AnyStorage,
    absent: AbstractSet[str] = frozenset(),
) -> ListFinding:
    """Compare the first three pages; the second starts at the source's token, the third at the target's.

    Where the source lacks one of the entities (``absent``) its list is empty without being asked.
    """
    empty = not absent.isdisjoint(query.reads)
    token: str | None = None
    rows = 0
    for number in range(1, PAGES + 1):
        left = ListAnswer((), None) if empty else _answer(query, source, token)
        right = _answer(query, target, token)
        if finding := _refused(query, left, right, rows):
            return finding
        if finding := _unequal(query, left, right, number, rows):
            return replace(finding, made_of=tuple(query.reads))
        rows += min(len(left.rows), len(right.rows))
        token = left.token if number % 2 else right.token
        if token is None:
            break
    return ListFinding(query.name, "pass", rows)


def _answer(query: ListQuery[AnyStorage], storage: AnyStorage, token: str | None) -> ListAnswer:
    try:
        page = query.ask(storage, token)
    # By its class: the message names the driver, so two sides never refuse in the same words.
    except (DocumentDecodeError, ValidationError) as error:
        log.debug("the list %s cannot be read on %s: %s", query.name, storage.driver, error)
        return ListAnswer((), None, type(error).__name__)
    if page.undecodable:
        # A list over all tenants passes over what stops a list of one: it is as incomplete.
        return ListAnswer((), None, DocumentDecodeError.__name__)
    return ListAnswer([row for row in page if row is not None], page.next_page_token)


def _refused(
    query: ListQuery[AnyStorage], left: ListAnswer, right: ListAnswer, rows: int
) -> ListFinding | None:
    """Judge a list that cannot be read. On the source that is known of a document in quarantine already.

    The tenant of such a document may be one that no side accepts as an argument.
    """
    refused_by_both = left.error == right.error != DocumentDecodeError.__name__
    if right.error and not refused_by_both:
        return ListFinding(query.name, "fail", rows, f"the target answers with {right.error}")
    if left.error:
        problem = f"the source answers with {left.error}"
        return ListFinding(query.name, "inconclusive", rows, problem, unread=tuple(query.reads))
    return None


def _unequal(
    query: ListQuery[AnyStorage], left: ListAnswer, right: ListAnswer, number: int, rows: int
) -> ListFinding | None:
    """Judge a page. Where expired rows were left out, one side may show more if the other has a next page."""
    common = min(len(left.rows), len(right.rows))
    for place in range(common):
        if left.rows[place] != right.rows[place]:
            problem = (
                f"page {number}, row {place + 1}: {_shown(left.rows[place])} in source, "
                f"{_shown(right.rows[place])} in target"
            )
            return ListFinding(query.name, "fail", rows, problem)
    for side, other, name in ((left, right, "source"), (right, left, "target")):
        if len(side.rows) > common and other.token is None:
            problem = f"page {number}, row {common + 1}: only the {name} has {_shown(side.rows[common])}"
            return ListFinding(query.name, "fail", rows, problem)
    if left.token is None and right.token is not None:
        return ListFinding(query.name, "fail", rows, f"page {number}: the list continues in the target only")
    return None


def _shown(row: ListedRow) -> str:
    return clipped("/".join(row))
