"""How time and memory grow with the number of documents."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.cli_cases import CliCases
from benchmarks.databases import SOURCE
from benchmarks.loading import load
from benchmarks.markdown import head, line, ratio_text
from benchmarks.schedule import Case, Group
from benchmarks.script import SCRIPT, SCRIPT_VERIFY, hand_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options
    from benchmarks.schedule import Samples

__all__ = ["scaling"]

COPY, VERIFY, BACK = "first copy", "verify", "copy back"
LARGEST: Final = f"{SOURCE}_largest"


@contextmanager
def scaling(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Copy there, verify and copy back, at some numbers of documents, and the hand-written script."""
    sizes = sorted(options.sizes)
    largest = databases.empty_source(LARGEST)
    load(largest, sizes[-1])
    cases: list[Case] = []
    names = []
    for size in sizes:
        names.append(f"{SOURCE}_{size}")
        source = largest if size == sizes[-1] else largest.take_from(names[-1], size)
        tool = CliCases(source, size, options.jobs, profile=options.profile)
        copy, verify, back = (f"{way}, {size:,}" for way in (COPY, VERIFY, BACK))
        cases += [
            Case(name=f"{SCRIPT}, {size:,}", prepare=source.empty_postgres, run=partial(hand_script, source)),
            Case(name=copy, prepare=source.empty_postgres, run=partial(tool.copy, copy)),
            Case(
                name=f"{SCRIPT_VERIFY}, {size:,}",
                prepare=source.vacuum_postgres,
                run=partial(hand_script, source, "verify"),
            ),
            Case(name=verify, prepare=source.vacuum_postgres, run=partial(tool.verify, verify)),
            Case(name=back, prepare=source.empty_mongo, run=partial(tool.copy_back, back)),
        ]
    lines = partial(scale_lines, sizes)
    yield Group(name="scale", title="By number of documents", unit="documents", cases=cases, lines=lines)
    for name in (LARGEST, *names):
        databases.client.drop_database(name)


def scale_lines(sizes: Sequence[int], samples: Samples) -> Iterator[str]:
    """Yield a table; times include the start of the process, rates do not."""
    yield from ["**By number of documents**: medians; times and the ratio to the script with the start", ""]
    yield from head(
        [
            "",
            "documents",
            "s",
            "CPU s",
            "documents/s",
            "time for a document, of the smallest",
            "of script",
            "MB",
        ]
    )
    scripts = {COPY: SCRIPT, VERIFY: SCRIPT_VERIFY}
    for way in (SCRIPT, COPY, SCRIPT_VERIFY, VERIFY, BACK):
        for size in sizes:
            case = f"{way}, {size:,}"
            seconds = samples.middle(case, lambda sample: sample.whole_seconds) or 0.0
            used = samples.middle(case, lambda sample: sample.client_seconds) or 0.0
            each = samples.time_ratio(case, f"{way}, {sizes[0]:,}").middle
            ratio = samples.whole_ratio(case, f"{scripts[way]}, {size:,}") if way in scripts else None
            peak = samples.peak(case)
            yield line(
                [
                    way,
                    f"{size:,}",
                    f"{seconds:.1f}",
                    f"{used:.1f}",
                    f"{samples.rate(case).middle:,.0f}",
                    f"{each:.2f}",
                    "" if ratio is None else ratio_text(ratio),
                    "" if peak is None else f"{peak:.0f}",
                ]
            )
