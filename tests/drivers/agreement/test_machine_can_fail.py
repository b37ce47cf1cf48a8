"""The machine is worth nothing unless it finds a driver that is wrong in one small point."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import pytest
from typing_extensions import override

from tools.differential.concurrent_units import run_concurrent_units
from tools.differential.machine import DivergenceError, memory_side, run_machine
from twinstore.access.guard import GuardedAccess
from twinstore.clock import FixedClock
from twinstore.errors import ConcurrencyError
from twinstore.models.canonical import CanonicalModel
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.repositories import AuditRecords, Repositories, Runs
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing.instants import at
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.store import MemoryDatabase, Unit

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from tools.differential.machine import Side
    from twinstore.access.paging import Page
    from twinstore.access.protocol import Access
    from twinstore.access.query import Query
    from twinstore.access.scope import Scope
    from twinstore.catalog.entity import Entity
    from twinstore.scheduler.audit import AuditRecord
    from twinstore_memory.store import TableContents

A = TypeVar("A", bound=CanonicalModel)

# No shrinking: whether the mistake is found is the question, not how short its report is.
SEARCH = hypothesis.settings(
    max_examples=1000,
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


Backend = MemoryBackend[Repositories]


class SortsTiesBackwards(Backend):
    """Sorts runs of the same instant by descending id."""

    class Faulty(Runs):
        @override
        def _page(self, entity: Entity[A], query: Query) -> Page[A]:
            *others, last = query.order
            return super()._page(entity, replace(query, order=(*others, replace(last, descending=True))))

    @override
    def _over(self, access: GuardedAccess) -> Repositories:
        return replace(super()._over(access), runs=self.Faulty(access))


class WordsItDifferently(Backend):
    """Raises the right error with a different text."""

    class Faulty(AuditRecords):
        @override
        def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
            try:
                return super().get_required(tenant_id, audit_id)
            except Exception as error:
                error.args = (f"{error.args[0]} Sorry.",)
                raise

    @override
    def _over(self, access: GuardedAccess) -> Repositories:
        return replace(super()._over(access), audit=self.Faulty(access))


class CommitsEveryCall(Backend):
    """Hands out a unit of work whose writes are seen at once and never rolled back."""

    @contextmanager
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Iterator[Access]:
        del read_only
        with self.open_session(scope, causal_consistency=True) as access:
            yield access


class ReadsWhatOthersCommit(MemoryDatabase):
    """Lets a unit see what concurrent transactions commit meanwhile, and overwrite it."""

    @override
    def begin(self, *, read_only: bool = False, isolated: bool = False) -> Unit:
        del isolated
        return super().begin(read_only=read_only)


class LetsTheLastWriterWin(MemoryDatabase):
    """Lets a unit overwrite what a concurrent transaction wrote, although it reads one snapshot."""

    @override
    def lock(self, unit: Unit, table: str, what: Hashable) -> None:
        """Refuse no caller."""


class LosesBoth(MemoryDatabase):
    """Ends the first writer too when a second one is refused."""

    @override
    def lock(self, unit: Unit, table: str, what: Hashable) -> None:
        try:
            super().lock(unit, table, what)
        except ConcurrencyError:
            if winner := self._locks.get((table, what)):
                winner.state.abort()
            raise


class CommitsTheLoser(MemoryDatabase):
    """Writes at the end what a unit did before it was refused."""

    @override
    def end(self, unit: Unit, staged: dict[str, TableContents]) -> None:
        super().end(unit, staged or unit._staged)  # noqa: SLF001  # a fault is planted inside


# An order and a write on every push.
@pytest.mark.parametrize(
    "wrong",
    [SortsTiesBackwards, CommitsEveryCall, pytest.param(WordsItDifferently, marks=pytest.mark.long)],
)
def test_a_driver_that_is_wrong_in_one_point_is_found(wrong: type[Backend]) -> None:
    clock = FixedClock(at(10))
    sides = [memory_side("right", Backend(MODULE), clock), memory_side("wrong", wrong(MODULE), clock)]
    with pytest.raises(DivergenceError):
        run_machine(sides, SEARCH)


@pytest.mark.parametrize(
    "wrong",
    [
        LetsTheLastWriterWin,
        *(
            pytest.param(wrong, marks=pytest.mark.long)
            for wrong in (ReadsWhatOthersCommit, LosesBoth, CommitsTheLoser)
        ),
    ],
)
def test_a_driver_whose_units_meet_in_a_wrong_way_is_found(wrong: type[MemoryDatabase]) -> None:
    with pytest.raises(DivergenceError):
        run_concurrent_units(
            [concurrent_sides(wrong(patience=0.01))], concurrent_sides(MemoryDatabase())[0], SEARCH
        )


def test_concurrent_units_of_the_right_driver_are_accepted() -> None:
    settings = hypothesis.settings(SEARCH, max_examples=15)
    run_concurrent_units(
        [concurrent_sides(MemoryDatabase())], concurrent_sides(MemoryDatabase())[0], settings
    )


def concurrent_sides(store: MemoryDatabase) -> tuple[Side, Side]:
    """Return two storages on one store."""
    clock = FixedClock(at(10))
    side = memory_side("memory", MemoryBackend(MODULE, store), clock)
    return side, side.on_same_store(SchedulerStorage(MemoryBackend(MODULE, store), clock))


def test_two_equal_drivers_agree() -> None:
    clock = FixedClock(at(10))
    sides = [memory_side(name, Backend(MODULE), clock) for name in ("left", "right")]
    run_machine(sides, hypothesis.settings(SEARCH, max_examples=10))
