"""What sessions promise: reads see earlier writes, each call stands on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import TransactionAbortedError
from twinstore.testing.base import Contract, needs, of_tenants

if TYPE_CHECKING:
    from twinstore.testing.workspace import AnyStorage, Workspace

__all__ = ["SessionContract"]


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
