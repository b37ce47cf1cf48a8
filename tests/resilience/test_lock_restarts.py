"""The server of a lock is killed and restarted while the lock is held: others still wait for its lease."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
import twinstore_embedded
from tests.support.servers import mongo_config, postgres_config
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import LeaseLostError
from twinstore.scheduler.catalog import LOCKS
from twinstore.scheduler.repositories.locks import Locks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Settings
    from twinstore.scheduler.locks import LockHandle, LockInfo
    from twinstore.scheduler.storage import SchedulerStorage

KEY: Final = "shared"
NOW: Final = timedelta(0)
# Longer than any restart takes: no lease ends before a test says so.
HOUR: Final = timedelta(hours=1)


@pytest.fixture
def directory() -> Iterator[Path]:
    # Not tmp_path: pytest closes its parents to the user that PostgreSQL runs as under root.
    path = Path(tempfile.mkdtemp(prefix="twinstore-restarted-"))
    path.chmod(0o711)
    yield path
    twinstore_embedded.stop(path)
    shutil.rmtree(path)


def mongo(directory: Path) -> tuple[int, Settings]:
    """Start the mongod, or start it again; return its process and the settings."""
    server = twinstore_embedded.start_mongo(directory, owned=True)
    return server.pid, mongo_config(server.url, "restarted")


def postgres(directory: Path) -> tuple[int, Settings]:
    """Start the PostgreSQL, or start it again; return its process and the settings."""
    server = twinstore_embedded.start_postgres(directory, owned=True)
    return server.pid, postgres_config(server.app_url(), server.owner_url())


def stored(storage: SchedulerStorage) -> LockInfo:
    """Return the row of the lock."""
    found = storage.locks.inspect(KEY)
    assert found is not None
    return found


def expire(storage: SchedulerStorage) -> None:
    """Let the lease end now, as if its time had passed."""
    locks = storage.locks
    assert isinstance(locks, Locks)
    lock = stored(storage)
    earlier = lock.acquired_at - 2 * HOUR
    aged = lock.evolve(acquired_at=earlier, expires_at=lock.acquired_at, renewed_at=None)
    locks.access.put(LOCKS, ALL_TENANTS, Row(aged))


def existing_table_differences(storage: SchedulerStorage, late: LockHandle) -> None:
    """Let the next one in when the lease ends and not before; the late holder changes nothing then."""
    assert storage.locks.try_acquire(KEY, NOW) is None
    expire(storage)
    with storage.locks.acquire(KEY, NOW, holder_id=late.holder_id) as owner:
        assert owner.fence == late.fence + 1
        before = stored(storage)
        with pytest.raises(LeaseLostError):
            late.renew()
        assert (late.is_held(), late.release()) == (False, False)
        assert stored(storage) == before


def test_a_lease_outlives_the_restart_of_mongod(directory: Path) -> None:
    process, settings = mongo(directory)
    with twinstore.open_storage(settings) as opened:
        storage = opened.scheduler
        storage.initializer.ensure_migrations()
        handle = storage.locks.acquire(KEY, NOW, lease=HOUR)
        os.kill(process, signal.SIGKILL)
        assert mongo(directory)[1] == settings
        # There is only the document, and a majority had it.
        assert handle.renew() == stored(storage).expires_at
        assert (handle.is_held(), stored(storage).fence) == (True, 1)
        existing_table_differences(storage, handle)


def test_a_restart_of_postgres_ends_a_lock_for_its_holder_and_not_for_others(directory: Path) -> None:
    """The advisory lock is gone with the connection, and the row keeps others out until the lease ends."""
    process, settings = postgres(directory)
    with twinstore.open_storage(settings) as opened:
        storage = opened.scheduler
        storage.initializer.ensure_migrations()
        idle, lost, kept = (storage.locks.acquire(key, NOW, lease=HOUR) for key in ("idle", "other", KEY))
        assert idle.release()
        os.kill(process, signal.SIGKILL)
        assert postgres(directory)[1] == settings
        with pytest.raises(LeaseLostError, match="connection was lost"):
            lost.renew()
        assert (lost.is_held(), lost.release()) == (False, False)
        # The idle connection is gone too; the next lock opens another one.
        existing_table_differences(storage, kept)
