"""Two units that read the same rows and write different ones both commit, unless they write a common row."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import ConcurrencyError
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_run, moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

WAIT: Final = 20


def queued(session: SchedulerSession | SchedulerStorage, tenant: str) -> list[str]:
    return [run.id for run in session.runs.list(tenant) if run.state is RunState.QUEUED]


def queue_if_none_is(
    unit: SchedulerSession, tenant: str, name: str, *, common: bool, meanwhile: Callable[[], object]
) -> None:
    """Queue a run in a unit that has seen no queued one; ``common``: write the row that stands for all."""
    if queued(unit, tenant):
        return
    meanwhile()
    if common:
        place = unit.runs.get_required(tenant, f"{tenant}-place")
        stats = place.stats.evolve(candidates=place.stats.candidates + 1)
        unit.runs.update(place.evolve(stats=stats))
    run = unit.runs.get_required(tenant, f"{tenant}-{name}")
    unit.runs.update(moved(run, RunState.QUEUED))


def race(storage: SchedulerStorage, tenant: str, *, common: bool, repeated: bool) -> None:
    """Queue two runs, the second while the first one has looked and not yet written."""
    for name in ("place", "one", "two"):
        storage.runs.create(make_run(tenant, f"{tenant}-{name}"))

    def rival() -> None:
        with storage.transaction(tenant) as unit:
            queue_if_none_is(unit, tenant, "two", common=common, meanwhile=bool)

    with ThreadPoolExecutor(1) as other:

        def meanwhile() -> None:
            other.submit(rival).result(WAIT)

        def first(unit: SchedulerSession) -> None:
            queue_if_none_is(unit, tenant, "one", common=common, meanwhile=meanwhile)

        storage.transact(first, tenant_id=tenant, attempts=None if repeated else 1)


def test_two_units_that_write_different_rows_both_commit(storage: SchedulerStorage, tenant: str) -> None:
    race(storage, tenant, common=False, repeated=False)
    assert sorted(queued(storage, tenant)) == [f"{tenant}-one", f"{tenant}-two"]


@pytest.mark.parametrize("repeated", [False, True])
def test_of_two_units_that_write_a_common_row_the_first_one_wins(
    storage: SchedulerStorage, tenant: str, *, repeated: bool
) -> None:
    if repeated:
        race(storage, tenant, common=True, repeated=True)
    else:
        with pytest.raises(ConcurrencyError):
            race(storage, tenant, common=True, repeated=False)
    assert queued(storage, tenant) == [f"{tenant}-two"]
