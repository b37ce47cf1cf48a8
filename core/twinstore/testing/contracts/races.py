"""What rivals may do to each other, tried often enough to meet: twenty rounds, each over fresh rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import TwinstoreError
from twinstore.scheduler.catalog import TRIGGERS
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import outcomes
from twinstore.testing.builders import at
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.scheduler.audit import AuditRecord
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.testing.bench import Bench
    from twinstore.testing.examples import Example

__all__ = ["RaceContract"]

RIVALS: Final = range(4)
# A trigger has no write of its own.
WRITTEN: Final = [item for item in SCHEDULER_EXAMPLES.examples if item.entity is not TRIGGERS]


def names_tenant(entity: Entity) -> bool:
    """Whether the tenant is part of the key, so that tenants have a row each."""
    return entity.tenant_field in entity.key


class RaceContract(Contract):
    """One winner, and nothing lost, in every round."""

    @needs("transactions")
    def test_one_run_of_an_id_is_created_in_every_round(self, bench: Bench) -> None:
        def create(storage: SchedulerStorage, turn: int, number: int) -> Run:
            return storage.runs.create(bench.run(f"race {turn}", created_at=at(number)))

        for turn, results in enumerate(bench.rounds(create, RIVALS)):
            assert outcomes(results) == {"DuplicateError": 3, "ok": 1}
            assert bench.storage.runs.get(bench.tenant, bench.id(f"race {turn}")) in results

    @needs("transactions")
    def test_one_record_of_an_id_is_appended_in_every_round(self, bench: Bench) -> None:
        def append(storage: SchedulerStorage, turn: int, number: int) -> AuditRecord:
            return storage.audit.append(bench.record(f"race {turn}", message=str(number)))

        for turn, results in enumerate(bench.rounds(append, RIVALS)):
            assert outcomes(results) == {"DuplicateError": 3, "ok": 1}
            assert bench.storage.audit.get(bench.tenant, bench.id(f"race {turn}")) in results

    @needs("transactions")
    @pytest.mark.parametrize("example", WRITTEN, ids=lambda example: example.name)
    def test_of_two_tenants_one_gets_a_new_key_in_every_round(
        self, bench: Bench, example: Example[SchedulerSession]
    ) -> None:
        tenants = (bench.tenant, bench.foreign)

        def store(storage: SchedulerStorage, turn: int, tenant: str) -> str:
            example.store(storage.unbound, tenant, example.small(tenant, bench.id(f"race {turn}")))
            return tenant

        for turn, results in enumerate(bench.rounds(store, tenants)):
            winners = [result for result in results if not isinstance(result, TwinstoreError)]
            both = names_tenant(example.entity)
            assert outcomes(results) == ({"ok": 2} if both else {"DuplicateError": 1, "ok": 1})
            for tenant in tenants:
                model = example.small(tenant, bench.id(f"race {turn}"))
                wanted = model if tenant in winners else None
                assert example.found(bench.storage.unbound, tenant, model) == wanted

    @needs("transactions")
    def test_a_schedule_and_its_trigger_stay_in_step_in_every_round(self, bench: Bench) -> None:
        def act(storage: SchedulerStorage, turn: int, changes: bool) -> object:  # noqa: FBT001  # drawn from a list
            schedule = bench.schedule(f"race {turn}")
            if changes:
                changed = schedule.evolve(when_cron="*/5 * * * *", updated_at=at(1))
                return storage.schedules.upsert(changed)
            return storage.triggers.recalculate(bench.tenant, schedule.id, at(2))

        for turn in range(20):
            bench.storage.schedules.upsert(bench.schedule(f"race {turn}"))
        for turn, results in enumerate(bench.rounds(act, (True, False))):
            assert outcomes(results) == {"ok": 2}
            trigger = bench.storage.triggers.get_required(bench.tenant, bench.id(f"race {turn}"))
            assert trigger.when_cron == "*/5 * * * *"
