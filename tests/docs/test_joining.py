"""What the page on threads shows of ``bind`` works: the transaction of the caller decides over both rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from pymongo import MongoClient

from tests.docs.pages import DOCS, blocks
from twinstore import open_storage
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, PostgresDatabase

PSYCOPG, PYMONGO = [block.body for block in blocks(DOCS / "concurrency.md") if ".bind(" in block.body]
RUN: Final = make_run("acme", "run-7")
TABLE: Final = """
CREATE TABLE orders (id integer PRIMARY KEY, run_id text);
INSERT INTO orders VALUES (4711, NULL);
GRANT SELECT, UPDATE ON orders TO PUBLIC
"""


class LateError(Exception):
    """Leaves the transaction of the caller."""


@pytest.mark.parametrize("fails", [False, True])
def test_a_connection_of_psycopg_is_joined(postgres_database: PostgresDatabase, *, fails: bool) -> None:
    with psycopg.connect(postgres_database.superuser_url) as owner:
        owner.execute(TABLE)
    with open_storage(postgres_database.config) as storage:
        run_block(PSYCOPG, fails=fails, storage=storage, application_url=postgres_database.app_url)
        assert (storage.scheduler.runs.get("acme", RUN.id) is None) == fails
    with psycopg.connect(postgres_database.superuser_url) as owner:
        assert owner.execute("SELECT run_id FROM orders").fetchall() == [(None if fails else RUN.id,)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_client_session_of_pymongo_is_joined(mongo_database: MongoDatabase, *, fails: bool) -> None:
    with (
        MongoClient[dict[str, Any]](mongo_database.url) as client,
        open_storage(mongo_database.config) as storage,
    ):
        storage.scheduler.initializer.ensure_migrations()
        client.shop.orders.insert_one({"_id": 4711})
        try:
            run_block(PYMONGO, fails=fails, storage=storage, client=client)
            assert (storage.scheduler.runs.get("acme", RUN.id) is None) == fails
            order = client.shop.orders.find_one({"_id": 4711})
            assert order == ({"_id": 4711} if fails else {"_id": 4711, "run_id": RUN.id})
        finally:
            client.drop_database("shop")


def run_block(code: str, *, fails: bool, **names: object) -> None:
    """Run a block of the page; if it has to fail, an exception ends it after its last line."""
    if not fails:
        exec(code, {"run": RUN, **names})  # noqa: S102  # the samples of our own pages
        return

    def leave() -> None:
        raise LateError

    with pytest.raises(LateError):
        exec(f"{code}    leave()\n", {"run": RUN, "leave": leave, **names})  # noqa: S102  # the same
