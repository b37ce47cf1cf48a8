"""What every repository of impact snapshots must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import DuplicateError, NotFoundError, ValidationError
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS
from twinstore.scheduler.enums import SelectorScope
from twinstore.scheduler.impact_snapshots import derived_snapshot_id
from twinstore.scheduler.selectors import LabelFilter, Selector, selector_digest
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import outcomes
from twinstore.testing.builders import (
    at,
    digest_text,
    make_image,
    make_impact_set,
    make_selector,
    rich_impact_set,
)

if TYPE_CHECKING:
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.testing.bench import Bench

__all__ = ["ImpactSnapshotRepositoryContract"]


def stored(bench: Bench, name: str, /, **changes: object) -> ImpactSet:
    """Store a snapshot with an own id and return it."""
    snapshot = bench.snapshot(name, **changes)
    assert bench.storage.impact_snapshots.upsert(bench.tenant, snapshot) == snapshot.snapshot_id
    return snapshot


class ImpactSnapshotRepositoryContract(Contract):
    """Ids, identical content, the latest of a selector, lists, delete and purge."""

    def test_a_snapshot_without_id_gets_the_derived_one_and_stays_without(self, bench: Bench) -> None:
        snapshot = rich_impact_set(bench.tenant)
        snapshots = bench.storage.impact_snapshots
        key = snapshots.upsert(bench.tenant, snapshot, run_id="r-1")
        assert key == derived_snapshot_id(bench.tenant, snapshot, "r-1")
        assert snapshots.get(bench.tenant, key) == snapshot
        assert snapshots.get_required(bench.tenant, f" {key} ") == snapshot
        assert snapshots.upsert(bench.tenant, snapshot) != key

    def test_a_snapshot_keeps_its_own_id(self, bench: Bench) -> None:
        snapshot = rich_impact_set(bench.tenant, snapshot_id=bench.id("a"))
        assert bench.storage.impact_snapshots.upsert(bench.tenant, snapshot) == bench.id("a")
        assert bench.storage.impact_snapshots.get(bench.tenant, bench.id("a")) == snapshot

    @pytest.mark.parametrize("run_id", [None, "r-1"])
    def test_an_own_id_that_equals_the_derived_one_is_no_own_id(
        self, bench: Bench, run_id: str | None
    ) -> None:
        anonymous = rich_impact_set(bench.tenant)
        key = derived_snapshot_id(bench.tenant, anonymous, run_id)
        snapshots = bench.storage.impact_snapshots
        assert snapshots.upsert(bench.tenant, anonymous.evolve(snapshot_id=key), run_id=run_id) == key
        assert snapshots.get(bench.tenant, key) == anonymous
        before = bench.stamp(IMPACT_SNAPSHOTS, (key,))
        assert snapshots.upsert(bench.tenant, anonymous, run_id=run_id) == key
        assert bench.stamp(IMPACT_SNAPSHOTS, (key,)) == before

    def test_an_own_id_may_be_the_derived_id_of_other_content(self, bench: Bench) -> None:
        other = make_impact_set(generated_at=at(77))
        named = rich_impact_set(bench.tenant, snapshot_id=derived_snapshot_id(bench.tenant, other, None))
        key = bench.storage.impact_snapshots.upsert(bench.tenant, named)
        assert bench.storage.impact_snapshots.get(bench.tenant, key) == named

    def test_the_markers_are_those_of_the_write(self, bench: Bench) -> None:
        snapshot = stored(bench, "a")
        row = bench.probe.read(IMPACT_SNAPSHOTS, (bench.id("a"),))
        assert row is not None
        assert dict(row.markers) == {
            "snapshotId": bench.id("a"),
            "tenantId": bench.tenant,
            "selectorDigest": selector_digest(snapshot.selector, bench.tenant),
        }
        bench.storage.impact_snapshots.upsert(bench.tenant, snapshot, run_id=" r-1 ")
        row = bench.probe.read(IMPACT_SNAPSHOTS, (bench.id("a"),))
        assert row is not None
        assert row.markers["runId"] == "r-1"

    def test_identical_content_is_not_written_again(self, bench: Bench) -> None:
        snapshot = bench.snapshot("a")
        for _ in range(3):
            bench.storage.impact_snapshots.upsert(bench.tenant, snapshot, run_id="r-1")
            stamp = bench.stamp(IMPACT_SNAPSHOTS, (bench.id("a"),))
            bench.storage.impact_snapshots.upsert(bench.tenant, snapshot, run_id="r-1")
            assert bench.stamp(IMPACT_SNAPSHOTS, (bench.id("a"),)) == stamp
        assert bench.count(IMPACT_SNAPSHOTS) == 1

    def test_other_content_or_another_run_replaces(self, bench: Bench) -> None:
        snapshots = bench.storage.impact_snapshots
        first = stored(bench, "a")
        second = first.evolve(generated_at=at(5), selector=make_selector(namespaces=("n",)), images=())
        snapshots.upsert(bench.tenant, second)
        assert snapshots.get(bench.tenant, bench.id("a")) == second
        assert snapshots.get_latest_by_selector(bench.tenant, first.selector) is None
        snapshots.upsert(bench.tenant, second, run_id="r-1")
        assert tuple(snapshots.list_by_run(bench.tenant, "r-1")) == (second,)
        snapshots.upsert(bench.tenant, second)
        assert tuple(snapshots.list_by_run(bench.tenant, "r-1")) == ()
        assert bench.count(IMPACT_SNAPSHOTS) == 1

    def test_a_blank_run_is_no_run(self, bench: Bench) -> None:
        snapshot = make_impact_set()
        key = bench.storage.impact_snapshots.upsert(bench.tenant, snapshot, run_id=" ")
        assert key == derived_snapshot_id(bench.tenant, snapshot, None)
        row = bench.probe.read(IMPACT_SNAPSHOTS, (key,))
        assert row is not None
        assert "runId" not in row.markers

    def test_an_unknown_snapshot_is_absent_everywhere(self, bench: Bench) -> None:
        snapshots, missing = bench.storage.impact_snapshots, bench.id("missing")
        assert snapshots.get(bench.tenant, missing) is None
        assert snapshots.delete(bench.tenant, missing) is False
        assert snapshots.get_latest_by_selector(bench.tenant, make_selector()) is None
        assert tuple(snapshots.list(bench.tenant)) == ()
        assert tuple(snapshots.list_by_run(bench.tenant, "r-1")) == ()
        with pytest.raises(NotFoundError) as absence:
            snapshots.get_required(bench.tenant, f" {missing} ")
        assert (absence.value.entity, absence.value.key) == ("impact_snapshots", missing)

    def test_an_id_of_another_tenant_is_taken(self, bench: Bench) -> None:
        snapshot = stored(bench.elsewhere, "a")
        snapshots = bench.storage.impact_snapshots
        for intruder in (snapshot, snapshot.evolve(total=9)):
            with pytest.raises(DuplicateError):
                snapshots.upsert(bench.tenant, intruder)
        assert snapshots.get(bench.foreign, snapshot.snapshot_id or "") == snapshot
        assert bench.count(IMPACT_SNAPSHOTS) == 0

    def test_a_selector_of_another_tenant_is_refused(self, bench: Bench) -> None:
        foreign = make_selector(tenant_id=bench.foreign)
        with pytest.raises(ValidationError):
            bench.storage.impact_snapshots.upsert(bench.tenant, bench.snapshot("a", selector=foreign))
        assert bench.count(IMPACT_SNAPSHOTS) == 0

    def test_the_latest_of_a_selector_is_the_newest(self, bench: Bench) -> None:
        for name, seconds in (("b", 2), ("a", 2), ("c", 1), ("z", 2)):
            stored(bench, name, generated_at=at(seconds))
        stored(bench, "other", generated_at=at(9), selector=make_selector(resolves_tags=True))
        stored(bench.elsewhere, "foreign", generated_at=at(9))
        latest = bench.storage.impact_snapshots.get_latest_by_selector(bench.tenant, make_selector())
        assert latest is not None
        assert latest.snapshot_id == bench.id("a")

    def test_a_selector_is_found_whatever_the_order_and_duplicates_of_its_lists(self, bench: Bench) -> None:
        labels = (LabelFilter(key="B", values=("2", "1")), LabelFilter(key="a"))
        written = Selector(
            scope=SelectorScope.BY_DIGEST,
            digests=(digest_text(2), digest_text(1)),
            namespaces=("b", "a", "b", " a "),
            labels=labels,
        )
        asked = Selector(
            scope=SelectorScope.BY_DIGEST,
            tenant_id=bench.tenant,
            digests=(digest_text(1), digest_text(2), digest_text(1)),
            namespaces=("a", "b", ""),
            labels=labels[::-1],
        )
        snapshot = stored(bench, "a", selector=written)
        assert bench.storage.impact_snapshots.get_latest_by_selector(bench.tenant, asked) == snapshot

    def test_lists_are_the_newest_first_with_ties_by_id(self, bench: Bench) -> None:
        for name, seconds in (("d", 0), ("b", 5), ("a", 5), ("c", 9)):
            snapshot = bench.snapshot(name, generated_at=at(seconds))
            bench.storage.impact_snapshots.upsert(
                bench.tenant, snapshot, run_id="r-1" if name != "c" else None
            )
        everything = [item.snapshot_id for item in bench.storage.impact_snapshots.list(bench.tenant)]
        of_run = [
            item.snapshot_id for item in bench.storage.impact_snapshots.list_by_run(bench.tenant, " r-1 ")
        ]
        assert everything == [bench.id(name) for name in "cabd"]
        assert of_run == [bench.id(name) for name in "abd"]

    def test_delete_removes_once(self, bench: Bench) -> None:
        stored(bench, "a")
        snapshots = bench.storage.impact_snapshots
        assert snapshots.delete(bench.tenant, bench.id("a")) is True
        assert snapshots.delete(bench.tenant, bench.id("a")) is False
        assert snapshots.get(bench.tenant, bench.id("a")) is None
        assert stored(bench, "a") == snapshots.get(bench.tenant, bench.id("a"))

    def test_purge_removes_what_was_generated_up_to_the_instant(self, bench: Bench) -> None:
        for name, seconds in (("before", -0.001), ("exactly", 0), ("after", 0.001)):
            stored(bench, name, generated_at=at(seconds))
        stored(bench.elsewhere, "foreign", generated_at=at(-5))
        snapshots = bench.storage.impact_snapshots
        assert snapshots.purge_generated(at(0), tenant_id=bench.tenant) == 2
        assert [item.snapshot_id for item in snapshots.list(bench.tenant)] == [bench.id("after")]
        assert snapshots.purge_generated(at(0), tenant_id=bench.tenant) == 0
        assert bench.elsewhere.count(IMPACT_SNAPSHOTS) == 1

    @pytest.mark.parametrize("batch_size", [1, 2, 5, 500])
    def test_purge_of_snapshots_goes_on_over_several_batches(self, bench: Bench, batch_size: int) -> None:
        for number in range(5):
            stored(bench, str(number), generated_at=at(-number))
        removed = bench.storage.impact_snapshots.purge_generated(
            at(0), tenant_id=bench.tenant, batch_size=batch_size
        )
        assert (removed, bench.count(IMPACT_SNAPSHOTS)) == (5, 0)

    def test_purge_of_snapshots_without_tenant_sees_all_tenants(self, lone_bench: Bench) -> None:
        for bench in (lone_bench, lone_bench.elsewhere):
            for number in range(3):
                stored(bench, str(number), generated_at=at(-1))
        assert lone_bench.storage.impact_snapshots.purge_generated(at(0), batch_size=4) == 6

    def test_something_that_is_no_snapshot_or_selector_is_refused(self, bench: Bench) -> None:
        snapshots = bench.storage.impact_snapshots
        with pytest.raises(ValidationError, match="snapshot"):
            snapshots.upsert(bench.tenant, bench.run())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test
        with pytest.raises(ValidationError, match="selector"):
            snapshots.get_latest_by_selector(bench.tenant, "all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test
        with pytest.raises(ValidationError, match="run_id"):
            snapshots.list_by_run(bench.tenant, "")

    def test_a_snapshot_of_a_megabyte_comes_back_whole(self, bench: Bench) -> None:
        images = [
            make_image(
                number, tags=tuple(f"tag-{n:03}-\N{GRINNING FACE}" for n in range(30)), labels={"a": "b" * 60}
            )
            for number in range(1600)
        ]
        snapshot = stored(bench, "large", images=images)
        assert bench.storage.impact_snapshots.get(bench.tenant, bench.id("large")) == snapshot

    @needs("transactions")
    def test_rivals_storing_identical_content_all_succeed(self, bench: Bench) -> None:
        snapshot = rich_impact_set(bench.tenant)
        results = bench.race(
            lambda storage, same: storage.impact_snapshots.upsert(bench.tenant, same), [snapshot] * 6
        )
        assert results == [derived_snapshot_id(bench.tenant, snapshot, None)] * 6
        assert bench.count(IMPACT_SNAPSHOTS) == 1

    @needs("transactions")
    def test_rivals_replacing_leave_one_of_their_snapshots(self, bench: Bench) -> None:
        rivals = [bench.snapshot("a", generated_at=at(number)) for number in range(6)]
        results = bench.race(
            lambda storage, rival: storage.impact_snapshots.upsert(bench.tenant, rival), rivals
        )
        assert outcomes(results) == {"ok": 6}
        assert bench.storage.impact_snapshots.get(bench.tenant, bench.id("a")) in rivals
