from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from subprocess import run
from traceback import format_exception
from typing import TYPE_CHECKING, Any

import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient

import twinstore
from twinstore.errors import ConfigurationError, TimeoutExceededError, ValidationError
from twinstore.testing.entities import COUNTERS, KIT, NOTES
from twinstore.testing.entities import MODULE as KIT_MODULE
from twinstore_mongo.client.positions import PointInTime, position_of, timestamp_of
from twinstore_mongo.mapping.layout import collection_specs
from twinstore_mongo.schema.steps import Step
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from tests.support.databases import MongoServer
    from twinstore.scheduler.storage import SchedulerStorage

TENANT = "tenant-1"
LATER = datetime(2025, 10, 26, 15, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_describing_the_driver_imports_no_client_library() -> None:
    code = (
        "import sys, twinstore_mongo.plugin as plugin; plugin.twinstore_register_backend(); "
        "sys.exit('pymongo' in sys.modules or 'bson' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_connection_string_is_secret() -> None:
    settings = MongoSettings.model_validate({"ConnectionString": "mongodb://u:hunter2@h/db"})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json()


def test_neither_a_connection_string_nor_a_client_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="ConnectionString"):
        twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": {"Database": "db"}}})


def test_a_database_must_be_named_somewhere() -> None:
    url = {"Persistence": {"Mongo": {"ConnectionString": "mongodb://127.0.0.1:1"}}}
    with (
        twinstore.add_scheduler_mongo_storage(url) as storage,
        pytest.raises(ConfigurationError, match="No MongoDB database"),
    ):
        storage.runs.get(TENANT, "r-1")


def test_a_server_that_is_away_was_looked_for_as_long_as_the_message_says() -> None:
    """What the connection string says wins over the settings."""
    url = {
        "Persistence": {
            "Mongo": {
                "ConnectionString": "mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=50",
                "ServerSelectionTimeoutMs": 70,
            }
        }
    }
    with (
        twinstore.add_scheduler_mongo_storage(url) as storage,
        pytest.raises(TimeoutExceededError, match="answered within 50 ms"),
    ):
        storage.runs.get(TENANT, "r-1")


@pytest.mark.parametrize("url", ["mongodb://u:p4ss:word@/x@127.0.0.1:1/db", "mongodb://u:p4ss%word@h/db"])
def test_a_malformed_connection_string_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": {"ConnectionString": url}}}).runs.get(
            TENANT, "r-1"
        )
    assert "malformed" in str(caught.value)
    assert "p4ss" not in "".join(format_exception(caught.value))


def test_positions_survive_as_text() -> None:
    assert position_of(Timestamp(1763632800, 5)) == "1763632800.5"
    assert timestamp_of("1763632800.5") == Timestamp(1763632800, 5)


@pytest.mark.parametrize(
    "position", ["", "5", "1.2.3", "-1.5", "9999999999.1", f"1763632800.{chr(0x665)}", "0/16B3748"]
)
def test_a_position_of_another_store_is_refused(position: str) -> None:
    with pytest.raises(ValidationError, match="position"):
        timestamp_of(position)


def test_a_point_in_time_is_part_of_the_read_concern() -> None:
    assert PointInTime(Timestamp(5, 6)).document == {"level": "snapshot", "atClusterTime": Timestamp(5, 6)}


def over(client: object, **settings: object) -> SchedulerStorage:
    mongo = {"Client": client, "Database": "db", **settings}
    return twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": mongo}})


def test_the_client_of_the_caller_stays_open(mongo_server: MongoServer) -> None:
    with MongoClient[dict[str, Any]](mongo_server.url) as client:
        with over(client) as storage:
            assert storage.bulk.position()
        assert client.admin.command("ping")["ok"] == 1


class MongoClientOfAnotherLibrary:
    """Looks like none of pymongo."""


@pytest.mark.parametrize("client", [MongoClientOfAnotherLibrary(), "mongodb://u:hunter2@h"])
def test_a_client_of_another_library_is_refused_by_its_class(client: object) -> None:
    with (
        over(client) as storage,
        pytest.raises(ConfigurationError, match=r"OfAnotherLibrary; pass|str; pass") as caught,
    ):
        storage.runs.get(TENANT, "r-1")
    assert "pymongo.MongoClient" in caught.value.message
    assert "hunter2" not in str(caught.value)


RENAMED = replace(COUNTERS, collection_setting="CountersCollection")
RENAMING = replace(KIT_MODULE, catalog=replace(KIT, entities=(NOTES, RENAMED)))


def test_the_migrations_of_a_renamed_entity_make_the_named_collection() -> None:
    step = Step("001_kit", "sha256:0", collection_specs(RENAMING.catalog))
    renamed = step.renamed({"counters": "tallies"})
    assert [item.name for item in renamed.collections] == ["notes", "tallies"]
    assert renamed.checksum == step.checksum


def test_a_collection_is_named_in_the_settings() -> None:
    settings = MongoSettings.model_validate(
        {"ConnectionString": "mongodb://h/db", "Collections": {"counters": "tallies"}}
    )
    assert settings.collections == {"counters": "tallies"}
    with pytest.raises(ConfigurationError, match="Collections:schedules"):
        over(MongoClient(connect=False), Collections={"schedules": ""})


def test_a_collection_whose_name_is_fixed_is_not_named_otherwise() -> None:
    with pytest.raises(ConfigurationError, match="always called runs") as caught:
        over(MongoClient(connect=False), Collections={"runs": "history"})
    assert caught.value.driver == "Mongo"
