"""Every list that has a page token, in one shape, so that the cases of paging are written once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.paging import Page
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.scheduler.triggers import trigger_id
from twinstore.testing.builders import at, moved
from twinstore.testing.scalars import EDGE_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.bench import Bench

__all__ = ["LISTINGS", "SYSTEM_LISTING", "Listing"]

T = TypeVar("T")
TextPage = Page[str]
# Three rows share an instant or a name, so that the id decides.
TIES: Final = 3
CRONS: Final = ("0 0 * * *", "0 * * * *", "30 * * * *")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One list. Rows are known by number; the same number gives the same row on every storage.

    Attributes:
        name: the method.
        add: stores the row of a number.
        label: what identifies the row of a number on a page.
        rank: the place of the row of a number in the order of the list.
        page: asks for one page and returns the labels on it.
        remove: makes the row of a number disappear from the list, where that is possible.
    """

    name: str
    add: Callable[[Bench, int], object]
    label: Callable[[Bench, int], str]
    rank: Callable[[Bench, int], tuple[object, ...]]
    page: Callable[[SchedulerStorage, str, int, str | None], TextPage]
    remove: Callable[[Bench, int], object] | None = None

    def fill(self, bench: Bench, numbers: Iterable[int]) -> None:
        """Store the rows of some numbers."""
        for number in numbers:
            self.add(bench, number)

    def expected(self, bench: Bench, numbers: Iterable[int]) -> list[str]:
        """Return the labels of some numbers in the order of the list."""
        return [
            self.label(bench, number) for number in sorted(numbers, key=lambda item: self.rank(bench, item))
        ]


def key(bench: Bench, number: int) -> str:
    """Return the id of the row of a number; its first characters try the order of text."""
    return f"{EDGE_TEXTS[number % len(EDGE_TEXTS)]}{number:03}@{bench.tenant}"


def labelled(page: Page[T], label: Callable[[T], str | None]) -> TextPage:
    """Return the page with labels for items."""
    return Page(tuple(label(item) or "" for item in page), page.next_page_token)


def schedule_name(number: int) -> str:
    """Return the name of the schedule of a number."""
    return f"{EDGE_TEXTS[-(number % len(EDGE_TEXTS)) - 1]}{number}"


def add_schedule(bench: Bench, number: int) -> None:
    """Store a schedule."""
    schedule = bench.schedule("x", name=schedule_name(number)).evolve(id=key(bench, number))
    bench.storage.schedules.upsert(schedule)


def delete_schedule(bench: Bench, number: int) -> bool:
    """Soft-delete a schedule."""
    return bench.storage.schedules.soft_delete(bench.tenant, key(bench, number), "eve", at(100))


