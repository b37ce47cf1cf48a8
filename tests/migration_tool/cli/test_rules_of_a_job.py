"""The rules of a job file reach a copy, a verification and the comparison of one row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import pytest

from tests.support.copies import fill, invoke, memory_pair
from twinstore.scheduler.catalog import RUNS
from twinstore_backfill.outcome import Exit
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.copies import Answer, MemoryPair

RULES: Final = """
[[map]]
path = "runs.trigger"
values = { by-hand = "manual" }
reason = "words of 2019"
[[date]]
path = "runs.createdAt"
formats = ["%d.%m.%Y %H:%M"]
zone = "Europe/Zurich"
reason = "imported"
[[number]]
path = "runs.stats.queued"
from = "text"
reason = "imported"
[[rename]]
path = "runs.was"
to = "retryOf"
reason = "renamed"
[[drop]]
path = "*.__v"
reason = "left by a mapper"
"""
CHANGED: Final = {"trigger": "by-hand", "createdAt": "02.03.2024 10:15", "was": "another", "__v": 3}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a source in which some runs are stored as another program left them."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        store = pair.stores[0]
        for number in (0, 3):
            row = stored_rows(store, RUNS)[f"acme-run-{number}",]
            stats = {**cast("dict[str, object]", row.document["stats"]), "queued": "7"}
            store_unchecked(store, replace(row, document={**row.document, **CHANGED, "stats": stats}))
        yield pair


@pytest.fixture
def run(pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Return a command under the rules."""
    job = tmp_path / "job.toml"

    def command(name: str, *more: object, rules: str = RULES) -> Answer:
        job.write_text(rules)
        front = ("backfill", "--job-file", job, *name.split())
        return invoke(capsys, *front, *pair.sides, *more, "--format", "json")

    return command


def test_a_copy_under_rules_is_proved(run: Callable[..., Answer], tmp_path: Path) -> None:
    assert run("copy", "--execute", "--out", tmp_path / "out", rules="").json["quarantine"]["count"] == 2
    copied = run("copy", "--execute", "--out", tmp_path / "out")
    assert (copied.code, copied.json["quarantine"]["count"]) == (Exit.OK, 0)
    answer = run("verify")
    assert (answer.code, answer.json["verdict"]) == (Exit.OK, "PASS"), answer.json["reasons"]
    assert [(item["path"], item["rows"]) for item in answer.json["rules"]][:2] == [
        ("runs.trigger", 2),
        ("runs.createdAt", 2),
    ]
    row = ("--entity", "runs", "--key", "acme-run-3")
    assert run("diff", *row).json["verdict"] == "equal"
    # Each rule counts in the verification, too.
    tables = RULES.split("\n[[")
    for number in range(1, len(tables)):
        others = "\n[[".join((*tables[:number], *tables[number + 1 :]))
        assert run("verify", rules=others).json["verdict"] != "PASS", tables[number]
