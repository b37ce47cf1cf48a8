"""The machine is worth nothing unless it finds a driver that is wrong in one small point."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.differential.machine import DivergenceError, run_machine
from tests.differential.sides import memory_side
from twinstore.clock import FixedClock
from twinstore.scope import instant_argument
from twinstore.testing.builders import at
from twinstore_memory.backend import MemoryBackend, MemoryRepositories
from twinstore_memory.repository import Single
from twinstore_memory.scheduler.audit import MemoryAuditRepository
from twinstore_memory.scheduler.run_summaries import MemoryRunSummaryRepository
from twinstore_memory.scheduler.runs import MemoryRunRepository
from twinstore_memory.scheduler.schedules import MemoryScheduleRepository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from twinstore.catalog import Entity
    from twinstore.query import Query
    from twinstore.scheduler.audit import AuditRecord
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scope import Scope
    from twinstore_memory.repository import Link
    from twinstore_memory.rows import Row

# No shrinking: whether the mistake is found is the question, not how short its report is.
SEARCH = hypothesis.settings(
    max_examples=200,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
        hypothesis.HealthCheck.large_base_example,
    ],
    report_multiple_bugs=False,
)


class SortsTiesBackwards(MemoryBackend):
    """Sorts runs of the same instant by descending id."""

    class Runs(MemoryRunRepository):
        def _select(self, entity: Entity, query: Query) -> list[Row]:
            *others, last = query.order
            return super()._select(entity, replace(query, order=(*others, replace(last, descending=True))))

    def _over(self, link: Link, scope: Scope) -> MemoryRepositories:
        return replace(super()._over(link, scope), runs=self.Runs(link, scope))


class PurgesTooLittle(MemoryBackend):
    """Spares what finished exactly at the bound."""

    class Runs(MemoryRunRepository):
        def _purge_before(self, entity: Entity, tenant: str | None, before: datetime, batch_size: int) -> int:
            instant = instant_argument(before, "before")
            return super()._purge_before(entity, tenant, instant - timedelta(milliseconds=1), batch_size)

    def _over(self, link: Link, scope: Scope) -> MemoryRepositories:
        return replace(super()._over(link, scope), runs=self.Runs(link, scope))


class ShowsDeletedSchedules(MemoryBackend):
    """Returns soft-deleted schedules to a caller who did not ask for them."""

    class Schedules(MemoryScheduleRepository):
        def get(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule | None:
            del include_deleted
            return super().get(tenant_id, schedule_id, include_deleted=True)

    def _over(self, link: Link, scope: Scope) -> MemoryRepositories:
        return replace(super()._over(link, scope), schedules=self.Schedules(link, scope))


class WordsItDifferently(MemoryBackend):
    """Raises the right error with a text of its own."""

    class Audit(MemoryAuditRepository):
        def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
            try:
                return super().get_required(tenant_id, audit_id)
            except Exception as error:
                error.args = (f"{error.args[0]} Sorry.",)
                raise

    def _over(self, link: Link, scope: Scope) -> MemoryRepositories:
        return replace(super()._over(link, scope), audit=self.Audit(link, scope))


class IgnoresTheExpectation(MemoryBackend):
    """Writes a summary although another one was expected."""

    class Summaries(MemoryRunSummaryRepository):
        def upsert(self, summary: RunSummary, *, expected_updated_at: datetime | None = None) -> RunSummary:
            del expected_updated_at
            return super().upsert(summary)

    def _over(self, link: Link, scope: Scope) -> MemoryRepositories:
        return replace(super()._over(link, scope), run_summaries=self.Summaries(link, scope))


class CommitsEveryCall(MemoryBackend):
    """Hands out a unit of work whose writes are seen at once and never rolled back."""

    @contextmanager
    def transaction(self, scope: Scope, *, read_only: bool) -> Iterator[MemoryRepositories]:
        del read_only
        link = Single(self.store)
        try:
            yield self._over(link, scope)
        finally:
            link.state.closed = True


WRONG = (
    SortsTiesBackwards,
    PurgesTooLittle,
    ShowsDeletedSchedules,
    WordsItDifferently,
    IgnoresTheExpectation,
    CommitsEveryCall,
)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_driver_that_is_wrong_in_one_point_is_found(wrong: type[MemoryBackend]) -> None:
    clock = FixedClock(at(10))
    sides = [memory_side("right", MemoryBackend(), clock), memory_side("wrong", wrong(), clock)]
    with pytest.raises(DivergenceError):
        run_machine(sides, SEARCH)


def test_two_equal_drivers_agree() -> None:
    clock = FixedClock(at(10))
    sides = [memory_side(name, MemoryBackend(), clock) for name in ("left", "right")]
    run_machine(sides, hypothesis.settings(SEARCH, max_examples=40))
