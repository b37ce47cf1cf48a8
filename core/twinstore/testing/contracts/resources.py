"""What a storage holds of its server: nothing that a call leaves behind, and nothing after its end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import ConfigurationError, DuplicateError, UnsupportedCapabilityError
from twinstore.testing.base import Contract
from twinstore.testing.calls import SYSTEM_CALLS, TENANT_CALLS, furnish

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.bench import Bench

__all__ = ["ResourceContract"]

TIMES: Final = 12
DESCRIPTORS: Final = Path("/dev/fd")


def descriptors() -> int:
    """Return how many files and connections the process has open; 0 where the system does not tell."""
    return len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.exists() else 0


def every_kind_of_call(bench: Bench) -> None:
    """Read, list, write, fail, and open what can be opened."""
    storage, tenant = bench.storage, bench.tenant
    run = storage.runs.create(bench.run().evolve(id=bench.next_id()))
    assert storage.runs.get(tenant, run.id) == run
    storage.runs.list(tenant)
    storage.runs.list_by_state(run.state, limit=1)
    with pytest.raises(DuplicateError):
        storage.runs.create(run)
    with suppress(UnsupportedCapabilityError), storage.sessions.open(tenant) as session:
        session.runs.get(tenant, run.id)
    with suppress(UnsupportedCapabilityError), storage.transaction(tenant) as unit:
        unit.runs.get(tenant, run.id)
    with suppress(UnsupportedCapabilityError, DuplicateError), storage.transaction(tenant) as unit:
        unit.runs.create(run)


class ResourceContract(Contract):
    """Connections, and the end of a storage."""

    def test_no_call_leaves_a_connection_open(self, lone_bench: Bench) -> None:
        every_kind_of_call(lone_bench)
        before = descriptors()
        for _ in range(TIMES):
            every_kind_of_call(lone_bench)
        # One that is opened once more, for a pool or a monitor, is no leak.
        assert descriptors() < before + TIMES

    def test_a_closed_storage_refuses_every_call(self, bench: Bench) -> None:
        household = furnish(bench)
        with bench.storages(1) as (storage,):
            session, handle = storage.unbound, bench.deployment.handle(bench.tenant)
            assert storage.runs.get(bench.tenant, household.run.id) == household.run
        for call in (*TENANT_CALLS, *SYSTEM_CALLS):
            with pytest.raises(ConfigurationError, match="closed"):
                call.invoke(session, bench.tenant, household)
        uses: list[Callable[[SchedulerStorage], object]] = [
            lambda it: it.runs,
            lambda it: it.sessions.open(bench.tenant).__enter__(),
            lambda it: it.transaction(bench.tenant).__enter__(),
            lambda it: it.bind(handle, bench.tenant),
            lambda it: it.capabilities,
            lambda it: it.initializer,
            lambda it: it.bulk,
            lambda it: it.check_ready(),
        ]
        for use in uses:
            with pytest.raises(ConfigurationError, match="closed"):
                use(storage)
        storage.close()
        assert bench.storage.runs.get(bench.tenant, household.run.id) == household.run
