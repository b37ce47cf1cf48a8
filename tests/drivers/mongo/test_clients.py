"""Clients that an application made for itself: each works as it is, or is refused with one sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from bson import SON
from bson.codec_options import TypeDecoder, TypeRegistry
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.server_api import ServerApi
from typing_extensions import override

import twinstore
from twinstore.catalog.keys import KeyRange
from twinstore.errors import ConfigurationError, DuplicateError
from twinstore.scheduler import ExecutionLogEntry
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.databases import MongoDatabase
    from twinstore.scheduler.storage import SchedulerStorage


class Shouting(TypeDecoder):
    """Reads every text and instant as another one."""

    def __init__(self, bson_type: type) -> None:
        self._type = bson_type

    @property
    @override
    def bson_type(self) -> Any:
        return self._type

    @override
    def transform_bson(self, value: object) -> str:
        return f"{value}!"


WORKING: Final[dict[str, dict[str, Any]]] = {
    "as pymongo makes it": {},
    "a stable API that is not strict": {"server_api": ServerApi("1", deprecation_errors=True)},
    "tz_aware": {"tz_aware": True, "tzinfo": timezone(timedelta(hours=5))},
    "document_class SON": {"document_class": SON},
    "document_class RawBSONDocument": {"document_class": RawBSONDocument},
    "type_registry": {"type_registry": TypeRegistry([Shouting(str), Shouting(datetime)])},
    "uuidRepresentation": {"uuidRepresentation": "javaLegacy"},
    "unicode_decode_error_handler": {"unicode_decode_error_handler": "ignore"},
    "datetime_conversion": {"datetime_conversion": "DATETIME_MS"},
    "without retries": {"retryWrites": False, "retryReads": False},
    "w=0": {"w": 0},
    "a read preference": {"readPreference": "secondary"},
    "a read concern": {"readConcernLevel": "local"},
    "timeoutMS": {"timeoutMS": 20_000},
    "without a time limit": {"timeoutMS": 0},
    "socketTimeoutMS": {"socketTimeoutMS": 20_000},
    "one connection": {"maxPoolSize": 1},
    "connects later": {"connect": False},
}
STRICT: Final = r"^Client was created with ServerApi\(strict=True\), .* without it"


@pytest.fixture
def opened(
    request: pytest.FixtureRequest, module_mongo_database: MongoDatabase
) -> Iterator[SchedulerStorage]:
    with MongoClient[Any](module_mongo_database.url, **request.param) as client:
        mongo = {"Client": client, "Database": module_mongo_database.name}
        with twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": mongo}}) as storage:
            yield storage


@pytest.mark.parametrize("opened", WORKING.values(), ids=WORKING, indirect=True)
def test_a_client_works_as_its_owner_made_it(
    opened: SchedulerStorage, module_mongo_database: MongoDatabase
) -> None:
    tenant = uuid4().hex
    opened.check_ready()
    opened.initializer.ensure_migrations()
    run = opened.runs.create(make_run(tenant, f"{tenant} 1"))
    with pytest.raises(DuplicateError):
        opened.runs.create(run)
    assert opened.runs.get(tenant, run.id) == run
    line = ExecutionLogEntry(
        tenant_id=tenant, run_id=run.id, logged_at=at(), message="it began", data={"a": [1, {"b": 2.5}]}
    )
    (logged,) = opened.execution_logs.append([line])
    with opened.transaction(tenant) as unit:
        assert unit.runs.get(tenant, run.id) == run
        unit.runs.create(make_run(tenant, f"{tenant} 2"))
    lock = opened.locks.try_acquire("job", timedelta(seconds=5), tenant_id=tenant)
    assert lock is not None
    assert abs(lock.acquired_at - datetime.now(UTC)) < timedelta(minutes=5)
    lock.release()
    with opened.bulk.view() as view:
        batches = view.records(RUNS, KeyRange(None, None), tenant_id=tenant)
        assert sum(map(len, batches)) == 2
    with twinstore.open_storage(module_mongo_database.config) as ours:
        assert ours.scheduler.runs.get(tenant, run.id) == run
        assert tuple(ours.scheduler.execution_logs.list(tenant, run.id)) == (logged,)


@pytest.mark.parametrize("opened", [{"server_api": ServerApi("1", strict=True)}], indirect=True)
@pytest.mark.parametrize(
    "call",
    [
        lambda storage: storage.check_ready(),
        lambda storage: storage.runs.get("acme", "run"),
        lambda storage: storage.locks.try_acquire("job", timedelta(seconds=5), tenant_id="acme"),
        lambda storage: storage.initializer.ensure_migrations(),
    ],
    ids=["check_ready", "get", "lock", "migrations"],
)
def test_a_strict_client_is_refused_with_one_sentence(
    opened: SchedulerStorage, call: Callable[[SchedulerStorage], object]
) -> None:
    with pytest.raises(ConfigurationError, match=STRICT):
        call(opened)


def test_a_session_of_a_strict_client_is_refused_as_well(module_mongo_database: MongoDatabase) -> None:
    strict = MongoClient[Any](module_mongo_database.url, server_api=ServerApi("1", strict=True))
    with (
        twinstore.open_storage(module_mongo_database.config) as storage,
        strict as client,
        client.start_session() as session,
        pytest.raises(ConfigurationError, match=STRICT),
    ):
        storage.scheduler.bind(session, "acme")
