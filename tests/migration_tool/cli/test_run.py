"""``backfill run``: it stops where a person must decide, and what it prints solves that when it is pasted."""

from __future__ import annotations

import json
import shlex
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from tests.migration_tool.verify.test_accepted import change
from tests.support.copies import MemoryPair, fill, invoke, memory_pair, rows_of
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill import steps
from twinstore_backfill.outcome import Exit
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.copies import Answer

DECIDE: Final = 6
# A name that a shell would take apart.
JOB: Final = 'a job\'s %s "ü".toml'
PASTED: Final = "  twinstore "


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryPair]:
    """Return a source with rows and an empty target, in the folder of the commands."""
    monkeypatch.chdir(tmp_path)
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        words = list(map(str, pair.sides))
        options = zip(words[::2], words[1::2], strict=True)
        job = "".join(f"{name.lstrip('-')} = {json.dumps(value)}\n" for name, value in options)
        (tmp_path / JOB).write_text(f'{job}\nreports = "all of it"\n')
        yield pair


def run(capsys: pytest.CaptureFixture[str], *more: str) -> Answer:
    return invoke(capsys, "backfill", "run", JOB, *more)


def commands(answer: Answer) -> list[list[str]]:
    """Return what an answer gives to paste."""
    lines = (line for line in answer.out.splitlines() if line.startswith(PASTED))
    return [shlex.split(line)[1:] for line in lines]


def append(rule: str) -> None:
    """Put a rule from an answer into the job file, as a person fills it in."""
    with open(JOB, "a") as file:  # noqa: PTH123  # in the current folder
        file.write("\n" + rule.replace('"…"', '"agreed"'))


def rules_in(answer: Answer) -> Iterator[str]:
    """Yield the rules that an answer as JSON gives."""
    for cause in answer.json["decision"]["causes"]:
        assert cause["remedy"].startswith("[["), cause
        yield cause["remedy"]


def paste(at: int) -> Callable[[pytest.CaptureFixture[str], Answer], None]:
    def act(capsys: pytest.CaptureFixture[str], stopped: Answer) -> None:
        invoke(capsys, *commands(stopped)[at])

    return act


def rules(capsys: pytest.CaptureFixture[str], stopped: Answer) -> None:
    asked = run(capsys, "--execute", "--format", "json")
    assert (asked.code, asked.json["exit_code"]) == (DECIDE, DECIDE)
    assert f"Decide: {asked.json['decision']['text']}" in stopped.out
    assert asked.json["next"] == shlex.join(["twinstore", *commands(stopped)[-1], "--format", "json"])
    for rule in rules_in(asked):
        append(rule)


def held_before(pair: MemoryPair) -> None:
    pair.copy(tenants=["acme"])


def changed_after(pair: MemoryPair) -> None:
    pair.copy(as_of=None)
    row = stored_rows(pair.stores[1], RUNS)["acme-run-1",]
    store_unchecked(pair.stores[1], replace(row, document={**row.document, "error": "x"}))


def extra_after(pair: MemoryPair) -> None:
    pair.copy(as_of=None)
    pair.target.storage.runs.create(make_run("acme", "too-early"))


def unknown_property(pair: MemoryPair) -> None:
    change(pair, RUNS, "acme-run-2", priority="high")


def text_for_an_instant(pair: MemoryPair) -> None:
    change(pair, RUNS, "acme-run-2", createdAt="2026-01-01T10:00:00+02:00")


@pytest.mark.parametrize(
    ("prepare", "said", "solve"),
    [
        (
            held_before,
            "The target has 29 rows (runs 7, audit 4, triggers 3, and 8 more) that this job did ",
            paste(0),
        ),
        (changed_after, "The target has at least 1 row with other content than the source, ", paste(1)),
        (unknown_property, "1 document of the source cannot be copied.", rules),
        (text_for_an_instant, "In a sample, the source has values in another form than a copy writes", rules),
        (extra_after, "The verdict is FAIL.", paste(0)),
    ],
)
def test_each_decision_ends_with_6_and_what_is_printed_solves_it(
    prepare: Callable[[MemoryPair], None],
    said: str,
    solve: Callable[[pytest.CaptureFixture[str], Answer], None],
    pair: MemoryPair,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare(pair)
    stopped = run(capsys, "--execute")
    assert (stopped.code, f"Decide: {said}" in stopped.out, stopped.err.count("error")) == (DECIDE, True, 0)
    solve(capsys, stopped)
    ended = invoke(capsys, *commands(stopped)[-1])
    assert (ended.code, "PASS: " in ended.out) == (Exit.OK, True), ended.out + ended.err


def test_a_part_is_never_a_proof_of_all(pair: MemoryPair, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = run(capsys, "--tenant", "acme", "--execute")
    assert (stopped.code, "Decide: The verdict is PARTIAL. " in stopped.out) == (DECIDE, True)
    assert [rows_of(side.bulk)["runs"] for side in (pair.source, pair.target)] == [14, 7]


def test_without_execute_nothing_is_written_and_the_next_command_is_shown(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = run(capsys, "--jobs", "1")
    assert (dry.code, "Nothing was written." in dry.out) == (Exit.OK, True)
    assert set(rows_of(pair.target.bulk).values()) == {0}
    assert commands(dry) == [["backfill", "run", JOB, "--jobs", "1", "--execute"]]


def test_an_interruption_ends_in_order_with_the_command_to_continue(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "refuse_copy", lambda _: signal.raise_signal(signal.SIGTERM))
    stopped = run(capsys, "--execute")
    assert (stopped.code, "Interrupted by SIGTERM" in stopped.err) == (Exit.TERMINATED, True)
    assert "interrupted" in (pair.directory / "all of it" / "parity-report.xml").read_text()
    monkeypatch.undo()
    monkeypatch.chdir(pair.directory)
    assert "PASS: " in invoke(capsys, *commands(stopped)[-1]).out


def test_a_run_that_stops_leaves_no_proof_of_an_earlier_one(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "--execute").code == Exit.OK
    unknown_property(pair)
    assert run(capsys).code == DECIDE
    report = pair.directory / "all of it" / "parity-report.json"
    assert json.loads(report.read_text())["verdict"] == "PASS"
    assert run(capsys, "--execute").code == DECIDE
    assert not report.exists()
    assert "1 document of the source cannot be copied" in report.with_suffix(".xml").read_text()


@pytest.mark.usefixtures("pair")
def test_a_job_file_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    answer = invoke(capsys, "backfill", "--job-file", JOB, "run", JOB)
    assert (answer.code, "give one of them" in answer.err) == (Exit.USAGE, True)
    assert invoke(capsys, "backfill", "--job-file", JOB, "run").code == Exit.OK
