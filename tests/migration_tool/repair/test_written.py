"""An unreadable row of the ledger ends a command that needs it; else a finished range would be lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.copies import fill, memory_pair
from twinstore.access.results import check_written, checked
from twinstore.errors import DocumentDecodeError, ValidationError
from twinstore.ledger.catalog import JOBS, RANGES
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUNS, SCHEDULES
from twinstore.scheduler.impact_snapshots import ImpactSet
from twinstore.scheduler.runs import Run
from twinstore.scheduler.schedules import Schedule
from twinstore.testing.scheduler.builders import make_impact_set, make_run, make_schedule
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key


@pytest.mark.parametrize("entity", [JOBS, RANGES], ids=lambda entity: entity.name)
def test_it_is_never_passed_over(entity: Entity, tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        pair.copy()
        ledger = pair.target.ledger
        (job,) = ledger.jobs()
        row = next(iter(stored_rows(pair.stores[1], entity).values()))
        store_unchecked(pair.stores[1], replace(row, document={**row.document, "state": 5, "fingerprint": 5}))
        with pytest.raises(DocumentDecodeError):
            list(ledger.jobs() if entity is JOBS else ledger.ranges(job.id))


RUN = make_run("acme", "run-1")


def test_the_row_that_was_asked_about_is_returned() -> None:
    assert check_written(RUNS, "acme", ("run-1",), Run, RUN) == RUN


@pytest.mark.parametrize(
    ("tenant", "key", "problem"),
    [
        ("globex", ("run-1",), "tenant_id 'acme' instead of 'globex'"),
        ("acme", ("run-2",), "id 'run-1' instead of 'run-2'"),
    ],
)
def test_another_tenant_or_key_is_named(tenant: str, key: Key, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as refusal:
        check_written(RUNS, tenant, key, Run, RUN)
    assert (refusal.value.entity, refusal.value.key) == ("runs", key[0])


@pytest.mark.parametrize("returned", [None, {}, RUN, "text", make_schedule])
def test_another_type_is_named(returned: object) -> None:
    with pytest.raises(ValidationError, match=f"is a {type(returned).__name__}, not a"):
        check_written(SCHEDULES, "acme", ("run-1",), Schedule, returned)


def test_a_key_that_is_a_storage_marker_stands_in_no_model() -> None:
    snapshot = make_impact_set()
    assert check_written(IMPACT_SNAPSHOTS, "acme", ("any",), ImpactSet, snapshot) == snapshot


def test_nothing_to_write_is_left_alone() -> None:
    rule = checked(lambda _: None, RUNS, "acme", ("run-1",), Run)
    assert rule(RUN) is None
