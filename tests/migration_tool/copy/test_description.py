"""A job that describes itself: what another process makes of it, and what it refuses to copy."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.migration_tool.copy.test_rules import job
from tests.support.copies import AS_OF, MemoryPair, fill, memory_pair
from twinstore.ledger import JobState, Ledger
from twinstore.ledger.catalog import JOBS
from twinstore.ledger.rows import change_model
from twinstore.scheduler.catalog import RUNS, SCHEDULES, TRIGGERS
from twinstore_backfill.alike import digest_of
from twinstore_backfill.copy import description
from twinstore_backfill.copy.description import DIFFERENCES, options_of
from twinstore_backfill.copy.options import DESCRIBED
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.rules.model import DropRule
from twinstore_backfill.subset import Subset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.ledger import CopyJob, Lease


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        yield pair


def only_job(pair: MemoryPair) -> CopyJob:
    (found,) = pair.target.ledger.jobs()
    return found


def test_a_worker_gets_the_options_of_the_command(pair: MemoryPair) -> None:
    rules = job((DropRule, "runs.legacy", {}))
    given: dict[str, Any] = {
        "entities": ("runs",),
        "tenants": ("acme",),
        "rules": rules,
        "subset": Subset(key_from=("acme-run-1",), since=AS_OF - timedelta(days=900)),
        "on_conflict": "overwrite",
        "max_conflicts": 7,
        "max_quarantine": 8,
        "range_size": 9,
        "batch_size": 10,
        "lease": timedelta(seconds=11),
        "max_rate": 12_000.0,
    }
    pair.copy(**given)
    found = options_of(only_job(pair), pair.source, pair.target)
    del given["rules"]
    assert {name: getattr(found, name) for name in given} == {**given, "entities": ["runs"]}
    assert (found.as_of, found.execute) == (AS_OF, True)
    assert [rule.document() for rule in found.rules] == [rule.document() for rule in rules]


def test_whatever_decides_what_is_written_must_be_alike(
    pair: MemoryPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.copy()
    stored = only_job(pair)
    for name, text in DIFFERENCES.items():
        document = {**json.loads(stored.settings[DESCRIBED]), name: "another"}
        other = stored.evolve(settings={**stored.settings, DESCRIBED: json.dumps(document)})
        with pytest.raises(PreflightError, match=text.partition("{")[0].partition(";")[0]):
            options_of(other, pair.source, pair.target)
    with memory_pair(tmp_path / "elsewhere") as elsewhere:
        for sides, side in (
            ((elsewhere.source, pair.target), "source"),
            ((pair.source, elsewhere.target), "target"),
        ):
            with pytest.raises(PreflightError, match=f"its {side} is another store"):
                options_of(stored, *sides)
    monkeypatch.setattr(description, "functions_in", lambda rules: {str(id(rules))})
    with pytest.raises(PreflightError, match="functions of its module are others"):
        options_of(stored, pair.source, pair.target)


def test_a_description_counts_wherever_it_decides_what_is_copied() -> None:
    assert digest_of([RUNS]) == digest_of([replace(RUNS)])
    others = [replace(RUNS, append_only=True), replace(RUNS, collection="other"), SCHEDULES, TRIGGERS]
    assert len({digest_of([item]) for item in (RUNS, *others)}) == 1 + len(others)


def test_a_copy_that_an_earlier_release_has_begun_is_finished_by_that_release(pair: MemoryPair) -> None:
    pair.copy()
    complete, access = only_job(pair), pair.target.bulk.access()
    settings = {name: text for name, text in complete.settings.items() if name != DESCRIBED}
    begun = complete.evolve(cut=(), state=JobState.RUNNING, settings=settings)
    change_model(access, JOBS, (begun.id,), lambda *_: begun)
    for retry in (False, True):
        with pytest.raises(PreflightError, match="Install that release again and run the same command"):
            pair.copy(retry_quarantine=retry)
    assert only_job(pair).evolve(fence=0, holder=None, expires_at=None) == begun.evolve(
        fence=0, holder=None, expires_at=None
    )
    change_model(access, JOBS, (begun.id,), lambda *_: begun.evolve(state=JobState.COMPLETE))
    assert pair.copy().complete


plan = Ledger.plan


def plan_without_mark(ledger: Ledger, lease: Lease, *given: Any, **more: Any) -> None:  # noqa: ANN401  # as it is called
    """Plan an entity, and be stopped before that is noted."""
    plan(ledger, lease, *given, **more)
    change_model(ledger._access, JOBS, (lease.job_id,), lambda job, _: job and job.evolve(cut=()))  # noqa: SLF001  # what is left
    raise KeyboardInterrupt


def test_a_copy_that_was_stopped_while_it_planned_its_first_entity_goes_on(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "plan", plan_without_mark)
        with pytest.raises(KeyboardInterrupt):
            pair.copy()
    begun = only_job(pair)
    assert (begun.is_unmarked, begun.state) == (True, JobState.RUNNING)
    assert pair.copy().complete
