"""Properties that no model has: dropped only by explicit choice, counted, and ready only with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from tests.support.copies import Answer, MemoryPair, fill, invoke, memory_pair
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.entities import KIT, NOTES, TICKETS
from twinstore_backfill.outcome import Exit
from twinstore_backfill.rules.checking import check_rules
from twinstore_backfill.rules.model import NO_RULES
from twinstore_backfill.rules.reading import with_options
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Run = Callable[..., Answer]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a source in which every third run has what others left."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme", "globex"])
        store = pair.stores[0]
        for number in (0, 3, 6):
            row = stored_rows(store, RUNS)[f"acme-run-{number}",]
            stats = {**cast("dict[str, object]", row.document["stats"]), "old": 7}
            left = {**row.document, "legacy": {"a": [1, None]}, "stats": stats}
            store_unchecked(store, replace(row, document=left))
        yield pair


@pytest.fixture
def run(pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a command on both."""

    def command(name: str, *more: object, job_file: Path | None = None) -> Answer:
        front = () if job_file is None else ("--job-file", job_file)
        out = () if name in {"diff", "plan"} else ("--out", tmp_path / name)
        all_options = (*pair.sides, *out, *more, "--format", "json")
        return invoke(capsys, "backfill", *front, *name.split(), *all_options)

    return command


PATHS = ("--ignore-unknown", "runs.legacy", "--ignore-unknown", "runs.stats.old")


def test_without_a_decision_they_go_to_quarantine(run: Run) -> None:
    assert run("copy", "--execute").json["quarantine"]["count"] == 3
    assert run("verify").json["verdict"] == "INCONCLUSIVE"


def test_they_are_dropped_and_without_a_reason_the_proof_stays_open(run: Run) -> None:
    copied = run("copy", "--execute", *PATHS)
    assert (copied.code, copied.json["quarantine"]["count"]) == (Exit.OK, 0)
    assert copied.json["totals"]["written"] == copied.json["totals"]["read"]
    answer = run("verify", *PATHS)
    assert (answer.code, answer.json["verdict"]) == (Exit.INCONCLUSIVE, "INCONCLUSIVE")
    assert {item["name"]: item["documents"] for item in answer.json["equivalences"]}["ignored"] == 3
    (runs,) = (item for item in answer.json["entities"] if item["entity"] == "runs")
    assert (runs["counts"]["unproved"], runs["counts"]["quarantined"]) == (3, 0)
    assert answer.json["ignored"][0] == {
        "entity": "runs",
        "path": "legacy",
        "kind": "unknown",
        "reason": None,
    }


def test_with_a_reason_in_the_job_file_all_is_equal_and_ready(run: Run, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        '[[ignore-unknown]]\npath = "runs.legacy"\nreason = "left by the old importer"\n'
        '[[ignore-unknown]]\npath = "runs.stats.old"\nreason = "nobody reads it"\n'
    )
    assert run("copy", "--execute", job_file=job).code == Exit.OK
    answer = run("verify", job_file=job)
    assert (answer.code, answer.json["verdict"], answer.json["cutover_ready"]) == (Exit.OK, "PASS", True)
    assert [item["reason"] for item in answer.json["ignored"]] == [
        "left by the old importer",
        "nobody reads it",
    ]
    checks = {item["id"]: item for item in answer.json["checks"]}
    assert "runs of acme, newest first" in checks["C5"]["by_rows"]
    assert "left by the old importer" in (tmp_path / "verify" / "parity-report.md").read_text()


def test_a_rule_that_is_added_belongs_to_the_same_job(run: Run, pair: MemoryPair) -> None:
    stopped = run("copy", "--execute", "--max-quarantine", 0)
    assert stopped.code == Exit.INCONCLUSIVE
    (job,) = pair.target.ledger.jobs()
    # Finished ranges of runs are read again, because they were copied under other rules; others are not.
    finished = {item.number: item.finished_at for item in pair.target.ledger.ranges(job.id)}
    answer = run("copy", "--execute", *PATHS)
    assert (answer.code, answer.json["job"]["id"], answer.json["quarantine"]["count"]) == (Exit.OK, job.id, 0)
    again = {
        item.entity: item.finished_at != finished[item.number] for item in pair.target.ledger.ranges(job.id)
    }
    assert (again["runs"], again["schedules"]) == (True, False)
    assert run("verify", *PATHS).json["entities"][1]["counts"]["missing"] == 0


def test_quarantine_is_released_by_a_rule_without_another_copy(run: Run, pair: MemoryPair) -> None:
    assert run("copy", "--execute").json["quarantine"]["count"] == 3
    answer = run("quarantine retry", "--execute", *PATHS)
    assert (answer.code, answer.json["quarantine"]["count"]) == (Exit.OK, 0)
    assert len(list(pair.target.ledger.jobs())) == 1


def test_one_such_row_is_shown_as_equal(run: Run, tmp_path: Path) -> None:
    assert run("copy", "--execute", *PATHS).code == Exit.OK
    row = ("--entity", "runs", "--key", "acme-run-3")
    assert run("diff", *row).json["verdict"] == "stale"
    assert run("diff", *row, *PATHS).json["verdict"] == "unproved"
    job = tmp_path / "job.toml"
    tables = (f'[[ignore-unknown]]\npath = "{path}"\nreason = "left"\n' for path in PATHS[1::2])
    job.write_text("".join(tables))
    assert run("diff", *row, job_file=job).json["verdict"] == "equal"


def test_other_differences_are_still_found(run: Run, pair: MemoryPair) -> None:
    assert run("copy", "--execute", *PATHS).code == Exit.OK
    row = stored_rows(pair.stores[1], RUNS)["acme-run-3",]
    store_unchecked(pair.stores[1], replace(row, document={**row.document, "scheduleId": "other"}))
    answer = run("verify", *PATHS)
    assert answer.code == Exit.DIFFERENT
    (runs,) = (item for item in answer.json["entities"] if item["entity"] == "runs")
    assert [item["key"] for item in runs["different"]["shown"]] == [["acme-run-3"]]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("runs", "names no property"),
        ("runs.", "is not a path"),
        ("nothing.x", "no entity nothing"),
        ("runs.error", "a property of the model"),
        ("runs.stats", "a property of the model"),
        ("audit.metadata.x", "a property of the model"),
        ("runs.legacy.x", "all of 'legacy' is unknown"),
        ("*", "names no property"),
        ("*.stats.old", "give the entity instead of *"),
        ("*.tenantId", "a property of the model of"),
        ("runs._id", "never drops the id"),
        ("*._id", "never drops the id"),
    ],
)
def test_nothing_that_a_model_keeps_can_be_dropped(path: str, problem: str, run: Run) -> None:
    for name in ("plan", "copy", "verify"):
        answer = run(name, "--ignore-unknown", path)
        assert (answer.code, problem in json.dumps(answer.json)) == (Exit.USAGE, True), answer


def test_an_entity_that_keeps_unknown_properties_has_none_to_drop() -> None:
    with pytest.raises(ValidationError, match=r"tickets keeps unknown properties, in extra"):
        check_rules(with_options(NO_RULES, ["tickets._rev"]), KIT.entities)
    for_all = with_options(NO_RULES, ["*.__v2"])
    check_rules(for_all, KIT.entities)
    assert for_all.dropped(TICKETS) == frozenset()
    assert for_all.dropped(NOTES) == {"__v2"}
