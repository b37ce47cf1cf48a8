"""What locks must do on every driver: one owner at a time, fences that only grow, nothing for who is late."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypedDict, cast

import pytest
from typing_extensions import Unpack

from twinstore.errors import LeaseLostError, LockTimeoutError, TenantScopeError, ValidationError
from twinstore.scheduler import held_lock
from twinstore.scheduler.catalog import LOCKS
from twinstore.testing.base import needs
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import TIMEOUT_SECONDS, outcomes

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.scheduler.locks import LockHandle, LockInfo
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["LockContract"]

NOW: Final = timedelta(0)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
CONCURRENCY: Final = 4
OFTEN: Final = 600


class Options(TypedDict, total=False):
    """What may be said of an attempt."""

    lease: timedelta
    holder_id: str
    tenant_id: str
    metadata: dict[str, str]


def acquired(
    workspace: SchedulerWorkspace,
    name: str = "a",
    storage: SchedulerStorage | None = None,
    **options: Unpack[Options],
) -> LockHandle:
    """Acquire a free lock at once."""
    handle = (storage or workspace.storage).locks.try_acquire(workspace.id(name), NOW, **options)
    assert handle is not None
    return handle


def stored(workspace: SchedulerWorkspace, name: str = "a") -> LockInfo:
    """Return the row of a lock."""
    lock = workspace.storage.locks.inspect(workspace.id(name))
    assert lock is not None
    return lock


def expire(workspace: SchedulerWorkspace, name: str = "a") -> None:
    """Let the lease of a lock end a second ago."""
    lock = stored(workspace, name)
    age = SECOND + (lock.expires_at - lock.acquired_at)
    earlier = {"acquiredAt": lock.acquired_at - age, "expiresAt": lock.expires_at - age}
    workspace.probe.alter(LOCKS, (lock.tenant_id, lock.lock_key), earlier)


def extended(workspace: SchedulerWorkspace, end: datetime) -> datetime:
    """Wait until the stored lease of a lock ends later than that; return when it ends then."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (found := stored(workspace).expires_at) <= end:
        assert time.monotonic() < deadline, "the lease was never renewed"
    return found