def add_deleted_schedule(bench: Bench, number: int) -> None:
    """Store a schedule that shares its name with others, which only deleted ones may."""
    schedule = bench.schedule("x", name=EDGE_TEXTS[number // TIES]).evolve(id=key(bench, number))
    bench.storage.schedules.upsert(schedule)
    delete_schedule(bench, number)


def schedules_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for schedules that are not deleted."""
    options = ScheduleQueryOptions(limit=limit, page_token=token)
    return labelled(storage.schedules.list(tenant, options), lambda item: item.id)


def deleted_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for all schedules."""
    options = ScheduleQueryOptions(include_deleted=True, limit=limit, page_token=token)
    return labelled(storage.schedules.list(tenant, options), lambda item: item.id)


def add_trigger(bench: Bench, number: int) -> None:
    """Store a schedule with its trigger; every third one has no next instant."""
    schedule = bench.schedule(
        "x", name=str(number), enabled=bool(number % TIES), when_cron=CRONS[number % TIES]
    )
    bench.storage.schedules.upsert(schedule.evolve(id=key(bench, number)))


def trigger_rank(bench: Bench, number: int) -> tuple[object, ...]:
    """Return the place of a trigger: no instant, 14:30 or rather the next half hour, the next hour."""
    order = {0: 0, 2: 1, 1: 2}
    return (order[number % TIES], trigger_id(bench.tenant, key(bench, number)))


def triggers_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for triggers."""
    return labelled(
        storage.triggers.list(tenant, limit=limit, page_token=token), lambda item: item.schedule_id
    )


def add_run(bench: Bench, number: int) -> None:
    """Store a queued run of a schedule."""
    run = bench.run("x", state=RunState.QUEUED, created_at=at(number // TIES), schedule_id="s-1")
    bench.storage.runs.create(run.evolve(id=key(bench, number)))


def purge_run(bench: Bench, number: int) -> int:
    """Finish a run and purge it."""
    run = bench.storage.runs.get_required(bench.tenant, key(bench, number))
    bench.storage.runs.update(moved(run, RunState.CANCELLED))
    return bench.storage.runs.purge_finished(at(10_000), tenant_id=bench.tenant)


def newest(bench: Bench, number: int) -> tuple[object, ...]:
    """Return the place of a row in an order of falling instants."""
    return (-(number // TIES), key(bench, number))


def oldest(bench: Bench, number: int) -> tuple[object, ...]:
    """Return the place of a row in an order of rising instants."""
    return (number // TIES, key(bench, number))


def runs_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for the newest runs."""
    return labelled(
        storage.runs.list(tenant, RunQueryOptions(limit=limit, page_token=token)), lambda item: item.id
    )


def filtered_runs_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for the oldest runs through every filter."""
    options = RunQueryOptions(
        schedule_id="s-1",
        states=(RunState.QUEUED, RunState.ERROR),
        created_after=at(-1),
        created_before=at(1000),
        ascending=True,
        limit=limit,
        page_token=token,
    )
    return labelled(storage.runs.list(tenant, options), lambda item: item.id)


def pending_runs_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for the runs that wait."""
    page = storage.runs.get_pending_runs(tenant, limit=limit, page_token=token)
    return labelled(page, lambda item: item.id)


def runs_of_schedule_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for the newest runs of a schedule."""
    page = storage.runs.get_runs_by_schedule(tenant, "s-1", limit, page_token=token)
    return labelled(page, lambda item: item.id)


def runs_in_state_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for the runs of all tenants."""
    del tenant
    page = storage.runs.list_by_state(RunState.QUEUED, limit=limit, page_token=token)
    return labelled(page, lambda item: item.id)


def add_snapshot(bench: Bench, number: int) -> None:
    """Store a snapshot of a run."""
    snapshot = bench.snapshot("x", generated_at=at(number // TIES), snapshot_id=key(bench, number))
    bench.storage.impact_snapshots.upsert(bench.tenant, snapshot, run_id="r-1")


def delete_snapshot(bench: Bench, number: int) -> bool:
    """Delete a snapshot."""
    return bench.storage.impact_snapshots.delete(bench.tenant, key(bench, number))


def snapshots_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for snapshots."""
    page = storage.impact_snapshots.list(tenant, limit=limit, page_token=token)
    return labelled(page, lambda item: item.snapshot_id)


def snapshots_of_run_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for the snapshots of a run."""
    page = storage.impact_snapshots.list_by_run(tenant, "r-1", limit=limit, page_token=token)
    return labelled(page, lambda item: item.snapshot_id)


def add_record(bench: Bench, number: int) -> None:
    """Store an audit record."""
    record = bench.record(
        "x", occurred_at=at(number // TIES), category="run", schedule_id="s-1", run_id="r-1"
    )
    bench.storage.audit.append(record.evolve(id=key(bench, number)))


def audit_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for audit records through every filter."""
    options = AuditQueryOptions(
        category="run",
        schedule_id="s-1",
        run_id="r-1",
        occurred_after=at(-1),
        occurred_before=at(1000),
        limit=limit,
        page_token=token,
    )
    return labelled(storage.audit.list(tenant, options), lambda item: item.id)


def add_summary(bench: Bench, number: int) -> None:
    """Store a run summary."""
    bench.storage.run_summaries.upsert(bench.summary("x").evolve(schedule_id=key(bench, number)))


def summaries_page(storage: SchedulerStorage, tenant: str, limit: int, token: str | None) -> TextPage:
    """Ask for run summaries."""
    page = storage.run_summary_service.list(tenant, limit=limit, page_token=token)
    return labelled(page, lambda item: item.schedule_id)


LISTINGS: Final = (
    Listing(
        name="schedules.list",
        add=add_schedule,
        label=key,
        rank=lambda bench, number: (schedule_name(number), key(bench, number)),
        page=schedules_page,
        remove=delete_schedule,
    ),
    Listing(
        name="schedules.list deleted",
        add=add_deleted_schedule,
        label=key,
        rank=lambda bench, number: (EDGE_TEXTS[number // TIES], key(bench, number)),
        page=deleted_page,
    ),
    Listing(name="triggers.list", add=add_trigger, label=key, rank=trigger_rank, page=triggers_page),
    Listing(name="runs.list", add=add_run, label=key, rank=newest, page=runs_page, remove=purge_run),
    Listing(name="runs.list filtered", add=add_run, label=key, rank=oldest, page=filtered_runs_page),
    Listing(
        name="runs.get_pending_runs",
        add=add_run,
        label=key,
        rank=oldest,
        page=pending_runs_page,
        remove=purge_run,
    ),
    Listing(
        name="runs.get_runs_by_schedule",
        add=add_run,
        label=key,
        rank=newest,
        page=runs_of_schedule_page,
        remove=purge_run,
    ),
    Listing(
        name="impact_snapshots.list",
        add=add_snapshot,
        label=key,
        rank=newest,
        page=snapshots_page,
        remove=delete_snapshot,
    ),
    Listing(
        name="impact_snapshots.list_by_run",
        add=add_snapshot,
        label=key,
        rank=newest,
        page=snapshots_of_run_page,
        remove=delete_snapshot,
    ),
    Listing(name="audit.list", add=add_record, label=key, rank=newest, page=audit_page),
    Listing(
        name="run_summaries.list",
        add=add_summary,
        label=key,
        rank=lambda bench, number: (key(bench, number),),
        page=summaries_page,
    ),
)
SYSTEM_LISTING: Final = Listing(
    name="runs.list_by_state",
    add=add_run,
    label=key,
    rank=oldest,
    page=runs_in_state_page,
    remove=purge_run,
)
