"""Whatever is done with locks, the statements of each driver answer as the rule of leases does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import hypothesis
import psycopg
import pytest
from typing_extensions import override

from tests.drivers.agreement.test_machine_can_fail import SEARCH
from tools.differential.locks import LockSide, WrongLockError, run_lock_machine
from twinstore.scheduler.locks import lock_number
from twinstore.scheduler.repositories.locks import CONTEND, GeneralContender, Locks
from twinstore.scheduler.rules import locks as rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime, timedelta

    from tests.support.databases import PostgresDatabase
    from tools.differential.machine import Side
    from twinstore.access.protocol import Access
    from twinstore.scheduler.held_lock import Contender
    from twinstore.scheduler.locks import LockInfo
    from twinstore.scheduler.rules.locks import LockClaim

# Terminates the backend that holds the advisory lock, and waits until it is gone.
LET_GO = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks"
    " WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) | objid::bigint = %s"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def lock_side(side: Side, way: Callable[[Access], Contender] | None = None) -> LockSide:
    """Return the locks of a driver: its statements, or another way over its rows."""
    locks = side.storage.locks
    assert isinstance(locks, Locks)
    access = locks.access
    if way is not None:
        return LockSide(side.name, access, lambda: way(access), side.storage.bulk.now)
    contend = access.special(CONTEND)
    assert contend is not None
    return LockSide(side.name, access, lambda: cast("Contender", contend(5.0)), side.storage.bulk.now)


@pytest.fixture
def superuser(module_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection]:
    with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as connection:
        yield connection


def test_the_statements_of_mongodb_answer_as_the_rule(
    mongo: Side, bounded_profile: hypothesis.settings
) -> None:
    run_lock_machine(lock_side(mongo), mongo.wipe, bounded_profile)


def test_the_statements_of_postgres_answer_as_the_rule(
    postgres: Side, superuser: psycopg.Connection, bounded_profile: hypothesis.settings
) -> None:
    def expire_lease(key: tuple[str, str]) -> object:
        return superuser.execute(LET_GO, (lock_number(*key),)).fetchall()

    run_lock_machine(replace(lock_side(postgres), expire_lease=expire_lease), postgres.wipe, bounded_profile)


def test_the_general_way_answers_as_the_rule(memory: Side) -> None:
    run_lock_machine(
        lock_side(memory, GeneralContender), memory.wipe, hypothesis.settings(SEARCH, max_examples=40)
    )


class LetsTheSameNameIn(GeneralContender):
    """Takes a holder's name for the holder."""

    @override
    def acquire(self, claim: LockClaim) -> LockInfo | None:
        def rule(stored: LockInfo | None, now: datetime) -> LockInfo | None:
            same = stored is not None and stored.holder_id == claim.holder_id
            free = stored.evolve(expires_at=now) if stored is not None and same else stored
            return rules.acquired(free, claim, now)

        return self._step(claim.key, rule)


class RenewsWhatHasEnded(GeneralContender):
    """Ignores the end of the lease."""

    @override
    def renew(self, owned: LockInfo, lease: timedelta) -> LockInfo | None:
        def rule(stored: LockInfo | None, now: datetime) -> LockInfo | None:
            alive = stored if stored is None else stored.evolve(expires_at=now + lease)
            return rules.renewed(alive, owned, lease, now)

        return self._step((owned.tenant_id, owned.lock_key), rule)


class ReleasesLate(GeneralContender):
    """Reports a release of locks that it no longer owned."""

    @override
    def release(self, owned: LockInfo) -> bool:
        return super().release(owned) or True


@pytest.mark.parametrize(
    "wrong",
    [LetsTheSameNameIn, RenewsWhatHasEnded, ReleasesLate],
)
def test_statements_that_are_wrong_in_one_point_are_found(
    memory: Side, wrong: Callable[[Access], Contender]
) -> None:
    with pytest.raises(WrongLockError):
        run_lock_machine(lock_side(memory, wrong), memory.wipe, SEARCH)
