"""What every repository of audit records must do, and the service that stamps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.clock import FixedClock
from twinstore.errors import DuplicateError, NotFoundError, ValidationError
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.catalog import AUDIT
from twinstore.scheduler.services import AuditService
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import outcomes
from twinstore.testing.builders import at, make_audit_event, rich_audit_record

if TYPE_CHECKING:
    from twinstore.testing.bench import Bench

__all__ = ["AuditRepositoryContract", "AuditServiceContract"]


def listed(bench: Bench, **options: object) -> list[str]:
    """Return the names of the listed records."""
    chosen = AuditQueryOptions(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # passed on as given
    return [record.id.partition("@")[0] for record in bench.storage.audit.list(bench.tenant, chosen)]


class AuditRepositoryContract(Contract):
    """Append-only: no update, no delete."""

    def test_an_unknown_record_is_absent(self, bench: Bench) -> None:
        assert bench.storage.audit.get(bench.tenant, bench.id("missing")) is None
        assert tuple(bench.storage.audit.list(bench.tenant)) == ()
        with pytest.raises(NotFoundError) as absence:
            bench.storage.audit.get_required(bench.tenant, f" {bench.id('missing')} ")
        assert (absence.value.entity, absence.value.key) == ("audit", bench.id("missing"))

    def test_an_identical_record_is_not_written_again(self, bench: Bench) -> None:
        record = bench.storage.audit.append(rich_audit_record(bench.tenant, bench.id("a")))
        before = bench.stamp(AUDIT, (record.id,))
        assert bench.storage.audit.append(record) == record
        assert bench.stamp(AUDIT, (record.id,)) == before
        assert bench.count(AUDIT) == 1

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
        self, bench: Bench, change: dict[str, object]
    ) -> None:
        record = bench.storage.audit.append(rich_audit_record(bench.tenant, bench.id("a")))
        with pytest.raises(DuplicateError):
            bench.storage.audit.append(record.evolve(**change))
        assert bench.storage.audit.get(bench.tenant, record.id) == record

    def test_an_id_of_another_tenant_is_taken_even_for_equal_content(self, bench: Bench) -> None:
        record = bench.elsewhere.record("a")
        bench.storage.audit.append(record)
        with pytest.raises(DuplicateError):
            bench.storage.audit.append(record.evolve(tenant_id=bench.tenant))
        assert bench.count(AUDIT) == 0
        assert bench.storage.audit.get(bench.foreign, record.id) == record

    def test_filters_combine_and_bounds_are_strict(self, bench: Bench) -> None:
        for number in range(5):
            bench.storage.audit.append(
                bench.record(
                    str(number),
                    occurred_at=at(number // 2),
                    category="run" if number % 2 else "lock",
                    schedule_id="s-1" if number > 1 else None,
                    run_id="r-1" if number > 2 else None,
                )
            )
        assert listed(bench) == ["4", "2", "3", "0", "1"]
        assert listed(bench, category=" RUN ") == ["3", "1"]
        assert listed(bench, schedule_id="s-1", category="lock") == ["4", "2"]
        assert listed(bench, run_id="r-1") == ["4", "3"]
        assert listed(bench, occurred_after=at(0), occurred_before=at(2)) == ["2", "3"]
        assert listed(bench, category="none") == []

    def test_bounds_of_records_are_compared_to_the_millisecond(self, bench: Bench) -> None:
        for number in range(4):
            bench.storage.audit.append(bench.record(str(number), occurred_at=at(number / 1000)))
        assert listed(bench, occurred_after=at(0.001)) == ["3", "2"]
        assert listed(bench, occurred_before=at(0.002)) == ["1", "0"]
        assert listed(bench, occurred_after=at(0), occurred_before=at(0.003)) == ["2", "1"]

    @pytest.mark.parametrize("name", ["category", "schedule_id", "run_id"])
    @pytest.mark.parametrize("bad", ["", "  ", "a\x00"])
    def test_an_unacceptable_filter_is_refused(self, bench: Bench, name: str, bad: str) -> None:
        with pytest.raises(ValidationError, match=name):
            listed(bench, **{name: bad})

    def test_something_that_is_no_record_is_refused(self, bench: Bench) -> None:
        with pytest.raises(ValidationError, match="record"):
            bench.storage.audit.append(make_audit_event(bench.tenant))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    @needs("transactions")
    def test_of_rivals_with_other_content_exactly_one_wins(self, bench: Bench) -> None:
        rivals = [bench.record("a", message=str(number)) for number in range(6)]
        results = bench.race(lambda storage, record: storage.audit.append(record), rivals)
        assert outcomes(results) == {"DuplicateError": 5, "ok": 1}
        assert bench.storage.audit.get(bench.tenant, bench.id("a")) in results

    @needs("transactions")
    def test_rivals_with_identical_content_all_succeed(self, bench: Bench) -> None:
        record = bench.record("a")
        results = bench.race(lambda storage, same: storage.audit.append(same), [record] * 6)
        assert results == [record] * 6
        assert bench.count(AUDIT) == 1


class AuditServiceContract(Contract):
    """Stamps id and instant, merges the host's metadata."""

    def test_an_event_is_stamped_and_stored(self, bench: Bench) -> None:
        record = bench.storage.audit_service.write(make_audit_event(bench.tenant, message="hello"))
        assert record.id.startswith("audit_")
        assert bench.storage.audit.get(bench.tenant, record.id) == record

    def test_the_clock_of_the_storage_stamps_events(self, bench: Bench) -> None:
        with bench.deployment.open(clock=FixedClock(at(42))) as storage:
            first, second = (storage.audit_service.write(make_audit_event(bench.tenant)) for _ in range(2))
        assert (first.occurred_at, second.occurred_at) == (at(42), at(42))
        assert first.id != second.id

    def test_own_id_and_instant_are_kept_and_repeating_is_safe(self, bench: Bench) -> None:
        event = make_audit_event(bench.tenant, id=bench.id("a"), occurred_at=at(3))
        first = bench.storage.audit_service.write(event)
        assert (first.id, first.occurred_at) == (bench.id("a"), at(3))
        assert bench.storage.audit_service.write(event) == first
        with pytest.raises(DuplicateError):
            bench.storage.audit_service.write(event.evolve(message="other"))

    def test_default_metadata_lies_below_that_of_the_event(self, bench: Bench) -> None:
        service = AuditService(bench.storage.audit, FixedClock(at()), {"Host": "h-1", "zone": "eu"})
        record = service.write(make_audit_event(bench.tenant, metadata={"ZONE": "us", "Attempt": "1"}))
        assert dict(record.metadata) == {"attempt": "1", "host": "h-1", "zone": "us"}
        assert bench.storage.audit.get(bench.tenant, record.id) == record

    def test_something_that_is_no_event_is_refused(self, bench: Bench) -> None:
        with pytest.raises(ValidationError, match="event"):
            bench.storage.audit_service.write(bench.record())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test
