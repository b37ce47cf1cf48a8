"""The page and the notebook about migrations from Python run, and print what they show."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient

from tests.docs.pages import DOCS
from tests.docs.test_snippets import TWO_STORES, run_page
from tests.support.copies import fill, open_store, server_settings, write_config
from twinstore.config import load_settings

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, PostgresDatabase

NOTEBOOK: Final = Path(__file__).parents[3] / "samples/python/migration.ipynb"


@pytest.fixture
def source(
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> MongoDatabase:
    """Fill a store of MongoDB, and name it and an empty one of PostgreSQL in the settings."""
    # The service still uses MongoDB.
    settings = server_settings(postgres_database, mongo_database, validators=False)
    file = write_config(tmp_path / "settings.json", settings)
    with open_store("scheduler", "Mongo", load_settings(file)) as store:
        fill(store.storage)
    monkeypatch.setenv("TWINSTORE_CONFIG", str(file))
    monkeypatch.chdir(tmp_path)
    return mongo_database


def test_the_page_prints_what_it_shows(source: MongoDatabase, tmp_path: Path) -> None:
    del source
    run_page(DOCS / TWO_STORES, tmp_path)


def test_the_notebook_prints_what_it_shows(source: MongoDatabase) -> None:
    with MongoClient[dict[str, Any]](source.url) as client:
        runs = client[source.name]["runs"]
        for run in runs.find({"tenantId": "acme"}).sort("_id").limit(3):
            runs.update_one({"_id": run["_id"]}, {"$set": {"legacyQueue": "old"}})
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            printed = StringIO()
            with redirect_stdout(printed):
                exec("".join(cell["source"]), names)  # noqa: S102  # our own notebook
            shown = "".join(line for output in cell["outputs"] for line in output["text"])
            # Parts that are copied at the same time end in any order.
            assert sorted(printed.getvalue().splitlines()) == sorted(shown.splitlines()), cell["id"]
