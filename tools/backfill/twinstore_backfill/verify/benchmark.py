"""How fast both sides answer the lists that a verification compares.

    the lists over all tenants and of the largest ones -> both sides queried in turns -> their times

Times are not a proof: they are in the envelope of the report, and a verdict considers them only on request.
"""

from __future__ import annotations

from math import ceil
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

from twinstore.errors import DocumentDecodeError, ValidationError
from twinstore_backfill.report.model import QueryTimes
from twinstore_backfill.report.texts import SPEED_CHECK, number_of
from twinstore_backfill.verify.checks import listed_check
from twinstore_backfill.verify.lists import list_queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.plugins.checks import ListQuery
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.report.model import Check
    from twinstore_backfill.verify.context import VerifyContext
    from twinstore_backfill.verify.lists import AnyStorage

BENCHMARK: Final = "benchmark"
# Enough for a 95th percentile that is not simply the slowest call.
ROUNDS: Final = 40
# A list of a small tenant says nothing of one of a large tenant; thousands of tenants would take hours.
TENANTS: Final = 3
# Below this a ratio reflects only the clock and the network.
NOISE: Final = 1.0
PERCENTILE: Final = 0.95
MILLISECONDS: Final = 1000


def largest_tenants(
    counted: Mapping[str, Mapping[str, tuple[int, int]]], tenants: Sequence[str]
) -> list[str]:
    """Return the tenants with most rows in the source.

    Args:
        counted: by entity and tenant the rows of both sides.
        tenants: those that can be queried.
    """
    rows = {name: sum(counts.get(name, (0, 0))[0] for counts in counted.values()) for name in tenants}
    return sorted(tenants, key=lambda name: (-rows[name], name))[:TENANTS]


def time_lists(  # noqa: PLR0917  # the request, and the receivers of reports
    context: VerifyContext,
    tenants: Sequence[str | None],
    page: int,
    progress: Progress,
    stop: StopSwitch,
    rounds: int = ROUNDS,
) -> tuple[QueryTimes, ...]:
    """Ask both sides for the first page of each list in turns and return how long that took.

    A list that a side refuses has no time.

    Raises:
        StopRequestedError: a stop was requested.
    """
    queries = [query for tenant in tenants for query in _timed_queries(context, tenant, page)]
    progress.start(BENCHMARK, len(queries))
    found: list[QueryTimes] = []
    for query in queries:
        stop.check()
        if times := _of(query, context, rounds):
            found.append(times)
        progress.advance(BENCHMARK, 1)
    progress.finish(BENCHMARK)
    return tuple(found)


def _timed_queries(context: VerifyContext, tenant: str | None, page: int) -> Iterator[ListQuery[AnyStorage]]:
    for query in list_queries(context, tenant, page, context.source.storage):
        # C4 has its own list, and the source cannot be queried for what it lacks.
        if not query.due and context.absent.isdisjoint(query.reads):
            yield query


def _of(query: ListQuery[AnyStorage], context: VerifyContext, rounds: int) -> QueryTimes | None:
    sides = (context.source.storage, context.target.storage)
    times: tuple[list[float], list[float]] = ([], [])
    try:
        for side in sides:
            # The first call opens connections and fills caches.
            query.fetch(side, None)
        for _ in range(rounds):
            for side, taken in zip(sides, times, strict=True):
                taken.append(_seconds(query, side))
    except (DocumentDecodeError, ValidationError):
        # C5 says so.
        return None
    source, target = times
    return QueryTimes(
        query=query.name,
        source_median=_milliseconds(median(source)),
        source_p95=_milliseconds(_percentile(source)),
        target_median=_milliseconds(median(target)),
        target_p95=_milliseconds(_percentile(target)),
    )


def _seconds(query: ListQuery[AnyStorage], side: AnyStorage) -> float:
    started = perf_counter()
    query.fetch(side, None)
    return perf_counter() - started


def _milliseconds(seconds: float) -> float:
    return round(seconds * MILLISECONDS, 3)


def _percentile(times: Sequence[float]) -> float:
    """Return the nearest rank: a time that was measured."""
    return sorted(times)[ceil(PERCENTILE * len(times)) - 1]


def speed_check(times: Sequence[QueryTimes], max_ratio: float) -> Check:
    """B1: no list exceeds the given multiple of its source time on the target; 1 ms is always allowed."""
    slow = [
        f"{item.query}: takes more than {max_ratio:g} times as long on the target"
        for item in times
        if item.target_median > max(max_ratio * item.source_median, NOISE)
    ]
    summary = f"{number_of(len(times), 'list')} timed on both sides"
    return listed_check(SPEED_CHECK, "speed of lists", "fail" if slow else "pass", summary, slow)
