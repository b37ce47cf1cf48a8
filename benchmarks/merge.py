"""A copy that overwrites rows which are all changed, and one statement that does so."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Final, LiteralString

from benchmarks.cli_cases import CliCases
from benchmarks.hand_script import FILL, MERGE, STAGE
from benchmarks.peers.servers import Meter
from benchmarks.postgres_limits import COLUMNS, blocks_of, copy_in, prebuilt_rows
from benchmarks.schedule import Case, Group, Sample
from benchmarks.script import hand_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options

__all__ = ["OVERWRITE", "STATEMENT", "merging"]

STATEMENT: Final = "COPY and one statement"
OVERWRITE: Final = "copy, overwrite"
CHANGE: Final = "UPDATE scheduler.runs SET stats = stats || '{\"candidates\": 9999}'"


def columns_of(relation: LiteralString) -> LiteralString:
    """Return the columns of a run, except its key."""
    return ", ".join(f"{relation}.{name}" for name in COLUMNS.removeprefix("id, ").split(", "))


# The merge of the script, for rows that differ alone, and with the version that a repository expects.
MERGE_CHANGED: Final = f"""
{MERGE.rstrip()}, row_version = runs.row_version + 1
WHERE ({columns_of("runs")}) IS DISTINCT FROM ({columns_of("excluded")})
"""


@dataclass(frozen=True, slots=True)
class Merge:
    """Both ways to bring a table up to date, with the processor time of PostgreSQL."""

    databases: BenchmarkDatabases
    meter: Meter

    def restore(self, changed: Sequence[bytes]) -> None:
        """Store rows that all differ from the source, in a table without dead rows."""
        self.databases.empty_postgres()
        copy_in(self.databases, changed, 1)
        self.databases.vacuum_postgres()

    def by_statement(self, blocks: Sequence[bytes], count: int) -> Sample:
        """Stage all rows with COPY and merge them; the connection stays open until the meter is read.

        Raises:
            RuntimeError: not every row was changed.
        """
        with closing(self.databases.superuser()) as connection:
            server, used, began = self.meter.read(), process_time(), perf_counter()
            connection.execute(STAGE)
            with connection.transaction():
                with connection.cursor().copy(FILL) as copy:
                    for block in blocks:
                        copy.write(block)
                merged = connection.execute(MERGE_CHANGED).rowcount
            sample = Sample(
                units=merged,
                seconds=perf_counter() - began,
                client_seconds=process_time() - used,
                server_seconds=self.meter.read() - server,
            )
        if merged != count:
            raise RuntimeError(f"the statement changed {merged} of {count} rows")
        return sample

    def by_copy(self, tool: CliCases) -> Sample:
        """Copy over the rows."""
        server = self.meter.read()
        sample = tool.copy(OVERWRITE)
        return replace(sample, server_seconds=self.meter.read() - server)


@contextmanager
def merging(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Overwrite rows that are all changed."""
    tool = CliCases(
        databases,
        options.documents,
        options.jobs,
        profile=options.profile,
        further=("--on-conflict", "overwrite"),
    )
    databases.empty_postgres()
    hand_script(databases)
    rows = prebuilt_rows(databases)
    with closing(databases.superuser()) as connection:
        connection.execute(CHANGE)
    merge = Merge(databases, Meter.of_postgres(databases))
    prepare = partial(merge.restore, prebuilt_rows(databases))
    by_statement = partial(merge.by_statement, blocks_of(rows), len(rows))
    cases = [
        Case(name=STATEMENT, prepare=prepare, run=by_statement),
        Case(name=OVERWRITE, prepare=prepare, run=partial(merge.by_copy, tool), against=(STATEMENT,)),
    ]
    yield Group(name="merge", title="Merge of changed rows", unit="documents", cases=cases)
