"""What the sessions of PostgreSQL wait for while a copy writes with several connections."""

from __future__ import annotations

from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg

from benchmarks.cli_cases import CliCases
from benchmarks.markdown import head, line
from benchmarks.schedule import Case, Group

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options
    from benchmarks.schedule import Sample, Samples

__all__ = ["WaitEvents", "waiting"]

JOBS: Final = (1, 2, 4, 8)
POLL_SECONDS: Final = 0.02
RUNNING: Final = "runs, or waits for a core"
CLIENT: Final = "Client: ClientRead"
# What a session does that is inside a statement or between two of a transaction; all others are idle.
ACTIVITY_QUERY: Final = """
SELECT CASE WHEN wait_event IS NULL THEN %s ELSE wait_event_type || ': ' || wait_event END, count(*)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND state IN ('active', 'idle in transaction', 'fastpath function call')
GROUP BY 1
"""


@dataclass(slots=True)
class WaitEvents:
    """Looks at the sessions of a database fifty times a second and counts what they wait for.

    Attributes:
        counts: sessions by what they wait for, added up over all looks.
        polls: how often it looked.
    """

    databases: BenchmarkDatabases
    counts: Counter[str] = field(default_factory=Counter[str])
    polls: int = 0
    _done: Event = field(default_factory=Event)
    _threads: list[Thread] = field(default_factory=list[Thread])

    def __enter__(self) -> Self:
        """Start looking."""
        self._done.clear()
        self._threads = [Thread(target=self._watch, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop looking."""
        self._done.set()
        self._threads[0].join()

    def _watch(self) -> None:
        with closing(self.databases.superuser()) as connection:
            while not self._done.wait(POLL_SECONDS):
                self.poll(connection)

    def poll(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Count what the sessions do at this moment."""
        found = connection.execute(ACTIVITY_QUERY, [RUNNING]).fetchall()
        self.counts.update({str(event): int(count) for event, count in found})
        self.polls += bool(found)


@contextmanager
def waiting(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Copy with 1, 2, 4 and 8 jobs, each of which has a connection."""
    watches = {jobs: WaitEvents(databases) for jobs in JOBS}

    def copy(jobs: int, name: str) -> Sample:
        with watches[jobs]:
            return CliCases(databases, options.documents, jobs).copy(name)

    cases = [
        Case(name=name, prepare=databases.empty_postgres, run=partial(copy, jobs, name))
        for jobs, name in zip(JOBS, map(_name, JOBS), strict=True)
    ]
    title = "What PostgreSQL waits for during a first copy"
    lines = partial(wait_lines, title, [watches[jobs] for jobs in JOBS])
    yield Group(name="waits", title=title, unit="documents", cases=cases, lines=lines)


def wait_lines(title: str, watches: Sequence[WaitEvents], samples: Samples) -> Iterator[str]:
    """Yield a table: shares of the samples of sessions that are inside a transaction."""
    yield from [f"**{title}**: parts of all looks at sessions inside a transaction, by --jobs", ""]
    yield from head(["", *map(str, JOBS)])
    rates = [samples.rate(_name(jobs)) for jobs in JOBS]
    yield line(["documents/s, median", *(f"{rate.middle:,.0f}" for rate in rates)])
    busy = (watch.counts.total() / max(watch.polls, 1) for watch in watches)
    yield line(["sessions inside a transaction, mean", *(f"{count:.1f}" for count in busy)])
    together = Counter[str]()
    for watch in watches:
        together.update(watch.counts)
    for event, _ in together.most_common():
        shares = (watch.counts[event] / max(watch.counts.total(), 1) for watch in watches)
        yield line([event, *(f"{share:.1%}" for share in shares)])


def _name(jobs: int) -> str:
    return f"first copy, {jobs} job{'s' * (jobs > 1)}"
