"""What a closed storage means to calls of MongoDB that are under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pymongo.errors import AutoReconnect
from pymongo.synchronous.pool import Connection

import twinstore
from twinstore.errors import TwinstoreError
from twinstore.testing.scheduler.builders import make_run
from twinstore_mongo.client import connection

if TYPE_CHECKING:
    from tests.databases import MongoDatabase


def test_a_call_whose_storage_is_closed_meanwhile_makes_no_client_of_its_own(
    mongo_database: MongoDatabase, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = twinstore.add_scheduler_storage(mongo_database.config)
    storage.runs.create(make_run(tenant, "stored"))
    made: list[object] = []

    def meanwhile(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(connection, "new_client", lambda *_: made.append(None))
        storage.close()
        raise AutoReconnect("the connection is gone")

    monkeypatch.setattr(Connection, "receive_message", meanwhile)
    with pytest.raises(TwinstoreError):
        storage.runs.get(tenant, "stored")
    assert made == []
