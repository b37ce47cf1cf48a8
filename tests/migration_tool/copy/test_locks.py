"""Locks in a copy: copied locks have no holder, fences only grow, and a verification locks separately."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tests.migration_tool.copy.test_pairs import Places, opened, places
from tests.support.copies import Pair, memory_pair
from twinstore.bulk.release import copy_counts
from twinstore.errors import LeaseLostError, UnavailableError
from twinstore.scheduler.catalog import LOCKS, SMOKE_TEST
from twinstore.scheduler.repositories.locks import Locks
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.scheduler.locks import LockHandle, LockInfo
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.report.model import Check, EntityReport, ParityReport

__all__ = ["places"]

NOW: Final = timedelta(0)
MINUTE: Final = timedelta(minutes=1)
KEY: Final = "planner"
INTO_TABLES, INTO_DOCUMENTS = "mongo to postgres", "postgres to mongo"
PAIRS: Final = ("memory to memory", INTO_TABLES, INTO_DOCUMENTS)


@pytest.fixture
def pair(request: pytest.FixtureRequest, places: Places, tmp_path: Path) -> Iterator[Pair]:
    source, _, target = request.param.split()
    with opened("scheduler", places(source), places(target), tmp_path) as found:
        found.target.storage.initializer.ensure_migrations()
        yield found


def between(*bounded: str) -> pytest.MarkDecorator:
    """Run a test in memory and between these; the full form is for the other direction, too."""
    short = ("memory to memory", *bounded)
    pairs = [pytest.param(each, marks=[] if each in short else [pytest.mark.long]) for each in PAIRS]
    return pytest.mark.parametrize("pair", pairs, indirect=True)


def back(pair: Pair, name: str) -> Pair:
    """Return the pair for the reverse migration, with separate files."""
    directory = pair.directory / name
    directory.mkdir()
    return replace(pair, source=pair.target, target=pair.source, directory=directory)


def acquired(storage: SchedulerStorage, key: str = KEY, times: int = 1) -> LockHandle:
    """Acquire a lock again and again; return the last ownership, which is held."""
    for _ in range(times - 1):
        storage.locks.acquire(key, MINUTE).release()
    return storage.locks.acquire(key, MINUTE, lease=MINUTE, metadata={"why": key})


def lock_of(storage: SchedulerStorage, key: str = KEY) -> LockInfo:
    """Return the row of a lock."""
    found = storage.locks.inspect(key)
    assert found is not None
    return found


def locks_in(report: ParityReport) -> EntityReport:
    return next(entity for entity in report.entities if entity.entity == "locks")


def smoke_in(report: ParityReport) -> Check:
    return next(check for check in report.checks if check.id == "C6")


@between()
def test_a_lock_is_copied_as_released_and_its_owner_keeps_it_in_the_source(pair: Pair) -> None:
    with acquired(pair.source.storage, times=3) as held:
        assert pair.copy().totals.all()["written"] == 1
        there = lock_of(pair.target.storage)
        assert (there.fence, there.expires_at, there.metadata) == (3, held.acquired_at, {"why": KEY})
        assert held.renew() > held.acquired_at
        # Renewed since, which does not matter: key and fence are the same.
        report = pair.verify()
        assert (report.verdict, locks_in(report).counts.equal) == ("PASS", 1)
        assert pair.copy().totals.all()["unchanged"] == 1
    with pair.target.storage.locks.acquire(KEY, NOW) as next_one:
        assert next_one.fence == 4


@between(INTO_TABLES)
def test_fences_only_grow_from_store_to_store_and_back(pair: Pair) -> None:
    home = back(pair, "home")
    acquired(pair.source.storage, times=2).release()
    pair.copy()
    with acquired(pair.target.storage, times=3) as owner:
        assert owner.fence == 5
        # The target is ahead, which is right. A copy neither lowers the fence nor takes the lock away.
        assert pair.verify().verdict == "PASS"
        assert pair.copy(on_conflict="overwrite").totals.all()["unchanged"] == 1
        assert owner.is_held()
        assert owner.renew() > owner.acquired_at
        assert lock_of(pair.target.storage).fence == 5
        assert home.verify().verdict == "FAIL"
        assert home.copy(on_conflict="overwrite").totals.all()["written"] == 1
        assert (lock_of(pair.source.storage).fence, home.verify().verdict) == (5, "PASS")
    assert acquired(pair.source.storage).fence == 6


@between(INTO_DOCUMENTS)
def test_a_lower_fence_is_a_difference_a_conflict_and_what_an_overwriting_copy_raises(pair: Pair) -> None:
    late = acquired(pair.target.storage)
    acquired(pair.source.storage, times=7).release()
    report = pair.verify()
    (different,) = locks_in(report).different.shown
    assert (different.key, different.paths) == (("system", KEY), ("doc.fence",))
    assert pair.copy(max_conflicts=5).totals.all()["conflicts"] == 1
    assert late.is_held()
    assert lock_of(pair.target.storage).fence == 1
    raised = replace(pair, directory=pair.directory / "raised")
    raised.directory.mkdir()
    assert raised.copy(on_conflict="overwrite").totals.all()["written"] == 1
    assert (lock_of(pair.target.storage).fence, pair.verify().verdict) == (7, "PASS")
    with pytest.raises(LeaseLostError):
        late.renew()


@between()
def test_a_dry_run_says_what_a_copy_would_do(pair: Pair) -> None:
    acquired(pair.source.storage, times=2).release()
    acquired(pair.source.storage, "ahead").release()
    acquired(pair.source.storage, "absent").release()
    acquired(pair.target.storage).release()
    acquired(pair.target.storage, "ahead", times=2).release()
    for how in ("fail", "overwrite"):
        told = pair.copy(execute=False, max_conflicts=5, on_conflict=how).totals.all()
        assert told == pair.copy(max_conflicts=5, on_conflict=how).totals.all()


@between(INTO_DOCUMENTS)
def test_the_smoke_test_is_separate_from_copy_comparison_and_counts(pair: Pair) -> None:
    acquired(pair.source.storage).release()
    pair.copy()
    first, second = pair.verify(), pair.verify()
    assert [smoke_in(report).result for report in (first, second)] == ["pass", "pass"]
    assert "a source is only read" in smoke_in(first).summary
    tenant, key = SMOKE_TEST
    found = pair.target.storage.locks.inspect(key, tenant_id=tenant)
    assert found is not None
    assert found.fence == 4
    assert pair.source.storage.locks.inspect(key, tenant_id=tenant) is None
    assert copy_counts(pair.target.bulk, LOCKS) == pair.target.bulk.counts(LOCKS) | {"system": 1}
    # Neither is it brought back, nor is it extra there.
    home = back(pair, "home")
    assert home.copy().totals.all()["unchanged"] == 1
    assert home.verify().verdict == "PASS"
    assert sum(pair.source.bulk.counts(LOCKS).values()) == 2


def test_a_target_whose_locks_do_not_exclude_fails_the_smoke_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory_pair(tmp_path) as pair:
        acquired(pair.source.storage).release()
        pair.copy()
        honest = Locks.try_acquire

        def shared(self: Locks, lock_key: str, timeout: timedelta, **_: object) -> LockHandle | None:
            return honest(self, f"{lock_key}{timeout}", timeout)

        monkeypatch.setattr(Locks, "try_acquire", shared)
        report = pair.verify()
        assert (report.verdict, smoke_in(report).result) == ("FAIL", "fail")
        assert smoke_in(report).findings == ("a second attempt got the lock while it was held",)

        def refused(*_: object, **__: object) -> None:
            raise UnavailableError("No connection is left.")

        monkeypatch.setattr(Locks, "try_acquire", refused)
        assert smoke_in(pair.verify()).findings == ("No connection is left.",)


def test_a_row_that_no_service_can_read_is_a_difference_and_keeps_the_higher_fence(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        acquired(pair.source.storage, times=2).release()
        acquired(pair.target.storage, times=9).release()
        row = stored_rows(pair.stores[1], LOCKS)["system", KEY]
        store_unchecked(pair.stores[1], replace(row, document={**row.document, "holderId": " "}))
        report = pair.verify()
        assert (report.verdict, locks_in(report).counts.different) == ("FAIL", 1)
        assert pair.copy(on_conflict="overwrite").totals.all()["written"] == 1
        assert (lock_of(pair.target.storage).fence, pair.verify().verdict) == (9, "PASS")


@pytest.mark.parametrize("form", [{"fence": 9.0}, {"acquiredAt": "2025-10-26T14:05:00+00:00"}])
def test_a_row_in_a_form_that_no_driver_writes_is_a_difference_and_a_conflict(
    tmp_path: Path, form: dict[str, object]
) -> None:
    with memory_pair(tmp_path) as pair:
        acquired(pair.source.storage, times=2).release()
        acquired(pair.target.storage, times=9).release()
        row = stored_rows(pair.stores[1], LOCKS)["system", KEY]
        store_unchecked(pair.stores[1], replace(row, document={**row.document, **form}))
        assert pair.verify().verdict == "FAIL"
        for how, kind in (("fail", "conflicts"), ("overwrite", "written")):
            for execute in (False, True):
                copied = pair.copy(execute=execute, max_conflicts=5, on_conflict=how)
                assert copied.totals.all()[kind] == 1
        assert pair.verify().verdict == "PASS"
        assert lock_of(pair.target.storage).fence == 9
