"""A verification of many ranges that was interrupted is continued, and reports what one in one go reports."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.migration_tool.verify.test_verify import change, remove
from tests.support import forked
from tests.support.copies import (
    AS_OF,
    MemoryPair,
    fill,
    invoke,
    memory_pair,
    open_store,
    server_settings,
    write_config,
)
from tests.support.digests import give_digests, limit_digests
from twinstore.catalog.keys import KeyRange
from twinstore.config import load_settings
from twinstore.errors import TwinstoreError, UnavailableError, ValidationError
from twinstore.fast.library import SWITCH
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.testing.scheduler.builders import make_audit_record, make_run
from twinstore_backfill.ignored import IgnoredPath
from twinstore_backfill.outcome import Exit, InterruptedRunError, PreflightError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import RecordedProgress
from twinstore_backfill.report.model import Envelope, parse_report
from twinstore_backfill.report.writing import ReportFormat, render
from twinstore_backfill.rules.model import DropRule, JobRules
from twinstore_backfill.subset import Subset
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.findings import FindingKind, RangeResult, RowFinding, Shares, TenantResult
from twinstore_backfill.verify.kept import CONTINUE, FILE, KeptResults, Mark, earlier_in, lines_of, result_of
from twinstore_backfill.verify.options import VerifyOptions
from twinstore_backfill.verify.set_digest import Digest
from twinstore_memory.bulk import MemoryBulk, MemoryView
from twinstore_memory.rows import encode, store_unchecked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore_backfill.report.model import ParityReport

TENANTS: Final = ("acme", "umbrella")
ENVELOPE: Final = Envelope(generated_at="", host="", as_of="", seconds=0)
AT_ONCE: Final = 4


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryPair]:
    """Return two stores with differences everywhere; four ranges are compared together."""
    monkeypatch.setattr("twinstore_backfill.verify.partition.ROWS_PER_DIGEST", 2)
    give_digests(monkeypatch, MemoryBulk, MemoryView)
    limit_digests(monkeypatch, 80_000, AT_ONCE)
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, TENANTS)
        for number in range(60):
            pair.source.storage.runs.create(make_run(TENANTS[number % 2], f"run-{number:02}"))
        for number in range(20):
            name = f"audit-{number:02}"
            pair.source.storage.audit.append(make_audit_record("acme", name, occurred_at=AS_OF))
        pair.copy(max_quarantine=None)
        for number in (3, 17, 38, 59):
            change(pair.stores[1], RUNS, f"run-{number:02}", error=f"only here {number}")
        remove(pair.stores[1], RUNS, "run-11")
        store_unchecked(pair.stores[1], encode(RUNS, make_run("zulu", "run-30-and-more")))
        change(pair.stores[1], SCHEDULES, "acme-schedule-1", name="Renamed")
        yield pair


def compared(
    pair: MemoryPair,
    out: Path | None,
    stop_after: int | None = None,
    **options: Any,  # noqa: ANN401  # those of a verification
) -> tuple[ParityReport, bytes, RecordedProgress]:
    """Return the report, every finding as a line, and the progress; stop after some marks."""
    lines: list[bytes] = []
    stop, progress = StopSwitch(), RecordedProgress()
    given = VerifyOptions(**{"as_of": AS_OF, "range_size": 4, **options})
    marks = 0

    def add(self: KeptResults, result: RangeResult | Mark) -> None:
        nonlocal marks
        honest(self, result)
        marks += isinstance(result, Mark)
        if marks == stop_after:
            stop.request(signal.SIGINT)

    honest = KeptResults.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptResults, "add", add)
        report = run_verify(pair.source, pair.target, given, progress, stop, lines.extend, out)
    return report, b"".join(lines), progress


def interrupted(pair: MemoryPair, out: Path, marks: int = 2, **options: Any) -> str:  # noqa: ANN401  # the same
    """Interrupt a verification after some marks; return what it says."""
    with pytest.raises(InterruptedRunError) as caught:
        compared(pair, out, marks, **options)
    return str(caught.value)


def shown(progress: RecordedProgress) -> list[tuple[object, ...]]:
    """Return what a progress shows, without times."""
    return [(part.part, part.total, part.done, part.outcomes) for part in progress.states()]


@pytest.mark.parametrize(
    ("options", "cells", "native", "marks"),
    [
        ({}, 80_000, True, 1),
        ({}, 6, True, 2),
        ({}, 1, True, 2),
        ({}, 80_000, False, 2),
        ({"tenants": ("umbrella", "acme"), "entities": ("runs", "audit")}, 80_000, True, 1),
        ({"ignored_fields": (IgnoredPath("runs", ("error",)),)}, 80_000, True, 1),
        (
            {"entities": ("runs",), "subset": Subset(key_from=("run-02",), key_to=("run-58",))},
            80_000,
            True,
            2,
        ),
    ],
    ids=["by owner", "folded", "too many owners", "row by row", "tenants", "without a field", "a part"],
)
@pytest.mark.native
def test_a_continued_verification_reports_what_one_in_one_go_does(  # noqa: PLR0917  # a table
    pair: MemoryPair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    cells: int,
    native: bool,  # noqa: FBT001  # of a table
    marks: int,
) -> None:
    limit_digests(monkeypatch, cells, AT_ONCE)
    if not native:
        monkeypatch.setenv(SWITCH, "off")
    whole, lines, progress = compared(pair, None, **options)
    assert whole.verdict != "PASS"
    message = interrupted(pair, tmp_path, marks, **options)
    assert "`twinstore backfill verify --resume` with the same options" in message
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"entity":"runs","tenant":nu')
    first = earlier_in(tmp_path / FILE, {}).mark.rows
    interrupted(pair, tmp_path, 1, resume=True, **options)
    assert earlier_in(tmp_path / FILE, {}).mark.rows > first > 0
    done, rest, second = compared(pair, tmp_path, resume=True, **options)
    assert rest == lines
    assert done.envelope.continued is not None
    assert (done.envelope.ranges, done.envelope.without_digests) == (
        whole.envelope.ranges,
        whole.envelope.without_digests,
    )
    assert shown(second) == shown(progress)
    for form in ReportFormat:
        one, other = (render(item.model_copy(update={"envelope": ENVELOPE}), form) for item in (done, whole))
        assert one == other


def copy_again(pair: MemoryPair) -> None:
    pair.source.storage.runs.create(make_run("acme", "new"))
    pair.copy(max_quarantine=None, on_conflict="overwrite")
    for side in pair.stores:
        remove(side, RUNS, "new")


def exchange(pair: MemoryPair) -> None:
    remove(pair.stores[0], AUDIT, "acme-audit-1")
    pair.source.storage.audit.append(make_audit_record("acme", "zulu", occurred_at=AS_OF))


def add_one(pair: MemoryPair) -> None:
    pair.target.storage.audit.append(make_audit_record("acme", "zulu", occurred_at=AS_OF))


def damaged(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"equal"', b'"epual"', 1))


def without_marks(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))


OTHERS: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"range_size": 5}, "another --range-size"),
    ({"entities": ("runs", "audit")}, "another --entity"),
    ({"tenants": ("acme",)}, "another --tenant"),
    ({"as_of": None}, "another --as-of"),
    ({"ignored_fields": (IgnoredPath("runs", ("error",)),)}, "another --ignore-field"),
    ({"subset": Subset(since=AS_OF)}, "another part of the rows"),
    ({"rules": JobRules((DropRule(number=1, line=0, entity="runs", path=("old",)),))}, "other rules"),
)
FILES: Final = (
    (damaged, "no part of it is finished"),
    (without_marks, "no part of it is finished"),
    (Path.unlink, "it cannot be read (No such file or directory)"),
)
# Of rows that no retention removes a part is decided.
AUDITED: Final[dict[str, Any]] = {"entities": ("schedules", "audit"), "range_size": 2}


def refusal(pair: MemoryPair, out: Path, **options: Any) -> str:  # noqa: ANN401  # the same
    """Return why a verification is not continued."""
    with pytest.raises(PreflightError) as caught:
        compared(pair, out, resume=True, **{**AUDITED, **options})
    _, _, reason = str(caught.value).partition(" cannot be continued: ")
    return reason.removesuffix(". Run the same command without --resume.")


@pytest.mark.native
def test_another_verification_and_another_file_are_not_continued(pair: MemoryPair, tmp_path: Path) -> None:
    interrupted(pair, tmp_path, 1, **AUDITED)
    content = (tmp_path / FILE).read_bytes()
    for options, says in OTHERS:
        assert refusal(pair, tmp_path, **options) == f"it began with {says}"
    assert (tmp_path / FILE).read_bytes() == content
    for spoil, says in FILES:
        (tmp_path / FILE).write_bytes(content)
        spoil(tmp_path / FILE)
        assert refusal(pair, tmp_path) == says


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (copy_again, "it began with another state of the copies in the target"),
        (add_one, "rows of audit were added or removed since"),
        (exchange, "keys of audit were added or removed since"),
    ],
)
@pytest.mark.native
def test_what_is_seen_to_be_written_is_refused(
    pair: MemoryPair, tmp_path: Path, write: Callable[[MemoryPair], None], says: str
) -> None:
    interrupted(pair, tmp_path, 1, **AUDITED)
    write(pair)
    assert refusal(pair, tmp_path) == says


def test_only_a_whole_comparison_with_a_directory_is_continued(pair: MemoryPair) -> None:
    for mode in ("sample", "full"):
        with pytest.raises(ValidationError, match="--resume continues"):
            compared(pair, None, resume=True, mode=mode)


def test_few_ranges_are_not_kept_and_end_what_is_kept_of_others(pair: MemoryPair, tmp_path: Path) -> None:
    interrupted(pair, tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    compared(pair, tmp_path, range_size=100)
    assert not (tmp_path / FILE).exists()


def test_a_run_that_does_not_continue_forgets_what_is_kept_before_it_reads(
    pair: MemoryPair, tmp_path: Path
) -> None:
    interrupted(pair, tmp_path)
    with pytest.raises(TwinstoreError, match="nobody"):
        compared(pair, tmp_path, tenants=("nobody",))
    assert not (tmp_path / FILE).exists()


def test_after_a_failure_the_log_says_how_to_continue(
    pair: MemoryPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest = KeptResults.add

    def add(self: KeptResults, result: RangeResult | Mark) -> None:
        honest(self, result)
        if isinstance(result, Mark):
            raise UnavailableError("the server is gone")

    monkeypatch.setattr(KeptResults, "add", add)
    options = VerifyOptions(range_size=4)
    with pytest.raises(UnavailableError):
        run_verify(pair.source, pair.target, options, RecordedProgress(), StopSwitch(), keep_in=tmp_path)
    assert CONTINUE in caplog.messages


TEXTS: Final = st.text(
    st.characters(exclude_categories=()) | st.sampled_from('\x00\ud800\n\u2028"{}'), max_size=6
)
KEYS: Final = st.lists(TEXTS | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3).map(tuple)
NUMBERS: Final = st.integers(0, 2**128 - 1)
DIGESTS: Final = st.builds(Digest, st.integers(0), NUMBERS, NUMBERS)
RANGES: Final = st.builds(KeyRange, st.none() | KEYS, st.none() | KEYS)
COUNTERS: Final = st.dictionaries(TEXTS, st.integers(-3)).map(Counter[str])
BY_RULE: Final = st.dictionaries(st.integers(1), st.integers(-3)).map(Counter[int])
FINDINGS: Final = st.builds(
    RowFinding,
    kind=st.sampled_from(FindingKind),
    tenant=TEXTS,
    key=st.none() | KEYS,
    paths=st.lists(TEXTS, max_size=3).map(tuple),
    path_count=st.integers(0),
    source_digest=st.none() | TEXTS,
    reason=st.none() | TEXTS,
    cause=st.none() | TEXTS,
    stored_key=st.none() | TEXTS,
)


@st.composite
def results(draw: st.DrawFn) -> RangeResult:
    """Draw what no driver would return, too."""
    result = RangeResult("runs", draw(st.none() | TEXTS), draw(RANGES), draw(DIGESTS), draw(DIGESTS))
    result.proved = draw(st.lists(st.tuples(RANGES, DIGESTS), max_size=2))
    result.is_range, result.largest = draw(st.booleans()), draw(st.integers(0))
    result.shares = draw(st.builds(Shares, *[st.integers(0)] * 4))
    totals = st.builds(TenantResult, DIGESTS, DIGESTS, COUNTERS, COUNTERS, BY_RULE, BY_RULE)
    result.tenants.update(draw(st.dictionaries(TEXTS, totals, max_size=2)))
    for finding in draw(st.lists(FINDINGS, max_size=3)):
        result.findings.add("runs", finding)
    return result


@given(results())
def test_a_result_survives_as_lines(result: RangeResult) -> None:
    first, *findings = lines_of(result)
    assert all(line.isascii() and line.index(b"\n") == len(line) - 1 for line in (first, *findings))
    again = result_of(first, iter([*findings, b"what follows"]))
    assert list(lines_of(again)) == [first, *findings]
    # What takes the place of a key that a finding has is shown nowhere.
    for kind, shown in result.findings.first.items():
        result.findings.first[kind] = [
            item if item.key is None else replace(item, stored_key=None) for item in shown
        ]
    assert vars_of(again) == vars_of(result)


def vars_of(result: RangeResult) -> list[object]:
    """Return what a result says."""
    found = {name: getattr(result, name) for name in RangeResult.__dataclass_fields__}
    findings = found.pop("findings")
    counted = [(place, item.rows, item.example) for place, item in findings.reasons.counted.items()]
    return [found, findings.first, findings.counts, findings.fields, findings.lines, counted]


# A command that meets its end as soon as a part is kept.
PROGRAM: Final = """
import os, resource, signal, sys
from twinstore_backfill.cli import main
from twinstore_backfill.verify import kept, plan

