"""What repositories promise that join a transaction of their caller: its commit decides, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from twinstore.access import Moment, Ref, Row, Rows, Rule
from twinstore.errors import ConfigurationError, DuplicateError
from twinstore.scheduler.catalog import RUN_SUMMARIES, RUNS, SCHEDULES
from twinstore.scheduler.module import MODULE
from twinstore.scope import Scope
from twinstore.tenancy import Tenant
from twinstore.testing.base import Contract, needs
from twinstore.testing.contracts.transactions import NOTHING, ONE_OF_EACH, counts, write_everywhere
from twinstore.testing.entities import by_access

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore.testing.bench import Bench

__all__ = ["JoiningContract"]


def failing_inside(handle: AbstractContextManager[object], bench: Bench) -> None:
    """Write everywhere through a handle of the caller and fail."""
    with handle as joined:
        write_everywhere(bench.storage.bind(joined, bench.tenant), bench)
        raise ZeroDivisionError


def two_schedules(bench: Bench) -> tuple[Ref, Ref]:
    """Return where a stored schedule is and where another one would be."""
    return tuple(Ref(SCHEDULES, Tenant(bench.tenant), (bench.id(name),)) for name in ("a", "new"))  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # two


def renamed(bench: Bench, name: str) -> Rule:
    """Return a rule that changes the first schedule and inserts the second one under a taken name."""

    def rule(rows: Rows, now: Moment) -> Rows:
        del now
        (stored, _) = rows
        assert stored is not None
        changed = stored.model.evolve(name="changed")
        return Row(changed, stored.storage), Row(bench.schedule("new", name=name))

    return rule


class JoiningContract(Contract):
    """``bind``: a handle of the caller, where the driver joins one."""

    @needs("transactions")
    def test_a_handle_of_the_caller_decides_over_commit_and_rollback(self, bench: Bench) -> None:
        handle = bench.deployment.handle(bench.tenant)
        if handle is not None:
            with handle as joined:
                write_everywhere(bench.storage.bind(joined, bench.tenant), bench)
                assert counts(bench) == NOTHING
            assert counts(bench) == ONE_OF_EACH

    @needs("transactions")
    def test_a_handle_that_is_rolled_back_leaves_nothing(self, bench: Bench) -> None:
        handle = bench.deployment.handle(bench.tenant)
        if handle is not None:
            with pytest.raises(ZeroDivisionError):
                failing_inside(handle, bench)
            assert counts(bench) == NOTHING

    @needs("transactions")
    def test_joining_again_commits_nothing_of_what_came_before(self, bench: Bench) -> None:
        def failing(handle: AbstractContextManager[object]) -> None:
            with handle as joined:
                bench.storage.bind(joined, bench.tenant).runs.create(bench.run("first"))
                bench.storage.bind(joined, bench.tenant).runs.create(bench.run("second"))
                assert bench.count(RUNS) == 0
                raise ZeroDivisionError

        handle = bench.deployment.handle(bench.tenant)
        if handle is not None:
            with pytest.raises(ZeroDivisionError):
                failing(handle)
            assert bench.count(RUNS) == 0

    @needs("transactions")
    def test_a_joined_write_that_fails_leaves_no_half_of_itself(self, bench: Bench) -> None:
        schedule = bench.storage.schedules.upsert(bench.schedule())
        taken = bench.storage.schedules.upsert(bench.schedule("taken"))
        handle = bench.deployment.handle(bench.tenant)
        if handle is not None:
            refused = False
            # The handle is its caller's own: what a store refused may well fail to commit, in its own words.
            with (
                bench.deployment.open_module(by_access(MODULE)) as backend,
                suppress(Exception),
                handle as joined,
            ):
                bound = backend.bind(joined, Scope(bench.tenant))
                with pytest.raises(DuplicateError):
                    bound.change(two_schedules(bench), renamed(bench, taken.name))
                refused = True
            assert refused
            assert bench.storage.schedules.get(bench.tenant, schedule.id) == schedule
            assert bench.count(SCHEDULES) == 2

    def test_a_handle_of_another_kind_is_refused(self, bench: Bench) -> None:
        with pytest.raises(ConfigurationError):
            bench.storage.bind(object(), bench.tenant)
        assert bench.count(RUN_SUMMARIES) == 0
