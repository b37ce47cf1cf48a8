"""What every repository of audit records must do, and the service that stamps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.clock import FixedClock
from twinstore.errors import DuplicateError, NotFoundError, ValidationError
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.catalog import AUDIT
from twinstore.scheduler.services import AuditService
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_event, rich_audit_record
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["AuditRepositoryContract", "AuditServiceContract"]


def listed(workspace: SchedulerWorkspace, **options: object) -> list[str]:
    """Return the names of the listed records."""
    chosen = AuditQueryOptions(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # passed on as given
    return [record.id.partition("@")[0] for record in workspace.storage.audit.list(workspace.tenant, chosen)]


class AuditRepositoryContract(SchedulerCases):
    """Append-only: no update, no delete."""

    def test_an_unknown_record_is_absent(self, workspace: SchedulerWorkspace) -> None:
        assert workspace.storage.audit.get(workspace.tenant, workspace.id("missing")) is None
        assert tuple(workspace.storage.audit.list(workspace.tenant)) == ()
        with pytest.raises(NotFoundError) as absence:
            workspace.storage.audit.get_required(workspace.tenant, f" {workspace.id('missing')} ")
        assert (absence.value.entity, absence.value.key) == ("audit", workspace.id("missing"))

    def test_an_identical_record_is_not_written_again(self, workspace: SchedulerWorkspace) -> None:
        record = workspace.storage.audit.append(rich_audit_record(workspace.tenant, workspace.id("a")))
        before = workspace.stamp(AUDIT, (record.id,))
        assert workspace.storage.audit.append(record) == record
        assert workspace.stamp(AUDIT, (record.id,)) == before
        assert workspace.count(AUDIT) == 1

    @pytest.mark.parametrize(
        "change",
        [
            {"message": "other"},
            {"message": None},
            {"metadata": {}},
            {"occurred_at": at(7)},
            {"category": "lock"},
            {"entity_id": None},
        ],
        ids=str,
    )
    def test_other_content_under_the_same_id_is_refused(
        self, workspace: SchedulerWorkspace, change: dict[str, object]
    ) -> None:
        record = workspace.storage.audit.append(rich_audit_record(workspace.tenant, workspace.id("a")))
        with pytest.raises(DuplicateError):
            workspace.storage.audit.append(record.evolve(**change))
        assert workspace.storage.audit.get(workspace.tenant, record.id) == record

    def test_an_id_of_another_tenant_is_taken_even_for_equal_content(
        self, workspace: SchedulerWorkspace
    ) -> None:
        record = workspace.elsewhere.record("a")
        workspace.storage.audit.append(record)
        with pytest.raises(DuplicateError):
            workspace.storage.audit.append(record.evolve(tenant_id=workspace.tenant))
        assert workspace.count(AUDIT) == 0
        assert workspace.storage.audit.get(workspace.foreign, record.id) == record

    def test_filters_combine_and_bounds_are_strict(self, workspace: SchedulerWorkspace) -> None:
        for number in range(5):
            workspace.storage.audit.append(
                workspace.record(
                    str(number),
                    occurred_at=at(number // 2),
                    category="run" if number % 2 else "lock",
                    schedule_id="s-1" if number > 1 else None,
                    run_id="r-1" if number > 2 else None,
                )
            )
        assert listed(workspace) == ["4", "2", "3", "0", "1"]
        assert listed(workspace, category=" RUN ") == ["3", "1"]
        assert listed(workspace, schedule_id="s-1", category="lock") == ["4", "2"]
        assert listed(workspace, run_id="r-1") == ["4", "3"]
        assert listed(workspace, occurred_after=at(0), occurred_before=at(2)) == ["2", "3"]
        assert listed(workspace, category="none") == []

    def test_bounds_of_records_are_compared_to_the_millisecond(self, workspace: SchedulerWorkspace) -> None:
        for number in range(4):
            workspace.storage.audit.append(workspace.record(str(number), occurred_at=at(number / 1000)))
        assert listed(workspace, occurred_after=at(0.001)) == ["3", "2"]
        assert listed(workspace, occurred_before=at(0.002)) == ["1", "0"]
        assert listed(workspace, occurred_after=at(0), occurred_before=at(0.003)) == ["2", "1"]

    @pytest.mark.parametrize("name", ["category", "schedule_id", "run_id"])
    @pytest.mark.parametrize("bad", ["", "  ", "a\x00"])
    def test_an_unacceptable_filter_is_refused(
        self, workspace: SchedulerWorkspace, name: str, bad: str
    ) -> None:
        with pytest.raises(ValidationError, match=name):
            listed(workspace, **{name: bad})

    def test_something_that_is_no_record_is_refused(self, workspace: SchedulerWorkspace) -> None:
        with pytest.raises(ValidationError, match="record"):
            workspace.storage.audit.append(make_audit_event(workspace.tenant))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    @needs("transactions")
    def test_of_concurrent_appends_with_other_content_exactly_one_wins(
        self, workspace: SchedulerWorkspace
    ) -> None:
        competitors = [workspace.record("a", message=str(number)) for number in range(6)]
        results = workspace.race(lambda storage, record: storage.audit.append(record), competitors)
        assert outcomes(results) == {"DuplicateError": 5, "ok": 1}
        assert workspace.storage.audit.get(workspace.tenant, workspace.id("a")) in results

    @needs("transactions")
    def test_concurrent_appends_with_identical_content_all_succeed(
        self, workspace: SchedulerWorkspace
    ) -> None:
        record = workspace.record("a")
        results = workspace.race(lambda storage, same: storage.audit.append(same), [record] * 6)
        assert results == [record] * 6
        assert workspace.count(AUDIT) == 1


class AuditServiceContract(SchedulerCases):
    """Stamps id and instant, merges the host's metadata."""

    def test_an_event_is_stamped_and_stored(self, workspace: SchedulerWorkspace) -> None:
        record = workspace.storage.audit_service.write(make_audit_event(workspace.tenant, message="hello"))
        assert record.id.startswith("audit_")
        assert workspace.storage.audit.get(workspace.tenant, record.id) == record

    def test_the_clock_of_the_storage_stamps_events(self, workspace: SchedulerWorkspace) -> None:
        with workspace.opened_at(at(42)) as storage:
            first, second = (
                storage.audit_service.write(make_audit_event(workspace.tenant)) for _ in range(2)
            )
        assert (first.occurred_at, second.occurred_at) == (at(42), at(42))
        assert first.id != second.id

    def test_own_id_and_instant_are_kept_and_repeating_is_safe(self, workspace: SchedulerWorkspace) -> None:
        event = make_audit_event(workspace.tenant, id=workspace.id("a"), occurred_at=at(3))
        first = workspace.storage.audit_service.write(event)
        assert (first.id, first.occurred_at) == (workspace.id("a"), at(3))
        assert workspace.storage.audit_service.write(event) == first
        with pytest.raises(DuplicateError):
            workspace.storage.audit_service.write(event.evolve(message="other"))

    def test_default_metadata_lies_below_that_of_the_event(self, workspace: SchedulerWorkspace) -> None:
        service = AuditService(workspace.storage.audit, FixedClock(at()), {"Host": "h-1", "zone": "eu"})
        record = service.write(make_audit_event(workspace.tenant, metadata={"ZONE": "us", "Attempt": "1"}))
        assert dict(record.metadata) == {"attempt": "1", "host": "h-1", "zone": "us"}
        assert workspace.storage.audit.get(workspace.tenant, record.id) == record

    def test_something_that_is_no_event_is_refused(self, workspace: SchedulerWorkspace) -> None:
        with pytest.raises(ValidationError, match="event"):
            workspace.storage.audit_service.write(workspace.record())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test
