"""``backfill run``: it stops where a person must decide, and what it prints solves that when it is pasted."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from tests.migration_tool.verify.test_accepted import change
from tests.support.copies import MemoryPair, fill, invoke, memory_pair
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.copies import Answer

DECIDE: Final = 6
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
        (tmp_path / "job.toml").write_text(f'{job}\nreports = "out"\n')
        yield pair


def run(capsys: pytest.CaptureFixture[str], *more: str) -> Answer:
    return invoke(capsys, "backfill", "run", "job.toml", *more)


def commands(answer: Answer) -> list[list[str]]:
    """Return what an answer gives to paste."""
    lines = (line for line in answer.out.splitlines() if line.startswith(PASTED))
    return [shlex.split(line)[1:] for line in lines]


def append(rule: str) -> None:
    """Put a rule from an answer into the job file, as a person fills it in."""
    with open("job.toml", "a") as file:  # noqa: PTH123  # in the current folder
        file.write("\n" + rule.replace('"…"', '"agreed"'))


def rules_in(answer: Answer) -> Iterator[str]:
    """Yield the rules that an answer as JSON gives."""
    for cause in answer.json["decision"]["causes"]:
        assert cause["remedy"].startswith("[["), cause
        yield cause["remedy"]


def put_rules(capsys: pytest.CaptureFixture[str]) -> None:
    for rule in rules_in(run(capsys, "--execute", "--format", "json")):
        append(rule)


def paste(at: int) -> Callable[[pytest.CaptureFixture[str], Answer], None]:
    def act(capsys: pytest.CaptureFixture[str], stopped: Answer) -> None:
        invoke(capsys, *commands(stopped)[at])

    return act


def rules(capsys: pytest.CaptureFixture[str], stopped: Answer) -> None:
    del stopped
    put_rules(capsys)


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
        (text_for_an_instant, "The source has values in another form than a copy writes", rules),
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
    asked = run(capsys, "--execute", "--format", "json")
    assert (asked.code, asked.json["exit_code"], asked.json["decision"]["text"][:20]) == (6, 6, said[:20])
    assert asked.json["next"] == shlex.join(["twinstore", *commands(stopped)[-1], "--format", "json"])
    solve(capsys, stopped)
    ended = invoke(capsys, *commands(stopped)[-1])
    assert (ended.code, "PASS: " in ended.out) == (Exit.OK, True), ended.out + ended.err
