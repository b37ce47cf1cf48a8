"""What rivals may do to each other, tried often enough to meet: twenty rounds, each over fresh rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import TwinstoreError
from twinstore.scheduler.catalog import TRIGGERS
from twinstore.testing.base import Contract, needs
from twinstore.testing.builders import at
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.testing.examples import Example
    from twinstore.testing.workspace import Workspace

__all__ = ["RaceContract"]

RIVALS: Final = 4
# A trigger has no write of its own.
WRITTEN: Final = [item for item in SCHEDULER_EXAMPLES.examples if item.entity is not TRIGGERS]


def names_tenant(entity: Entity) -> bool:
    """Whether the tenant is part of the key, so that tenants have a row each."""
    return entity.tenant_field in entity.key


class RaceContract(Contract):
    """One winner, and nothing lost, in every round."""

    @needs("transactions")
    def test_one_run_of_an_id_is_created_in_every_round(self, workspace: Workspace) -> None:
        rounds = workspace.rounds(
            lambda storage, run: storage.runs.create(run),
            lambda turn: [workspace.run(f"race {turn}", created_at=at(number)) for number in range(RIVALS)],
        )
        for turn, results in enumerate(rounds):
            assert outcomes(results) == {"DuplicateError": RIVALS - 1, "ok": 1}
            assert workspace.storage.runs.get(workspace.tenant, workspace.id(f"race {turn}")) in results

    @needs("transactions")
    def test_one_record_of_an_id_is_appended_in_every_round(self, workspace: Workspace) -> None:
        rounds = workspace.rounds(
            lambda storage, record: storage.audit.append(record),
            lambda turn: [workspace.record(f"race {turn}", message=str(number)) for number in range(RIVALS)],
        )
        for turn, results in enumerate(rounds):
            assert outcomes(results) == {"DuplicateError": RIVALS - 1, "ok": 1}
            assert workspace.storage.audit.get(workspace.tenant, workspace.id(f"race {turn}")) in results

    @needs("transactions")
    @pytest.mark.parametrize("example", WRITTEN, ids=lambda example: example.name)
    def test_of_two_tenants_one_gets_a_new_key_in_every_round(
        self, workspace: Workspace, example: Example[SchedulerSession]
    ) -> None:
        tenants = (workspace.tenant, workspace.foreign)

        def store(storage: SchedulerStorage, rival: tuple[str, CanonicalModel]) -> str:
            tenant, model = rival
            example.store(storage.unbound, tenant, model)
            return tenant

        def rivals(turn: int) -> list[tuple[str, CanonicalModel]]:
            key = workspace.id(f"race {turn}")
            return [(tenant, example.small(tenant, key)) for tenant in tenants * (RIVALS // 2)]

        for turn, results in enumerate(workspace.rounds(store, rivals)):
            winners = {result for result in results if not isinstance(result, TwinstoreError)}
            assert len(winners) == (2 if names_tenant(example.entity) else 1)
            assert set(outcomes(results)) <= {"DuplicateError", "ok"}
            models = dict(rivals(turn))
            for tenant in tenants:
                owner = next(iter(winners)) if example.system_only else tenant
                wanted, model = (models[owner] if owner in winners else None), models[tenant]
                assert example.found(workspace.storage.unbound, tenant, model) == wanted

    @needs("transactions")
    def test_a_schedule_and_its_trigger_stay_in_step_in_every_round(self, workspace: Workspace) -> None:
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
