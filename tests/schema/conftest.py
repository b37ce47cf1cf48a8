"""The database that several tests of schemas open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pymongo import MongoClient

from tests.support.foreign import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase


@pytest.fixture
def database(empty_mongo_database: MongoDatabase) -> Iterator[Database[Document]]:
    """Open a database without anything in it, past the library."""
    with MongoClient[Document](empty_mongo_database.url, tz_aware=True) as client:
        yield client[empty_mongo_database.name]
