"""Any row that a PostgreSQL holds is copied, or kept back with its text; none of them stops anything."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import psycopg

from tests.backfill.hostile.documents import ENTITIES
from tests.backfill.hostile.judging import Figures, judge
from tests.backfill.hostile.rows import drop_rules, good_lines, hostile_rows, plant_rows, stored_lines
from tests.backfill.test_between_servers import opened

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase

ROWS: Final = int(os.environ.get("N", "1000"))
SEED = int(os.environ.get("SEED", "1"))


def test_lab(mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    persistence: dict[str, Any] = {}
    for database in (mongo_database, postgres_database):
        found = database.config["Persistence"]
        assert isinstance(found, dict)
        persistence |= found
    storage = {"Storage": {"RunRetentionDays": 0, "ImpactRetentionDays": 0}}
    settings = {"Persistence": persistence, "Scheduler": storage}
    figures = Figures()
    with (
        opened(settings, "postgres to mongo", tmp_path) as pair,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection,
    ):
        stored: dict[str, Counter[bytes]] = {}
        for entity in ENTITIES:
            good = good_lines(connection, pair.source.bulk, entity, 50)
            drop_rules(connection, entity)
            plant_rows(connection, entity, hostile_rows(entity, good, ROWS, SEED))
            stored[entity.name] = Counter(stored_lines(connection, entity))
        figures.add(judge(pair, stored, range_size=1000))
    print(figures.text())
