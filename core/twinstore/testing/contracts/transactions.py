"""What units of work promise: all or nothing, and a failed one is never committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from twinstore.errors import (
    ConcurrencyError,
    DuplicateError,
    NotFoundError,
    TransactionAbortedError,
    ValidationError,
)
from twinstore.testing.base import Contract, each, needs, of_tenants
from twinstore.testing.examples import NAME
from twinstore.testing.workspace import Workspace

__all__ = ["TransactionContract"]


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
    def test_an_error_of_the_store_that_nobody_catches_comes_out_as_it_is(
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
    def test_transact_gives_up_in_the_end(self, workspace: Workspace, attempts: int) -> None:
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
