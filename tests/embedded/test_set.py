"""The replica set of several members: elected, halted, resumed, and stopped with its parent process."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from pymongo import MongoClient

import twinstore_embedded

pytestmark = pytest.mark.long


def test_members_come_and_go_and_keep_what_a_majority_has() -> None:
    directory = Path(tempfile.mkdtemp(prefix="twinstore-set-"))
    try:
        members = twinstore_embedded.start_mongo_set(directory, owned=True)
        assert len(members.ports) == 3
        with closing(MongoClient[dict[str, object]](members.url, w="majority")) as client:
            rows = client["twinstore"]["rows"]
            rows.insert_one({"_id": 1})
            first = members.primary()
            members.step_down()
            second = members.primary()
            assert second != first
            rows.insert_one({"_id": 2})
            members.halt(second)
            third = members.primary()
            assert third != second
            assert [row["_id"] for row in rows.find().sort("_id")] == [1, 2]
            members.resume(second)
            # Neither alone is a majority: the one that came back is needed.
            members.halt(third)
            assert members.primary() != third
        again = twinstore_embedded.start_mongo_set(directory)
        assert again.ports == members.ports
    finally:
        assert twinstore_embedded.stop(directory) == ("mongo-set",)
        shutil.rmtree(directory)
