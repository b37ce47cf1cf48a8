"""A script opens one module by a URL alone; a function takes a storage or a unit of work by one type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from pydantic import SecretStr

import twinstore
from tests.support.leaks import MONGO, PASSWORD, POSTGRES
from twinstore import ConfigurationError, aio, open_storage
from twinstore.scheduler import SchedulerSession, SchedulerStorage
from twinstore.taskrunner import TaskRunnerSession, TaskRunnerStorage
from twinstore.tracking import TrackingStorage, TrackingUnit

if TYPE_CHECKING:
    from pathlib import Path

MEMORY: Final = {"Persistence": dict.fromkeys(("Scheduler", "Tracking", "TaskRunner"), "Memory")}


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        (MONGO, "Mongo"),
        (MONGO.replace("mongodb:", "MongoDB:"), "Mongo"),
        (SecretStr(POSTGRES), "Postgres"),
        ("env:URL", "Postgres"),
    ],
)
def test_the_scheme_of_a_url_chooses_the_driver(
    url: str | SecretStr, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("URL", POSTGRES)
    with open_storage(url=url, module="Scheduler") as storage:
        assert storage.scheduler.driver == driver
        assert PASSWORD not in repr(vars(storage))


def test_a_file_holds_the_url_and_asyncio_reads_it_too(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{MONGO}\n", "utf-8")
    assert aio.open_storage(url=f"file:{file}", module="scheduler").scheduler.driver == "Mongo"


def test_a_url_reads_no_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("Persistence__Scheduler", "Memory")
    monkeypatch.setenv("Persistence__Postgres__OwnerConnectionString", MONGO)
    monkeypatch.setenv("TWINSTORE_CONFIG", "/missing.json")
    with open_storage(url=POSTGRES, module="scheduler") as storage:
        assert storage.scheduler.driver == "Postgres"
        with pytest.raises(ConfigurationError, match="Persistence:Tracking is not set"):
            _ = storage.tracking


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://", "and this one has another"),
        ("hidden-password://host", "and this one has another"),
        ("env:MISSING", "variable 'MISSING', which is not set; set it"),
        ("env:\ud800", "which is not set"),
        ("file:/missing", "does not exist"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        open_storage(url=url, module="scheduler")
    assert "hidden" not in str(caught.value)


def test_a_url_is_given_with_its_module_and_without_settings() -> None:
    with pytest.raises(ConfigurationError, match="Give url and module together"):
        open_storage(url=MONGO)
    with pytest.raises(ConfigurationError, match="Give url and module together"):
        open_storage(module="scheduler")
    with pytest.raises(ConfigurationError, match="without config"):
        open_storage({}, url=MONGO, module="scheduler")


def count_of_schedules(repositories: SchedulerSession) -> int:
    return len(repositories.schedules.list("acme"))


def test_one_type_is_a_storage_a_session_and_a_unit_of_work() -> None:
    kinds = {SchedulerStorage: SchedulerSession, TrackingStorage: TrackingUnit}
    assert all(issubclass(storage, unit) for storage, unit in kinds.items())
    assert issubclass(TaskRunnerStorage, TaskRunnerSession)
    with open_storage(MEMORY) as storage:
        scheduler = storage.scheduler
        assert count_of_schedules(scheduler) == 0
        assert scheduler.transact(count_of_schedules, tenant_id="acme") == 0
        with scheduler.sessions.open("acme") as session:
            assert count_of_schedules(session) == 0
    with pytest.raises(ConfigurationError, match="This storage is closed"):
        count_of_schedules(scheduler)


def test_the_classes_of_a_module_are_those_of_the_library() -> None:
    assert twinstore.SchedulerStorage is SchedulerStorage
    assert twinstore.TrackingUnit is TrackingUnit
