"""What sessions and units of work promise, alone, concurrently, and in a transaction of their caller.

In a session reads see earlier writes, and each call is independent. A unit is all or nothing, and a failed
one is never committed. If a caller's transaction is joined, only its commit decides. Each of several
concurrent units reads one state, the first writer wins, and no update is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    DuplicateError,
    NotFoundError,
    TransactionAbortedError,
    TwinstoreError,
    ValidationError,
)
from twinstore.testing.base import Contract, each, needs, of_tenants
from twinstore.testing.examples import NAME
from twinstore.testing.workspace import AnyStorage, Workspace, in_thread, outcomes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example

__all__ = ["IsolationContract", "JoiningContract", "RaceContract", "SessionContract", "TransactionContract"]


class SessionContract(Contract):
    """Bound repositories without a transaction."""

    @of_tenants
    @needs("sessions")
    @pytest.mark.parametrize("causal", [True, False])
    def test_reads_see_earlier_writes_of_the_session(self, workspace: Workspace, *, causal: bool) -> None:
        with workspace.storage.sessions.open(workspace.tenant, causal_consistency=causal) as session:
            for number in range(5):
                self.write_and_read(session, workspace, number)

    @of_tenants
    @needs("sessions")
    def test_writes_are_visible_to_others_at_once_and_survive_an_exception(
        self, workspace: Workspace
    ) -> None:
        def failing(other: AnyStorage) -> None:
            with workspace.storage.sessions.open(workspace.tenant) as session:
                model = self.store_typical(session, workspace)
                assert self.found_typical(other.unbound, workspace) == model
                raise ZeroDivisionError

        with workspace.storages(1) as (other,):
            with pytest.raises(ZeroDivisionError):
                failing(other)
            assert self.found_typical(other.unbound, workspace) is not None

    @of_tenants
    @needs("sessions")
    def test_a_session_sees_what_others_write_meanwhile(self, workspace: Workspace) -> None:
        with workspace.storages(1) as (other,), workspace.storage.sessions.open(workspace.tenant) as session:
            assert self.found_typical(session, workspace) is None
            model = self.store_typical(other.unbound, workspace)
            assert self.found_typical(session, workspace) == model

    @of_tenants
    @needs("sessions")
    def test_a_session_that_has_ended_refuses_every_call(self, workspace: Workspace) -> None:
        one_of_each = self.store_one_of_each(workspace)
        with workspace.storage.sessions.open(workspace.tenant) as session:
            pass
        for call in self.tenant_calls():
            with pytest.raises(TransactionAbortedError):
                call.invoke(session, workspace.tenant, one_of_each)

    @of_tenants
    @needs("sessions")
    def test_two_sessions_at_once_do_not_disturb_each_other(self, workspace: Workspace) -> None:
        opening = workspace.storage.sessions.open
        with opening(workspace.tenant) as mine, opening(workspace.foreign) as theirs:
            for session, owner in ((mine, workspace), (theirs, workspace.elsewhere)):
                model = self.store_typical(session, owner)
                assert self.found_typical(session, owner) == model
                assert owner.count(self.module.typical.entity) == 1


def committed(workspace: Workspace, *steps: Callable[[object], object]) -> None:
    """Run some steps in one unit of work."""
    with workspace.storage.transaction(workspace.tenant) as unit:
        for step in steps:
            step(unit)


class TransactionContract(Contract):
    """One unit of work over all repositories."""

    def _shown(self, session: object, workspace: Workspace) -> Iterator[object]:
        """Yield what look-ups and lists of the tenant show of the rows that are written everywhere."""
        tenant = workspace.tenant
        for item in self.module.of_tenants:
            model = item.small(tenant, workspace.id("a"))
            if (found := item.found(session, tenant, model)) is not None:
                yield found
            for listed in item.lists:
                if listed.sees_one_tenant:
                    yield from listed(getattr(session, item.repository), tenant, item.value(tenant, model))

    def _breaking(self, workspace: Workspace, error: type[BaseException]) -> None:
        """Write everywhere and fail in the middle of the unit."""
        with workspace.storage.transaction(workspace.tenant) as unit:
            self.write_everywhere(unit, workspace)
            raise error

    @of_tenants
    @needs("transactions")
    def test_everything_is_committed_together(self, workspace: Workspace) -> None:
        with workspace.storages(1) as (other,):
            with workspace.storage.transaction(workspace.tenant) as unit:
                self.write_everywhere(unit, workspace)
                assert set(self.counts(workspace)) == {0}
                assert list(self._shown(other.unbound, workspace)) == []
            assert self.found_typical(other.unbound, workspace) is not None
        assert set(self.counts(workspace)) == {1}

    @of_tenants
    @needs("transactions")
    @pytest.mark.parametrize("error", [ZeroDivisionError, NotFoundError, KeyboardInterrupt, GeneratorExit])
    def test_any_exception_rolls_everything_back(
        self, workspace: Workspace, error: type[BaseException]
    ) -> None:
        with pytest.raises(error):
            self._breaking(workspace, error)
        assert set(self.counts(workspace)) == {0}
        with workspace.storage.transaction(workspace.tenant) as unit:
            self.write_everywhere(unit, workspace)
        assert set(self.counts(workspace)) == {1}

    @of_tenants
    @needs("transactions")
    @each("name", lambda kit: kit.harmless_steps())
    def test_an_error_of_a_rule_leaves_the_unit_usable(self, workspace: Workspace, name: str) -> None:
        one_of_each = self.store_one_of_each(workspace)
        error, step = self.harmless_steps()[name]
        with workspace.storage.transaction(workspace.tenant) as unit:
            self.store_typical(unit, workspace, "before")
            with pytest.raises(error) as refusal:
                step(unit, workspace, one_of_each)
            assert not isinstance(refusal.value, DuplicateError)
            self.store_typical(unit, workspace, "after")
        assert self.found_typical(workspace.storage.unbound, workspace, "before") is not None
        assert self.found_typical(workspace.storage.unbound, workspace, "after") is not None

    @of_tenants
    @needs("transactions")
    @each("name", lambda kit: kit.fatal_steps())
    def test_an_error_of_the_store_makes_the_unit_unusable(self, workspace: Workspace, name: str) -> None:
        one_of_each = self.store_one_of_each(workspace)
        self.store_one_of_each(workspace.elsewhere)

        def catching(unit: object) -> None:
            self.store_typical(unit, workspace, "before")
            with pytest.raises(DuplicateError):
                self.fatal_steps()[name](unit, workspace, one_of_each)
            with pytest.raises(TransactionAbortedError):
                self.found_typical(unit, workspace, NAME)
            with pytest.raises(TransactionAbortedError):
                self.store_typical(unit, workspace, "after")

        with pytest.raises(TransactionAbortedError):
            committed(workspace, catching)
        assert self.found_typical(workspace.storage.unbound, workspace, "before") is None
        assert self.found_typical(workspace.storage.unbound, workspace, "after") is None

    @of_tenants
    @needs("transactions")
    @each("name", lambda kit: kit.fatal_steps())
    def test_an_uncaught_error_of_the_store_is_raised_unchanged(
        self, workspace: Workspace, name: str
    ) -> None:
        one_of_each = self.store_one_of_each(workspace)
        self.store_one_of_each(workspace.elsewhere)
        with pytest.raises(DuplicateError):
            committed(
                workspace,
                lambda unit: self.store_typical(unit, workspace, "before"),
                lambda unit: self.fatal_steps()[name](unit, workspace, one_of_each),
            )
        assert self.found_typical(workspace.storage.unbound, workspace, "before") is None

    @of_tenants
    @needs("transactions")
    def test_a_unit_that_has_ended_refuses_every_call(self, workspace: Workspace) -> None:
        one_of_each = self.store_one_of_each(workspace)
        with workspace.storage.transaction(workspace.tenant) as unit:
            pass
        for call in self.tenant_calls():
            with pytest.raises(TransactionAbortedError):
                call.invoke(unit, workspace.tenant, one_of_each)

    @of_tenants
    @needs("transactions")
    def test_an_empty_unit_commits(self, workspace: Workspace) -> None:
        with workspace.storage.transaction(workspace.tenant):
            pass
        assert set(self.counts(workspace)) == {0}

    @of_tenants
    @needs("transactions")
    def test_transact_returns_the_result_of_a_committed_unit(self, workspace: Workspace) -> None:
        model = workspace.storage.transact(
            lambda unit: self.store_typical(unit, workspace), tenant_id=workspace.tenant
        )
        assert self.found_typical(workspace.storage.unbound, workspace) == model

    @of_tenants
    @needs("transactions")
    def test_transact_repeats_the_whole_unit_after_a_lost_race(self, workspace: Workspace) -> None:
        attempts: list[int] = []

        def third_time_lucky(unit: object) -> int:
            attempts.append(len(attempts))
            self.store_typical(unit, workspace, str(len(attempts)))
            if len(attempts) < 3:
                raise ConcurrencyError
            return len(attempts)

        assert workspace.storage.transact(third_time_lucky, tenant_id=workspace.tenant) == 3
        found = [self.found_typical(workspace.storage.unbound, workspace, name) for name in "123"]
        assert [model is not None for model in found] == [False, False, True]
        assert workspace.count(self.module.typical.entity) == 1

    @of_tenants
    @needs("transactions")
    @pytest.mark.parametrize("attempts", [1, 2, 4])
    def test_transact_fails_after_the_last_attempt(self, workspace: Workspace, attempts: int) -> None:
        calls: list[int] = []

        def hopeless(unit: object) -> None:
            calls.append(1)
            self.store_typical(unit, workspace)
            raise ConcurrencyError

        with pytest.raises(ConcurrencyError):
            workspace.storage.transact(hopeless, tenant_id=workspace.tenant, attempts=attempts)
        assert (len(calls), workspace.count(self.module.typical.entity)) == (attempts, 0)

    @of_tenants
    @needs("transactions")
    def test_transact_repeats_nothing_else(self, workspace: Workspace) -> None:
        calls: list[int] = []

        def broken(_: object) -> None:
            calls.append(1)
            raise DuplicateError

        with pytest.raises(DuplicateError):
            workspace.storage.transact(broken, tenant_id=workspace.tenant)
        with pytest.raises(ValidationError):
            workspace.storage.transact(broken, tenant_id=workspace.tenant, attempts=0)
        assert calls == [1]


class JoiningContract(Contract):
    """``bind``: a handle of the caller, where the driver joins one."""

    def fail_inside(self, handle: AbstractContextManager[object], workspace: Workspace) -> None:
        """Write everywhere through a handle of the caller and fail."""
        with handle as joined:
            self.write_everywhere(workspace.storage.bind(joined, workspace.tenant), workspace)
            raise ZeroDivisionError

    @of_tenants
    @needs("transactions")
    def test_a_handle_of_the_caller_decides_over_commit_and_rollback(self, workspace: Workspace) -> None:
        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with handle as joined:
                self.write_everywhere(workspace.storage.bind(joined, workspace.tenant), workspace)
                assert set(self.counts(workspace)) == {0}
            assert set(self.counts(workspace)) == {1}

    @of_tenants
    @needs("transactions")
    def test_a_handle_that_is_rolled_back_leaves_nothing(self, workspace: Workspace) -> None:
        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with pytest.raises(ZeroDivisionError):
                self.fail_inside(handle, workspace)
            assert set(self.counts(workspace)) == {0}

    @of_tenants
    @needs("transactions")
    def test_joining_again_commits_nothing_of_what_came_before(self, workspace: Workspace) -> None:
        def failing(handle: AbstractContextManager[object]) -> None:
            with handle as joined:
                self.store_typical(workspace.storage.bind(joined, workspace.tenant), workspace, "first")
                self.store_typical(workspace.storage.bind(joined, workspace.tenant), workspace, "second")
                assert workspace.count(self.module.typical.entity) == 0
                raise ZeroDivisionError

        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with pytest.raises(ZeroDivisionError):
                failing(handle)
            assert workspace.count(self.module.typical.entity) == 0

    def test_a_handle_of_another_kind_is_refused(self, workspace: Workspace) -> None:
        with pytest.raises(ConfigurationError):
            workspace.storage.bind(object(), workspace.tenant)
        assert set(self.counts(workspace)) <= {0}


class IsolationContract(Contract):
    """Units that run concurrently with other units and with independent calls."""

    @of_tenants
    @needs("transactions")
    def test_a_unit_sees_what_was_committed_before_its_first_call(self, workspace: Workspace) -> None:
        with workspace.storages(1) as (other,), workspace.storage.transaction(workspace.tenant) as unit:
            model = self.store_typical(other.unbound, workspace)
            assert self.found_typical(unit, workspace) == model

    @of_tenants
    @needs("transactions")
    def test_a_second_unit_in_the_same_thread_is_refused_and_the_first_goes_on(
        self, workspace: Workspace
    ) -> None:
        storage, called = workspace.storage, list[str]()
        with storage.transaction(workspace.tenant) as unit:
            self.store_typical(unit, workspace, "a")
            for tenant in (workspace.tenant, workspace.foreign):
                with pytest.raises(ValidationError, match="do not nest"), storage.transaction(tenant):
                    called.append("nested")
            with pytest.raises(ValidationError, match="do not nest"):
                storage.transact(lambda _: called.append("nested"), tenant_id=workspace.tenant)
            self.store_typical(unit, workspace, "b")
        assert (called, workspace.count(self.module.typical.entity)) == ([], 2)
        with storage.transaction(workspace.tenant) as unit:
            assert None not in [self.found_typical(unit, workspace, name) for name in "ab"]

    @of_tenants
    @needs("transactions")
    def test_units_of_two_storages_and_of_two_threads_are_independent(self, workspace: Workspace) -> None:
        def another(storage: AnyStorage, name: str) -> None:
            with storage.transaction(workspace.tenant) as unit:
                self.store_typical(unit, workspace, name)

        with workspace.storages(1) as (other,), workspace.storage.transaction(workspace.tenant) as unit:
            self.store_typical(unit, workspace, "mine")
            another(other, "other storage")
            assert outcomes([in_thread(lambda: another(workspace.storage, "other thread"))()]) == {"ok": 1}
        assert workspace.count(self.module.typical.entity) == 3


# Tried often enough for concurrent writers to meet: twenty rounds, each over fresh rows.
CONCURRENCY: Final = 4


def rows_of_their_own(kit: type[Contract]) -> list[Example]:
    """Return the examples of what tenants own, without those that are written with their parent."""
    return [item for item in kit.module.examples if item.is_owned and item.entity.parent is None]


class RaceContract(Contract):
    """One winner, and nothing lost, in every round."""

    @needs("transactions")
    @each("example", rows_of_their_own)
    def test_of_two_tenants_one_gets_a_new_key_in_every_round(
        self, workspace: Workspace, example: Example
    ) -> None:
        tenants = (workspace.tenant, workspace.foreign)

        def store(storage: AnyStorage, competitor: tuple[str, CanonicalModel]) -> str:
            tenant, model = competitor
            example.store(storage.unbound, tenant, model)
            return tenant

        def competitors(round_number: int) -> list[tuple[str, CanonicalModel]]:
            key = workspace.id(f"race {round_number}")
            return [(tenant, example.small(tenant, key)) for tenant in tenants * (CONCURRENCY // 2)]

        for round_number, results in enumerate(workspace.rounds(store, competitors)):
            winners = {result for result in results if not isinstance(result, TwinstoreError)}
            assert len(winners) == (1 if example.shares_keys else 2)
            assert set(outcomes(results)) <= {"DuplicateError", "ok"}
            models = dict(competitors(round_number))
            for tenant in tenants:
                shared = example.system_only and example.shares_keys
                owner = next(iter(winners)) if shared else tenant
                wanted, model = (models[owner] if owner in winners else None), models[tenant]
                assert example.found(workspace.storage.unbound, tenant, model) == wanted
