"""Asking both sides for the same lists: same keys, same order, page tokens exchanged."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from logging import getLogger
from threading import Event
from typing import TYPE_CHECKING, Final, Literal, cast

from typing_extensions import override

from twinstore.errors import DocumentDecodeError, ValidationError
from twinstore.plugins.modules import module_spec
from twinstore.storage.module import ModuleStorage
from twinstore_backfill.connection_budget import readers_at_once
from twinstore_backfill.report.texts import clipped
from twinstore_backfill.verify.context import Task, VerifyContext
from twinstore_backfill.verify.memory_lock import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from twinstore.plugins.checks import ListedRow, ListQuery, ModuleChecks
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.verify.digest_ranges import LargestRow

log = getLogger(__name__)

# The first page needs no token, the second takes the source's, the third the target's.
PAGES = 3
AnyStorage = ModuleStorage[object, object]


@dataclass(frozen=True, slots=True)
class ListFinding:
    """The result of comparing one list.

    Attributes:
        query: its name.
        result: pass, fail or inconclusive.
        rows: how many rows were compared.
        problem: the first difference.
        unreadable_entities: the entities that the list reads, where the source alone cannot answer it.
        affected_entities: the entities whose rows came in another order or number; empty if a side failed.
        tenant: whose list it is, ``None`` for all tenants.
        by_rows: it was compared with the rows of the target, because the source answers it otherwise.
        by_repeats: for that reason it was only searched for repeated rows.
    """

    query: str
    result: Literal["pass", "fail", "inconclusive"]
    rows: int
    problem: str = ""
    affected_entities: tuple[str, ...] = ()
    unreadable_entities: tuple[str, ...] = ()
    tenant: str | None = None
    by_rows: bool = False
    by_repeats: bool = False


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

    If only one side has a token, the page starts there.

    If the source lacks one of the entities (``absent``), its list is empty without a query.
    """
    empty = not absent.isdisjoint(query.reads)
    token: str | None = None
    rows = 0
    for number in range(1, PAGES + 2):
        left = ListAnswer((), None) if empty else _answer(query, source, token)
        right = _answer(query, target, token)
        if finding := _refused(query, left, right, rows):
            return finding
        if finding := _unequal(query, left, right, number, rows):
            return replace(finding, affected_entities=tuple(query.reads))
        rows += min(len(left.rows), len(right.rows))
        token = (left.token or right.token) if number % 2 else (right.token or left.token)
        # Where one side alone goes on, one more page shows whether only with expired rows.
        if token is None or (number >= PAGES and (left.token is None) == (right.token is None)):
            break
    return ListFinding(query.name, "pass", rows)


def _answer(query: ListQuery[AnyStorage], storage: AnyStorage, token: str | None) -> ListAnswer:
    try:
        page = query.fetch(storage, token)
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
        return ListFinding(query.name, "inconclusive", rows, problem, unreadable_entities=tuple(query.reads))
    return None


def _unequal(
    query: ListQuery[AnyStorage], left: ListAnswer, right: ListAnswer, number: int, rows: int
) -> ListFinding | None:
    """Judge a page. If expired rows were skipped, one side may show more if the other has a next page."""
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
    return None


def _shown(row: ListedRow) -> str:
    return clipped("/".join(row))


# Comparing lists while the ranges are compared, in separate threads.
#
# The largest row decides how many rows a page may have. That of the source is known as soon as its digests
# are, and if all rows are small already from their count. If a row turns out to be larger in the end, the
# lists are queried again.


# Their name in the progress.
LISTS: Final = "lists"

# The default limit of most lists, and so what a service reads.
LARGEST_PAGE: Final = 50
# Both sides hold a page at the same time; this bounds it also where documents are near their largest size.
PAGE_BYTES: Final = 500_000
# Lists are Python for the most part: more threads would only wait for each other.
MOST_THREADS: Final = 2
SWITCH_INTERVAL: Final = 0.0005
# What a row takes as text, of what it takes as it is stored, hardly ever more.
SPREAD: Final = 2
# Connections of a side for whatever compares rows meanwhile, and whatever cuts ranges.
OTHER_CONNECTIONS: Final = 2