honest = kept.KeptResults.add

def add(self, result):
    honest(self, result)
    if isinstance(result, kept.Mark):
        END

plan.RANGES_AT_ONCE = 4
kept.KeptResults.add = add
sys.exit(main(sys.argv[1:]))
"""
# The system refuses to write a file of this length on, as it does on a full disk.
FULL: Final = "resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(self._path),) * 2)"
ENDS: Final = {"os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL, FULL: Exit.FAILED}


@pytest.fixture
def config(mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    """Return settings of two servers, of which the target lacks rows at both ends."""
    path = write_config(tmp_path / "settings.json", server_settings(mongo_database, postgres_database))
    for name in ("mongo", "postgres"):
        with open_store("scheduler", name, load_settings(path, environ={})) as store:
            store.storage.initializer.ensure_migrations()
            fill(store.storage, TENANTS)
            if name == "mongo":
                for key in ("a", "z"):
                    store.storage.runs.create(make_run("acme", key))
    return path


@pytest.mark.parametrize("end", ENDS, ids=["killed", "full disk"])
def test_a_command_that_meets_its_end_is_continued_by_another_one(
    end: str,
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres", "--as-of", AS_OF.isoformat())
    command = ["--config", str(config), "backfill", "verify", *sides, "--range-size", "2"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert invoke(capsys, *command, "--out", whole).code == Exit.DIFFERENT
    # It ends before it needs another process.
    ended = forked.run(["-c", PROGRAM.replace("END", end), *command, "--jobs", "2", "--out", str(out)])
    assert ended.returncode == ENDS[end], ended.stderr
    assert end != FULL or f"written to {out}" in ended.stderr
    monkeypatch.setattr("twinstore_backfill.verify.plan.RANGES_AT_ONCE", AT_ONCE)
    done = invoke(capsys, *command, "--out", out, "--resume")
    assert done.code == Exit.DIFFERENT, done.err
    assert "Continued: rows were compared from " in done.out
    assert not (out / FILE).exists()
    one, other = (
        parse_report((folder / "parity-report.json").read_bytes(), "report").model_copy(
            update={"envelope": ENVELOPE}
        )
        for folder in (whole, out)
    )
    assert one == other
    assert (whole / "differences.ndjson").read_bytes() == (out / "differences.ndjson").read_bytes()
    assert invoke(capsys, *command, "--out", out, "--resume").code == Exit.PREFLIGHT_REFUSED
