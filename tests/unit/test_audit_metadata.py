"""The default metadata of the audit service is given where a storage is opened, or by the settings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import twinstore
from twinstore import aio
from twinstore.errors import ConfigurationError
from twinstore.testing.scheduler.builders import make_audit_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore import SchedulerStorage

EVENT = make_audit_event("acme", metadata={"ZONE": "us"})
GIVEN = {"audit_metadata": {"Host": "h-1", "zone": "eu"}}
EXPECTED = {"host": "h-1", "zone": "us"}


def config(**storage: object) -> Mapping[str, object]:
    return {
        "Persistence": {"Scheduler": "Memory", "Memory": {"Store": uuid4().hex}},
        "Scheduler": {"Storage": storage},
    }


def written(storage: SchedulerStorage) -> list[dict[str, str]]:
    """Return the metadata of an event that is written alone, in a session and in a unit of work."""
    found = [dict(storage.audit_service.write(EVENT).metadata)]
    with storage.sessions.open("acme") as session:
        found.append(dict(session.audit_service.write(EVENT).metadata))
    with storage.transaction("acme") as unit:
        found.append(dict(unit.audit_service.write(EVENT).metadata))
    return found


def test_it_is_an_argument_of_every_function_that_opens_a_storage() -> None:
    with twinstore.add_scheduler_memory_storage(config(), options=GIVEN) as storage:
        assert written(storage) == [EXPECTED] * 3
    with twinstore.add_scheduler_storage(config(), options=GIVEN) as storage:
        assert written(storage) == [EXPECTED] * 3
    with twinstore.open_storage(config(), options={"scheduler": GIVEN}) as opened:
        assert written(opened.scheduler) == [EXPECTED] * 3


def test_it_is_an_argument_of_the_storage_for_asyncio() -> None:
    async def work() -> dict[str, str]:
        async with aio.open_storage(config(), options={"scheduler": GIVEN}) as opened:
            return dict((await opened.scheduler.audit_service.write(EVENT)).metadata)

    assert asyncio.run(asyncio.wait_for(work(), timeout=100)) == EXPECTED


def test_it_is_a_section_of_the_settings_below_what_the_host_gives_at_run_time() -> None:
    settings = config(AuditMetadata={"Host": "of-the-file", "Release": "7"})
    with twinstore.add_scheduler_storage(settings) as storage:
        assert written(storage) == [{"host": "of-the-file", "release": "7", "zone": "us"}] * 3
    with twinstore.add_scheduler_storage(settings, options=GIVEN) as storage:
        assert written(storage) == [{"host": "h-1", "release": "7", "zone": "us"}] * 3


def test_it_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("Scheduler__Storage__AuditMetadata__HOST", "h-2")
    with twinstore.add_scheduler_storage(config()) as storage:
        assert written(storage) == [{"host": "h-2", "zone": "us"}] * 3


@pytest.mark.parametrize("value", ["a\x00b", 3])
def test_what_no_metadata_can_be_is_refused_before_anything_is_opened(value: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Scheduler:Storage:AuditMetadata:host .*\(the argument options\)"
    ):
        twinstore.open_storage(config(), options={"scheduler": {"audit_metadata": {"host": value}}})
    refused = "Scheduler:Storage:AuditMetadata in the argument options is a section, but has a value"
    with pytest.raises(ConfigurationError, match=refused):
        twinstore.open_storage(config(), options={"scheduler": {"audit_metadata": "host"}})
