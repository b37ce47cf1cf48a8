from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.drivers.mongo.mongomock_deployment import mongomock_deployments
from tests.support.recording import is_listed
from twinstore.plugins.backend import CAPABILITY_NAMES
from twinstore.testing import BulkContract, PagingContract, RangeWriterContract
from twinstore.testing.scheduler import SchedulerContract
from twinstore.testing.taskrunner import TaskRunnerContract
from twinstore.testing.tracking import TRACKING_EXAMPLES, TrackingContract

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory

SKIPPED_TESTS: Final = {*vars(PagingContract), *vars(BulkContract), *vars(RangeWriterContract)}
# What it lacks of what a driver may declare, and why.
LACKS: Final = {
    "transactions": "mongomock has no sessions, so nothing spans two calls",
    "sessions": "mongomock refuses every session",
    "point_in_time_reads": "there is no cluster time and no history",
    "change_stream": "there is no oplog",
    "bulk": "there are no raw batches of BSON, because documents stay Python values",
    "bulk_target": "the same",
    "cross_process_locks": "the data lives in one process",
    "row_level_security": "as MongoDB itself",
}
# An update reads and writes in two steps there, so that of two threads each may undo what the other wrote.
RIVALS: Final = {
    "test_writers_at_once_get_numbers_of_their_own",
    "test_writers_of_the_same_entries_write_each_once",
}


@pytest.fixture(autouse=True)
def one_writer_at_a_time(request: pytest.FixtureRequest) -> None:
    if request.function.__name__ in RIVALS:
        pytest.skip("mongomock has no atomic updates")


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return mongomock_deployments


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether other cases send what this one sends, or it is about long lists or about copies."""
    return test in SKIPPED_TESTS or not is_listed("mongo", kit, test, case)


class TestScheduler(SchedulerContract):
    """Over mongomock, for speed and never for proof: a real MongoDB passes the same in every run."""


class TestTracking(TrackingContract):
    """As above."""


class TestTaskRunner(TaskRunnerContract):
    """As above."""


def test_what_mongomock_lacks_is_listed_by_name() -> None:
    with mongomock_deployments(TRACKING_EXAMPLES.module) as deployment, deployment.open() as storage:
        missing = {name for name in CAPABILITY_NAMES if not getattr(storage.capabilities, name)}
    assert missing == LACKS.keys()