def page_of(largest: int) -> int:
    """Return the rows per page: fewer where documents are large, so that memory stays bounded."""
    return max(1, min(LARGEST_PAGE, PAGE_BYTES // max(largest, 1)))


@contextmanager
def short_switch_interval() -> Generator[None]:
    """Let threads take turns more often, while some read digests and others lists.

    Threads that read digests need the interpreter for moments, but would wait each time as long as a thread
    that decodes lists may keep it.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class BackgroundLists(AbstractContextManager["BackgroundLists"]):
    """The lists of one verification, as soon as anybody knows how many rows a page may have."""

    def __init__(self, context: VerifyContext, jobs: int, progress: Progress, stop: StopSwitch) -> None:
        """Take both sides, how much may run at the same time, and the receiver of the progress."""
        self._context, self._progress, self._stop = context, progress, stop
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lists")
        self._jobs, self._threads = jobs, min(jobs, MOST_THREADS)
        self._ended = Event()
        self._found: Future[tuple[int, ListResult] | None] | None = None

    def begin(
        self,
        largest: LargestRow,
        counted: int | None,
        tenants: Sequence[str | None],
        entities: tuple[str, ...],
    ) -> None:
        """Begin when the largest row is known, or at once if the count says that all rows are small.

        Args:
            largest: learns how large it is.
            counted: the bytes of the largest row as it is stored, ``None`` if no count reports them.
            tenants: whose lists are queried, ``None`` for those over all tenants.
            entities: those that were requested.
        """
        early = counted is not None and self._has_room() and page_of(SPREAD * counted) == LARGEST_PAGE
        known = (lambda: counted) if early else largest.wait
        self._found = self._pool.submit(self._compare, known, tenants, entities)

    def _has_room(self) -> bool:
        """Whether lists, digests, and what compares rows or cuts ranges have a connection each."""
        needed = self._threads + readers_at_once(self._jobs) + OTHER_CONNECTIONS
        return all(
            side.storage.concurrency >= needed for side in (self._context.source, self._context.target)
        )

    def fetch(self, page: int, tenants: Sequence[str | None], entities: tuple[str, ...]) -> ListResult:
        """Compare the lists now, by pages of that size."""
        whole = ListResult([])
        self._progress.start(LISTS, len(tenants))
        with ThreadPoolExecutor(self._threads, thread_name_prefix="list") as pool:
            tasks = [ListTask(tenant, page, entities=entities) for tenant in tenants]
            for result in pool.map(self._run, tasks):
                whole.add(result)
                self._progress.advance(LISTS, 1)
        return whole

    def take(self, page: int) -> ListResult | None:
        """Wait for the lists; return them, ``None`` if they were not queried with pages of that size."""
        found = None if self._found is None else self._found.result()
        return None if found is None or found[0] != page else found[1]

    def _compare(
        self, wait: Callable[[], int | None], tenants: Sequence[str | None], entities: tuple[str, ...]
    ) -> tuple[int, ListResult] | None:
        known = wait()
        # Lists of such rows are queried one by one, when nothing else takes memory.
        if known is None or known >= LARGE_BYTES or self._unwanted():
            return None
        page = page_of(known)
        whole = self.fetch(page, tenants, entities)
        return None if self._unwanted() else (page, whole)

    def _run(self, task: ListTask) -> ListResult:
        # Nothing is raised: after a stop or a failure the lists are not needed.
        return ListResult([]) if self._unwanted() else task.run(self._context)

    def _unwanted(self) -> bool:
        return self._ended.is_set() or self._stop.requested

    @override
    def __exit__(self, *_: object) -> None:
        """Do not begin another list, and wait for those in progress."""
        self._ended.set()
        self._pool.shutdown()


@dataclass(frozen=True, slots=True)
class ListTask(Task["ListResult"]):
    """Query the lists of one tenant, or with ``None`` those over all tenants.

    With ``target_only`` the target is queried twice: then the lists only have to work. With ``entities`` only
    the lists that use at least one of them: others would compare rows that were not requested.
    """

    tenant: str | None
    page: int
    target_only: bool = False
    entities: tuple[str, ...] = ()

    @property
    @override
    def stays(self) -> bool:
        return True

    @override
    def run(self, context: VerifyContext) -> ListResult:
        source = context.target if self.target_only else context.source
        absent = frozenset[str]() if self.target_only else context.absent
        result = ListResult([])
        for query in list_queries(context, self.tenant, self.page, source.storage):
            if self.entities and set(self.entities).isdisjoint(query.reads):
                continue
            found = compare_list(query, source.storage, context.target.storage, absent)
            (result.due if query.due else result.lists).append(replace(found, tenant=self.tenant))
        return result


def list_queries(
    context: VerifyContext, tenant: str | None, page: int, source: AnyStorage
) -> Iterable[ListQuery[AnyStorage]]:
    """Return the lists of a tenant, or with ``None`` those over all tenants; none where a module has none."""
    make = module_spec(context.target.module).checks
    if make is None:
        return ()
    cutoffs = {entity.name: context.list_cutoff(entity) for entity in context.target.bulk.entities()}
    # The description of a module names its checks and its storage together.
    checks = cast("ModuleChecks[AnyStorage]", make(cutoffs, page))
    return checks.over_all() if tenant is None else checks.of_tenant(tenant, source)


def list_tasks(
    tenants: Iterable[str | None], page: int, entities: tuple[str, ...], *, one_at_a_time: bool
) -> Iterator[ListTask | None]:
    """Return the tasks that compare lists, one after the other where a page takes much memory."""
    for tenant in tenants:
        yield ListTask(tenant, page, entities=entities)
        if one_at_a_time:
            yield None


@dataclass(slots=True)
class ListResult:
    """The results of the lists."""

    lists: list[ListFinding]
    due: list[ListFinding] = field(default_factory=list[ListFinding])

    def add(self, other: ListResult) -> None:
        """Add the lists of another tenant."""
        self.lists += other.lists
        self.due += other.due
