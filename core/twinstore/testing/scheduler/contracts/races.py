"""What rivals for rows of the scheduler may do to each other: twenty rounds, each over fresh rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["SchedulerRaceContract"]

RIVALS: Final = 4


class SchedulerRaceContract(SchedulerCases):
    """One run, one record, and a trigger in step with its schedule, in every round."""

    @needs("transactions")
    def test_one_run_of_an_id_is_created_in_every_round(self, workspace: SchedulerWorkspace) -> None:
        rounds = workspace.rounds(
            lambda storage, run: storage.runs.create(run),
            lambda turn: [workspace.run(f"race {turn}", created_at=at(number)) for number in range(RIVALS)],
        )
        for turn, results in enumerate(rounds):
            assert outcomes(results) == {"DuplicateError": RIVALS - 1, "ok": 1}
            assert workspace.storage.runs.get(workspace.tenant, workspace.id(f"race {turn}")) in results

    @needs("transactions")
    def test_one_record_of_an_id_is_appended_in_every_round(self, workspace: SchedulerWorkspace) -> None:
        rounds = workspace.rounds(
            lambda storage, record: storage.audit.append(record),
            lambda turn: [workspace.record(f"race {turn}", message=str(number)) for number in range(RIVALS)],
        )
        for turn, results in enumerate(rounds):
            assert outcomes(results) == {"DuplicateError": RIVALS - 1, "ok": 1}
            assert workspace.storage.audit.get(workspace.tenant, workspace.id(f"race {turn}")) in results

    @needs("transactions")
    def test_a_schedule_and_its_trigger_stay_in_step_in_every_round(
        self, workspace: SchedulerWorkspace
    ) -> None:
        def act(storage: SchedulerStorage, rival: tuple[str, Schedule]) -> object:
            kind, schedule = rival
            if kind == "change":
                return storage.schedules.upsert(schedule)
            return storage.triggers.recalculate(workspace.tenant, schedule.id, at(2))

        def rivals(turn: int) -> list[tuple[str, Schedule]]:
            schedule = workspace.storage.schedules.upsert(workspace.schedule(f"race {turn}"))
            changed = schedule.evolve(when_cron="*/5 * * * *", updated_at=at(1))
            return [("change", changed), *[("recalculate", schedule)] * (RIVALS - 1)]

        for turn, results in enumerate(workspace.rounds(act, rivals)):
            assert outcomes(results) == {"ok": RIVALS}
            trigger = workspace.storage.triggers.get_required(workspace.tenant, workspace.id(f"race {turn}"))
            assert trigger.when_cron == "*/5 * * * *"
