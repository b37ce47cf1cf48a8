"""What every repository of impact snapshots must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import DuplicateError, NotFoundError, ValidationError
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS
from twinstore.scheduler.enums import SelectorScope
from twinstore.scheduler.impact_snapshots import derived_snapshot_id
from twinstore.scheduler.selectors import LabelFilter, Selector, selector_digest
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scalars import digest_text
from twinstore.testing.scheduler.builders import make_image, make_impact_set, make_selector, rich_impact_set
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["ImpactSnapshotRepositoryContract"]


def stored(workspace: SchedulerWorkspace, name: str, /, **changes: object) -> ImpactSet:
    """Store a snapshot with an own id and return it."""
    snapshot = workspace.snapshot(name, **changes)
    assert workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot) == snapshot.snapshot_id
    return snapshot


class ImpactSnapshotRepositoryContract(SchedulerCases):
    """Ids, identical content, the latest of a selector, lists, delete and purge."""

    def test_a_snapshot_without_id_gets_the_derived_one_and_stays_without(
        self, workspace: SchedulerWorkspace
    ) -> None:
        snapshot = rich_impact_set(workspace.tenant)
        snapshots = workspace.storage.impact_snapshots
        key = snapshots.upsert(workspace.tenant, snapshot, run_id="r-1")
        assert key == derived_snapshot_id(workspace.tenant, snapshot, "r-1")
        assert snapshots.get(workspace.tenant, key) == snapshot
        assert snapshots.get_required(workspace.tenant, f" {key} ") == snapshot
        assert snapshots.upsert(workspace.tenant, snapshot) != key

    def test_a_snapshot_keeps_its_own_id(self, workspace: SchedulerWorkspace) -> None:
        snapshot = rich_impact_set(workspace.tenant, snapshot_id=workspace.id("a"))
        assert workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot) == workspace.id("a")
        assert workspace.storage.impact_snapshots.get(workspace.tenant, workspace.id("a")) == snapshot

    @pytest.mark.parametrize("run_id", [None, "r-1"])
    def test_an_own_id_that_equals_the_derived_one_is_no_own_id(
        self, workspace: SchedulerWorkspace, run_id: str | None
    ) -> None:
        anonymous = rich_impact_set(workspace.tenant)
        key = derived_snapshot_id(workspace.tenant, anonymous, run_id)
        snapshots = workspace.storage.impact_snapshots
        assert snapshots.upsert(workspace.tenant, anonymous.evolve(snapshot_id=key), run_id=run_id) == key
        assert snapshots.get(workspace.tenant, key) == anonymous
        before = workspace.stamp(IMPACT_SNAPSHOTS, (key,))
        assert snapshots.upsert(workspace.tenant, anonymous, run_id=run_id) == key
        assert workspace.stamp(IMPACT_SNAPSHOTS, (key,)) == before

    def test_an_own_id_may_be_the_derived_id_of_other_content(self, workspace: SchedulerWorkspace) -> None:
        other = make_impact_set(generated_at=at(77))
        named = rich_impact_set(
            workspace.tenant, snapshot_id=derived_snapshot_id(workspace.tenant, other, None)
        )
        key = workspace.storage.impact_snapshots.upsert(workspace.tenant, named)
        assert workspace.storage.impact_snapshots.get(workspace.tenant, key) == named

    def test_the_markers_are_those_of_the_write(self, workspace: SchedulerWorkspace) -> None:
        snapshot = stored(workspace, "a")
        row = workspace.probe.read(IMPACT_SNAPSHOTS, (workspace.id("a"),))
        assert row is not None
        assert dict(row.markers) == {
            "snapshotId": workspace.id("a"),
            "tenantId": workspace.tenant,
            "selectorDigest": selector_digest(snapshot.selector, workspace.tenant),
        }
        workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot, run_id=" r-1 ")
        row = workspace.probe.read(IMPACT_SNAPSHOTS, (workspace.id("a"),))
        assert row is not None
        assert row.markers["runId"] == "r-1"

    def test_identical_content_is_not_written_again(self, workspace: SchedulerWorkspace) -> None:
        snapshot = workspace.snapshot("a")
        for _ in range(3):
            workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot, run_id="r-1")
            stamp = workspace.stamp(IMPACT_SNAPSHOTS, (workspace.id("a"),))
            workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot, run_id="r-1")
            assert workspace.stamp(IMPACT_SNAPSHOTS, (workspace.id("a"),)) == stamp
        assert workspace.count(IMPACT_SNAPSHOTS) == 1

    def test_other_content_or_another_run_replaces(self, workspace: SchedulerWorkspace) -> None:
        snapshots = workspace.storage.impact_snapshots
        first = stored(workspace, "a")
        second = first.evolve(generated_at=at(5), selector=make_selector(namespaces=("n",)), images=())
        snapshots.upsert(workspace.tenant, second)
        assert snapshots.get(workspace.tenant, workspace.id("a")) == second
        assert snapshots.get_latest_by_selector(workspace.tenant, first.selector) is None
        snapshots.upsert(workspace.tenant, second, run_id="r-1")
        assert tuple(snapshots.list_by_run(workspace.tenant, "r-1")) == (second,)
        snapshots.upsert(workspace.tenant, second)
        assert tuple(snapshots.list_by_run(workspace.tenant, "r-1")) == ()
        assert workspace.count(IMPACT_SNAPSHOTS) == 1

    def test_a_blank_run_is_no_run(self, workspace: SchedulerWorkspace) -> None:
        snapshot = make_impact_set()
        key = workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot, run_id=" ")
        assert key == derived_snapshot_id(workspace.tenant, snapshot, None)
        row = workspace.probe.read(IMPACT_SNAPSHOTS, (key,))
        assert row is not None
        assert "runId" not in row.markers

    def test_an_unknown_snapshot_is_absent_everywhere(self, workspace: SchedulerWorkspace) -> None:
        snapshots, missing = workspace.storage.impact_snapshots, workspace.id("missing")
        assert snapshots.get(workspace.tenant, missing) is None
        assert snapshots.delete(workspace.tenant, missing) is False
        assert snapshots.get_latest_by_selector(workspace.tenant, make_selector()) is None
        assert tuple(snapshots.list(workspace.tenant)) == ()
        assert tuple(snapshots.list_by_run(workspace.tenant, "r-1")) == ()
        with pytest.raises(NotFoundError) as absence:
            snapshots.get_required(workspace.tenant, f" {missing} ")
        assert (absence.value.entity, absence.value.key) == ("impact_snapshots", missing)

    def test_an_id_of_another_tenant_is_taken(self, workspace: SchedulerWorkspace) -> None:
        snapshot = stored(workspace.elsewhere, "a")
        snapshots = workspace.storage.impact_snapshots
        for intruder in (snapshot, snapshot.evolve(total=9)):
            with pytest.raises(DuplicateError):
                snapshots.upsert(workspace.tenant, intruder)
        assert snapshots.get(workspace.foreign, snapshot.snapshot_id or "") == snapshot
        assert workspace.count(IMPACT_SNAPSHOTS) == 0

    def test_a_selector_of_another_tenant_is_refused(self, workspace: SchedulerWorkspace) -> None:
        foreign = make_selector(tenant_id=workspace.foreign)
        with pytest.raises(ValidationError):
            workspace.storage.impact_snapshots.upsert(
                workspace.tenant, workspace.snapshot("a", selector=foreign)
            )
        assert workspace.count(IMPACT_SNAPSHOTS) == 0

    def test_the_latest_of_a_selector_is_the_newest(self, workspace: SchedulerWorkspace) -> None:
        for name, seconds in (("b", 2), ("a", 2), ("c", 1), ("z", 2)):
            stored(workspace, name, generated_at=at(seconds))
        stored(workspace, "other", generated_at=at(9), selector=make_selector(resolves_tags=True))
        stored(workspace.elsewhere, "foreign", generated_at=at(9))
        latest = workspace.storage.impact_snapshots.get_latest_by_selector(workspace.tenant, make_selector())
        assert latest is not None
        assert latest.snapshot_id == workspace.id("a")

    def test_a_selector_is_found_whatever_the_order_and_duplicates_of_its_lists(
        self, workspace: SchedulerWorkspace
    ) -> None:
        labels = (LabelFilter(key="B", values=("2", "1")), LabelFilter(key="a"))
        written = Selector(
            scope=SelectorScope.BY_DIGEST,
            digests=(digest_text(2), digest_text(1)),
            namespaces=("b", "a", "b", " a "),
            labels=labels,
        )
        wanted_selector = Selector(
            scope=SelectorScope.BY_DIGEST,
            tenant_id=workspace.tenant,
            digests=(digest_text(1), digest_text(2), digest_text(1)),
            namespaces=("a", "b", ""),
            labels=labels[::-1],
        )
        snapshot = stored(workspace, "a", selector=written)
        assert (
            workspace.storage.impact_snapshots.get_latest_by_selector(workspace.tenant, wanted_selector)
            == snapshot
        )

    def test_lists_are_the_newest_first_with_ties_by_id(self, workspace: SchedulerWorkspace) -> None:
        for name, seconds in (("d", 0), ("b", 5), ("a", 5), ("c", 9)):
            snapshot = workspace.snapshot(name, generated_at=at(seconds))
            workspace.storage.impact_snapshots.upsert(
                workspace.tenant, snapshot, run_id="r-1" if name != "c" else None
            )
        everything = [item.snapshot_id for item in workspace.storage.impact_snapshots.list(workspace.tenant)]
        of_run = [
            item.snapshot_id
            for item in workspace.storage.impact_snapshots.list_by_run(workspace.tenant, " r-1 ")
        ]
        assert everything == [workspace.id(name) for name in "cabd"]
        assert of_run == [workspace.id(name) for name in "abd"]

    def test_delete_removes_once(self, workspace: SchedulerWorkspace) -> None:
        stored(workspace, "a")
        snapshots = workspace.storage.impact_snapshots
        assert snapshots.delete(workspace.tenant, workspace.id("a")) is True
        assert snapshots.delete(workspace.tenant, workspace.id("a")) is False
        assert snapshots.get(workspace.tenant, workspace.id("a")) is None
        assert stored(workspace, "a") == snapshots.get(workspace.tenant, workspace.id("a"))

    def test_purge_removes_what_was_generated_up_to_the_instant(self, workspace: SchedulerWorkspace) -> None:
        for name, seconds in (("before", -0.001), ("exactly", 0), ("after", 0.001)):
            stored(workspace, name, generated_at=at(seconds))
        stored(workspace.elsewhere, "foreign", generated_at=at(-5))
        snapshots = workspace.storage.impact_snapshots
        assert snapshots.purge_generated(at(0), tenant_id=workspace.tenant) == 2
        assert [item.snapshot_id for item in snapshots.list(workspace.tenant)] == [workspace.id("after")]
        assert snapshots.purge_generated(at(0), tenant_id=workspace.tenant) == 0
        assert workspace.elsewhere.count(IMPACT_SNAPSHOTS) == 1

    @pytest.mark.parametrize("batch_size", [1, 2, 5, 500])
    def test_purge_of_snapshots_goes_on_over_several_batches(
        self, workspace: SchedulerWorkspace, batch_size: int
    ) -> None:
        for number in range(5):
            stored(workspace, str(number), generated_at=at(-number))
        removed = workspace.storage.impact_snapshots.purge_generated(
            at(0), tenant_id=workspace.tenant, batch_size=batch_size
        )
        assert (removed, workspace.count(IMPACT_SNAPSHOTS)) == (5, 0)

    def test_purge_of_snapshots_without_tenant_sees_all_tenants(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        for workspace in (isolated_workspace, isolated_workspace.elsewhere):
            for number in range(3):
                stored(workspace, str(number), generated_at=at(-1))
        assert isolated_workspace.storage.impact_snapshots.purge_generated(at(0), batch_size=4) == 6

    def test_something_that_is_no_snapshot_or_selector_is_refused(
        self, workspace: SchedulerWorkspace
    ) -> None:
        snapshots = workspace.storage.impact_snapshots
        with pytest.raises(ValidationError, match="snapshot"):
            snapshots.upsert(workspace.tenant, workspace.run())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test
        with pytest.raises(ValidationError, match="selector"):
            snapshots.get_latest_by_selector(workspace.tenant, "all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test
        with pytest.raises(ValidationError, match="run_id"):
            snapshots.list_by_run(workspace.tenant, "")

    def test_a_snapshot_of_a_megabyte_comes_back_whole(self, workspace: SchedulerWorkspace) -> None:
        images = [
            make_image(
                number, tags=tuple(f"tag-{n:03}-\N{GRINNING FACE}" for n in range(30)), labels={"a": "b" * 60}
            )
            for number in range(1600)
        ]
        snapshot = stored(workspace, "large", images=images)
        assert workspace.storage.impact_snapshots.get(workspace.tenant, workspace.id("large")) == snapshot

    @needs("transactions")
    def test_concurrent_upserts_of_identical_content_all_succeed(self, workspace: SchedulerWorkspace) -> None:
        snapshot = rich_impact_set(workspace.tenant)
        results = workspace.race(
            lambda storage, same: storage.impact_snapshots.upsert(workspace.tenant, same), [snapshot] * 6
        )
        assert results == [derived_snapshot_id(workspace.tenant, snapshot, None)] * 6
        assert workspace.count(IMPACT_SNAPSHOTS) == 1

    @needs("transactions")
    def test_concurrent_replacements_leave_one_of_their_snapshots(
        self, workspace: SchedulerWorkspace
    ) -> None:
        competitors = [workspace.snapshot("a", generated_at=at(number)) for number in range(6)]
        results = workspace.race(
            lambda storage, competitor: storage.impact_snapshots.upsert(workspace.tenant, competitor),
            competitors,
        )
        assert outcomes(results) == {"ok": 6}
        assert workspace.storage.impact_snapshots.get(workspace.tenant, workspace.id("a")) in competitors
