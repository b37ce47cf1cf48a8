"""What a verification says of a target without a worse verdict: held locks, expired and append-only rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tests.migration_tool.verify.test_verify import change, check_of, entity_of
from tests.support.copies import AS_OF, MemoryPair
from twinstore.models.json_text import format_timestamp
from twinstore.scheduler.catalog import AUDIT, LOCKS, RUNS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.locks import LockInfo
from twinstore.testing.scheduler.builders import make_run
from twinstore_memory.rows import encode, store_unchecked, stored_rows

if TYPE_CHECKING:
    from twinstore_backfill.report.model import ParityReport

pytestmark = pytest.mark.usefixtures("copied")

FAR: Final = datetime(2099, 1, 1, tzinfo=UTC)
MANY: Final = 60


def hold(pair: MemoryPair, name: str, until: datetime) -> LockInfo:
    """Plant a lock with a higher fence in the target; the source has it released."""
    lock = LockInfo(
        lock_key=name, tenant_id="acme", holder_id="pod-7", acquired_at=AS_OF, expires_at=until, fence=9
    )
    store_unchecked(pair.stores[0], encode(LOCKS, lock.evolve(expires_at=AS_OF, fence=1)))
    store_unchecked(pair.stores[1], encode(LOCKS, lock))
    return lock


def warnings_about(report: ParityReport, what: str) -> list[str]:
    return [text for text in report.warnings if what in text]


def test_a_lock_that_is_held_at_rest_is_named_and_not_touched(pair: MemoryPair) -> None:
    soon = pair.target.bulk.now() + timedelta(minutes=20)
    locks = [hold(pair, "nightly", FAR), hold(pair, "hourly", soon)]
    before = stored_rows(pair.stores[1], LOCKS)
    report = pair.verify()
    far, near = warnings_about(report, "the lock ")
    assert far.startswith(
        "the lock 'nightly' of tenant 'acme' is held by 'pod-7' until 2099-01-01T00:00:00+00:00"
    )
    assert "no call leases for so long" in far
    assert near.startswith("the lock 'hourly' of tenant 'acme' is held by 'pod-7' until ")
    assert format_timestamp(soon) in near
    assert (report.verdict, report.cutover_ready) == ("PASS", True)
    for lock in locks:
        key = ("acme", lock.lock_key)
        assert stored_rows(pair.stores[1], LOCKS)[key] == before[key]


def test_a_released_lock_is_not_named(pair: MemoryPair) -> None:
    hold(pair, "nightly", AS_OF)
    assert not warnings_about(pair.verify(), "the lock ")


def expired(pair: MemoryPair, name: str, *, tenant: str = "acme", side: int = 1) -> None:
    old = make_run(tenant, name, state=RunState.CANCELLED, created_at=AS_OF - timedelta(days=200))
    store_unchecked(pair.stores[side], encode(RUNS, old))


def test_expired_rows_of_the_target_are_reported_with_what_the_service_shows(pair: MemoryPair) -> None:
    for side in (0, 1):
        expired(pair, "on-both", side=side)
    expired(pair, "extra")
    # Of another tenant than in the source.
    expired(pair, "moved", side=0)
    expired(pair, "moved", tenant="ghost")
    report = pair.verify()
    assert pair.target.storage.runs.get("acme", "extra") is not None
    assert pair.target.storage.runs.get("ghost", "moved") is not None
    (warning,) = warnings_about(report, "expired")
    assert warning == (
        "expired rows of runs in the target: 3, more than in the source for ghost 1; the service shows them "
        "until `twinstore purge --execute` removes them"
    )
    assert report.verdict == "PASS"


def test_lists_that_one_side_alone_continues_with_expired_rows_are_alike(pair: MemoryPair) -> None:
    for number in range(MANY):
        expired(pair, f"extra-{number:02}")
    report = pair.verify()
    assert (report.verdict, check_of(report, "C5").findings) == ("PASS", ())


@pytest.mark.parametrize("side", [0, 1])
def test_a_row_behind_expired_ones_on_one_side_alone_is_found(pair: MemoryPair, side: int) -> None:
    for number in range(MANY):
        expired(pair, f"extra-{number:02}", side=side)
    older = make_run("acme", "alone", created_at=AS_OF - timedelta(days=300))
    store_unchecked(pair.stores[side], encode(RUNS, older))
    findings = check_of(pair.verify(), "C5").findings
    name = ("source", "target")[side]
    assert any("runs of acme, newest first" in text and f"only the {name} has" in text for text in findings)


def test_the_next_step_says_what_repair_needs_for_append_only_rows(pair: MemoryPair) -> None:
    change(pair.stores[1], RUNS, "acme-run-1", scheduleId="another")
    assert "append-only" not in pair.verify().next_step
    change(pair.stores[1], AUDIT, "acme-audit-0", action="another")
    report = pair.verify()
    assert entity_of(report, "audit").counts.different == 1
    assert "Rows of audit are append-only: `repair` replaces them only while the role" in report.next_step