class LockContract(SchedulerCases):
    """Acquiring, renewing, releasing, and what becomes of an owner whose lease has ended."""

    def test_a_lock_has_one_owner_until_it_is_released(self, workspace: SchedulerWorkspace) -> None:
        locks, key = workspace.storage.locks, workspace.id("a")
        assert locks.inspect(key) is None
        with acquired(workspace, holder_id=" me ", lease=MINUTE, metadata={" Why ": "x"}) as handle:
            lock = stored(workspace)
            assert (lock.holder_id, lock.fence, lock.metadata) == ("me", 1, {"why": "x"})
            assert lock.expires_at - lock.acquired_at == MINUTE
            assert (handle.lock_key, handle.tenant_id, handle.holder_id) == (key, "system", "me")
            assert (handle.fence, handle.acquired_at, handle.expires_at) == (
                lock.fence,
                lock.acquired_at,
                lock.expires_at,
            )
            assert handle.is_held()
            # Not even by the same holder, nor from another storage.
            assert locks.try_acquire(key, NOW, holder_id="me") is None
            with workspace.storages(1) as (other,):
                assert other.locks.try_acquire(key, NOW) is None
        assert not handle.is_held()
        assert (handle.release(), stored(workspace).holder_id, stored(workspace).fence) == (False, "me", 1)
        again = acquired(workspace)
        assert (again.fence, again.release(), again.release()) == (2, True, False)

    def test_a_released_lock_is_free_from_the_instant_of_its_release(
        self, workspace: SchedulerWorkspace
    ) -> None:
        handle = acquired(workspace, lease=MINUTE)
        assert handle.release()
        lock = stored(workspace)
        assert lock.acquired_at <= lock.expires_at < handle.expires_at
        assert acquired(workspace).release()

    def test_renewing_extends_the_lease_from_now_on(self, workspace: SchedulerWorkspace) -> None:
        with acquired(workspace, lease=MINUTE, metadata={"why": "x"}) as handle:
            first = stored(workspace)
            end = handle.renew(lease=2 * MINUTE)
            lock = stored(workspace)
            assert (lock.expires_at, handle.expires_at) == (end, end)
            assert lock.renewed_at is not None
            assert lock.renewed_at >= lock.acquired_at == first.acquired_at
            assert lock.expires_at - lock.renewed_at == 2 * MINUTE
            assert (lock.fence, lock.holder_id, lock.metadata) == (1, first.holder_id, {"why": "x"})
            # The length that was asked for last stays.
            end = handle.renew()
            assert stored(workspace).renewed_at == end - 2 * MINUTE
            assert handle.is_held()

    def test_a_lock_outlives_a_step_back_of_the_clock_of_its_server(
        self, workspace: SchedulerWorkspace
    ) -> None:
        with acquired(workspace, lease=MINUTE) as handle:
            lock = stored(workspace)
            ahead = {"acquiredAt": lock.acquired_at + HOUR, "expiresAt": lock.expires_at + HOUR}
            workspace.probe.alter(LOCKS, (lock.tenant_id, lock.lock_key), ahead)
            assert handle.renew() == stored(workspace).expires_at < stored(workspace).acquired_at
            assert handle.is_held()
            assert handle.release()
        assert stored(workspace).expires_at < stored(workspace).acquired_at
        with acquired(workspace) as other:
            assert other.fence == 2

    def test_an_expired_lock_goes_to_the_first_request(self, workspace: SchedulerWorkspace) -> None:
        late = acquired(workspace, holder_id="same", lease=SECOND)
        expire(workspace)
        with workspace.storages(1) as (other,), contended(workspace, other, late) as owner:
            assert (late.fence, owner.fence) == (1, 2)
            before = stored(workspace)
            with pytest.raises(LeaseLostError):
                late.renew()
            assert (late.is_held(), late.release()) == (False, False)
            with pytest.raises(LeaseLostError):
                late.renew()
            assert (stored(workspace), owner.is_held()) == (before, True)

    def test_a_late_release_changes_nothing_of_the_next_owner(self, workspace: SchedulerWorkspace) -> None:
        late = acquired(workspace, holder_id="same", lease=SECOND)
        expire(workspace)
        with workspace.storages(1) as (other,), contended(workspace, other, late) as owner:
            before = stored(workspace)
            assert late.release() is False
            assert (stored(workspace), owner.is_held(), late.is_held()) == (before, True, False)
            assert owner.renew() > before.acquired_at

    def test_an_expired_lease_is_not_renewed_even_while_no_one_else_has_it(
        self, workspace: SchedulerWorkspace
    ) -> None:
        handle = acquired(workspace)
        expire(workspace)
        before = stored(workspace)
        with pytest.raises(LeaseLostError, match="expired") as loss:
            handle.renew()
        assert (loss.value.entity, loss.value.key) == ("locks", f"system:{workspace.id('a')}")
        assert (handle.release(), stored(workspace)) == (False, before)

    def test_a_holder_that_hangs_loses_its_lock_with_the_lease(self, workspace: SchedulerWorkspace) -> None:
        """Also if what it holds the lock with has served a longer lease."""
        acquired(workspace, "before", lease=MINUTE).release()
        hung = acquired(workspace, lease=SECOND)
        with (
            workspace.storages(1) as (other,),
            other.locks.acquire(workspace.id("a"), MINUTE) as owner,
        ):
            assert (owner.fence, owner.acquired_at >= hung.expires_at) == (2, True)
            assert not hung.is_held()

    def test_a_lock_has_nothing_of_one_that_was_released_before(self, workspace: SchedulerWorkspace) -> None:
        acquired(workspace, "before", lease=SECOND).release()
        with acquired(workspace, lease=MINUTE) as handle, workspace.storages(1) as (other,):
            assert acquired(workspace, "before", other).release()
            hung = acquired(workspace, "hung", lease=SECOND)
            # When this lease has ended, so would have one of the same length that began before it.
            assert other.locks.acquire(workspace.id("hung"), MINUTE).release()
            assert not hung.is_held()
            assert handle.renew() > handle.acquired_at

    def test_each_tenant_has_locks_of_its_own(self, workspace: SchedulerWorkspace) -> None:
        with (
            acquired(workspace),
            acquired(workspace, tenant_id=workspace.tenant) as own,
            acquired(workspace, tenant_id=workspace.foreign) as foreign,
        ):
            assert {own.tenant_id, foreign.tenant_id} == {workspace.tenant, workspace.foreign}
            found = workspace.storage.locks.inspect(workspace.id("a"), tenant_id=workspace.tenant)
            assert found is not None
            assert (found.tenant_id, found.fence) == (workspace.tenant, 1)

    def test_one_concurrent_request_gets_a_lock_in_every_round_and_fences_are_given_once(
        self, workspace: SchedulerWorkspace
    ) -> None:
        fences: list[int] = []

        def attempt(storage: SchedulerStorage, name: str) -> bool:
            handle = storage.locks.try_acquire(workspace.id(name), NOW)
            if handle is None:
                return False
            fences.append(handle.fence)
            return True

        rounds = workspace.rounds(attempt, lambda round_number: [f"race {round_number}"] * CONCURRENCY)
        for results in rounds:
            assert outcomes(results) == {"ok": CONCURRENCY}
            assert sorted(map(bool, results)) == [False] * (CONCURRENCY - 1) + [True]
        assert fences == [1] * len(rounds)

    def test_who_waits_gets_the_lock_when_it_is_released(self, workspace: SchedulerWorkspace) -> None:
        held = acquired(workspace, lease=MINUTE)

        def act(storage: SchedulerStorage, step: str) -> int:
            if step == "release":
                held.release()
                return held.fence
            with storage.locks.acquire(workspace.id("a"), MINUTE) as owner:
                return owner.fence

        assert workspace.race(act, ["wait", "release", "wait"]) in ([2, 1, 3], [3, 1, 2])

    def test_a_wait_in_vain_is_reported(self, workspace: SchedulerWorkspace) -> None:
        wait = timedelta(milliseconds=30)
        with acquired(workspace):
            assert workspace.storage.locks.try_acquire(workspace.id("a"), wait) is None
            with pytest.raises(LockTimeoutError, match=r"0\.03 s") as refusal:
                workspace.storage.locks.acquire(f" {workspace.id('a')} ", wait)
        assert (refusal.value.retryable, refusal.value.key) == (True, f"system:{workspace.id('a')}")

    def test_a_lease_that_is_kept_alive_is_held_until_the_block_ends(
        self, workspace: SchedulerWorkspace
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            # Often, and long before the lease is over, which a busy machine might outlast.
            patch.setattr(held_lock, "RENEWALS_PER_LEASE", OFTEN)
            with acquired(workspace, lease=MINUTE) as handle:
                ends = [handle.expires_at]
                with handle.keep_alive():
                    ends += [extended(workspace, ends[0])]
                    ends += [extended(workspace, ends[1])]
                    assert workspace.storage.locks.try_acquire(workspace.id("a"), NOW) is None
                    assert handle.is_held()
                assert handle.expires_at >= ends[-1]
        assert acquired(workspace).fence == 2

    @needs("transactions")
    def test_a_lock_takes_no_part_in_a_unit_of_work(self, workspace: SchedulerWorkspace) -> None:
        held: list[LockHandle] = []
        with suppress(KeyError), workspace.storage.transaction(workspace.tenant) as unit:
            unit.runs.create(workspace.run())
            held.append(acquired(workspace))
            with pytest.raises(TenantScopeError):
                unit.locks.inspect(workspace.id("a"))
            raise KeyError
        (handle,) = held
        assert handle.is_held()
        assert stored(workspace).fence == handle.fence == 1
        assert handle.release()

    @needs("sessions")
    def test_a_session_in_system_scope_shows_locks_and_acquires_none(
        self, workspace: SchedulerWorkspace
    ) -> None:
        with acquired(workspace), workspace.storage.sessions.open(purpose="locks") as session:
            assert session.locks.inspect(workspace.id("a")) == stored(workspace)
            with pytest.raises(ValidationError, match="session or unit"):
                session.locks.try_acquire(workspace.id("b"), NOW)
        with workspace.storage.sessions.open(workspace.tenant) as session, pytest.raises(TenantScopeError):
            session.locks.try_acquire(workspace.id("b"), NOW)
        assert workspace.storage.locks.inspect(workspace.id("b")) is None

    @pytest.mark.parametrize(
        ("argument", "value"),
        [
            ("lock_key", ""),
            ("timeout", timedelta(milliseconds=-1)),
            ("timeout", 1),
            ("lease", timedelta(milliseconds=999)),
            ("lease", timedelta(hours=1, milliseconds=1)),
            ("lease", 30),
            ("holder_id", " "),
            ("tenant_id", "a:b"),
            ("metadata", {"a": 1}),
        ],
    )
    def test_an_unacceptable_argument_is_named(
        self, workspace: SchedulerWorkspace, argument: str, value: object
    ) -> None:
        options = {"lock_key": workspace.id("a"), "timeout": NOW, argument: value}
        attempt = cast("Callable[..., object]", workspace.storage.locks.try_acquire)
        with pytest.raises(ValidationError, match=f"Argument {argument}"):
            attempt(**options)
        assert workspace.storage.locks.inspect(workspace.id("a")) is None

    def test_a_closed_storage_acquires_nothing_and_lets_its_locks_run_out(
        self, workspace: SchedulerWorkspace
    ) -> None:
        with workspace.storages(1) as (other,):
            handle = acquired(workspace, storage=other)
            other.close()
            assert handle.release() is False
        assert not handle.is_held()
        assert stored(workspace).expires_at == handle.expires_at


def contended(workspace: SchedulerWorkspace, storage: SchedulerStorage, late: LockHandle) -> LockHandle:
    """Acquire with the name of a holder whose lease has ended, as soon as its connection has ended, too."""
    return storage.locks.acquire(workspace.id("a"), MINUTE, holder_id=late.holder_id)
