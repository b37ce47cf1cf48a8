"""A module of data alone, from its one file: migrated, copied both ways, compared, repaired and proved.

Its indexes inside of fields and its ages in seconds or at an instant are migrated and compared with it.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
import pytest

from tests.support.copies import Answer, invoke, write_config
from tests.support.distributions import install_distribution
from tests.support.films import FILMS as FILMS_DESCRIBED
from twinstore_backfill.outcome import Exit
from twinstore_backfill.verify.expected import Change, is_queried, queried_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer

Document = dict[str, Any]
Settings = dict[str, Any]
NOW: Final = datetime.now(UTC).replace(microsecond=0)
WITHOUT: Final = "the module is one of data alone and has no repositories"
FILMS: Final[list[Document]] = [
    {
        "_id": f"film-{number}",
        "title": f"Film {number}",
        "genres": ["noir", "drama"][: number % 3],
        "rating": {"site": "ofdb", "score": 8.5, "votes": 2**40 + number},
        "roles": [{"actor": f"Actor {number}", "part": "Maria"}],
        "updatedAt": NOW,
    }
    for number in range(1, 8)
]
SHOWINGS: Final[list[Document]] = [
    {"_id": "ended", "filmId": "film-1", "hall": "A", "endsAt": NOW - timedelta(hours=1)},
    {"_id": "later", "filmId": "film-1", "hall": "A", "endsAt": NOW + timedelta(hours=1)},
]
VISITS: Final[list[Document]] = [
    {"_id": "new", "page": "/", "seenAt": NOW + timedelta(hours=1)},
    {"_id": "old", "page": "/", "seenAt": NOW - timedelta(hours=1)},
]
ROWS: Final = {"films": FILMS, "showings": SHOWINGS, "visits": VISITS}
ALL: Final = sum(map(len, ROWS.values()))
AGES: Final[dict[str, Any]] = {"RemoveShowings": True, "KeepVisits": 90}


@dataclass(frozen=True)
class Films:
    """A MongoDB with films, and an empty PostgreSQL."""

    settings: Settings
    documents: Database[Document]
    tables: str
    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *command: object, **options: object) -> Answer:
        """Run a command with some options of the module."""
        config = write_config(self.directory / "settings.json", {**self.settings, "Films": options})
        return invoke(self.capsys, "--config", config, *command)

    def backfill(self, command: str, *more: object, to: str = "Postgres", **options: object) -> Answer:
        """Run a command of the backfill from one database to the other."""
        other = "Mongo" if to == "Postgres" else "Postgres"
        sides = ("--from", other, "--to", to, "--module", "films", "--format", "json")
        return self("backfill", *command.split(), *sides, *more, **options)

    def migrate(self, command: str, backend: str, *more: object, **options: object) -> Answer:
        """Run a command of the migrations of one database."""
        return self("migrate", command, "--module", "films", "--backend", backend, *more, **options)

    def copied(self, name: str, *more: object, **options: Any) -> dict[str, int]:  # noqa: ANN401  # of a module
        """Copy and return the totals."""
        answer = self.backfill("copy", "--execute", "--out", self.directory / name, *more, **options)
        totals: dict[str, int] = answer.json["totals"]
        return totals

    def stored(self) -> dict[str, list[Document]]:
        """Return all documents, without what the driver counts."""
        return {name: list(self.documents[name].find({}, {"_version": 0}).sort("_id")) for name in ROWS}


def settings_of(mongo: MongoDatabase, postgres: PostgresDatabase) -> Settings:
    """Return the settings of both databases."""
    sections: dict[str, Settings] = {}
    for name, config in (("Mongo", mongo.config), ("Postgres", postgres.config)):
        sections[name] = cast("dict[str, Settings]", config["Persistence"])[name]
    return {"Persistence": {**sections, "Films": "Mongo"}}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the one file as a package, whose author has written nothing else yet."""
    points = {"twinstore.modules": {"films": "films:PLUGIN"}}
    folder = install_distribution(monkeypatch, tmp_path, "acme-films", points) / "films"
    folder.mkdir()
    shutil.copy(Path(__file__).parents[2] / "support/films.py", folder / "__init__.py")
    yield folder
    sys.modules.pop("films", None)


@pytest.fixture
def films(  # noqa: PLR0917  # fixtures
    package: Path,
    mongo_server: MongoServer,
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Films:
    """Migrate both databases by the commands of an author, and fill the first as another program does."""
    settings = settings_of(empty_mongo_database, empty_postgres_database)
    documents = mongo_server.client[empty_mongo_database.name]
    films = Films(settings, documents, empty_postgres_database.owner_url, tmp_path, capsys)
    assert films("dev", "migration", "films", "create_films").code == 0
    assert sorted(path.name for path in (package / "migrations").iterdir()) == ["mongo", "postgres"]
    for backend in ("Postgres", "Mongo"):
        answer = films.migrate("run", backend)
        assert answer.code == 0, answer.err
    assert films("dev", "schema", "films", "--backend", "Postgres").code == 0
    for name, rows in ROWS.items():
        documents[name].insert_many(rows)
    return films


def test_data_is_copied_both_ways_and_the_verdict_names_what_was_not_compared(films: Films) -> None:
    before = films.stored()
    assert films.backfill("plan").code == 0
    assert (films.copied("out")["written"], films.copied("again")["written"]) == (ALL, 0)
    report = films.backfill("verify", "--require-cutover-ready").json
    assert (report["verdict"], report["exit_code"], report["cutover_ready"]) == ("PASS", 0, True)
    assert report["next_step"].startswith("Lists and locks were not compared, because the module has no")
    skipped = {check["id"]: check["summary"] for check in report["checks"] if check["result"] == "skipped"}
    assert skipped == {"C5": WITHOUT, "C6": WITHOUT}

    for name in ROWS:
        films.documents[name].delete_many({})
    assert films.copied("back", to="Mongo")["written"] == ALL
    assert films.stored() == before
    assert films.backfill("verify", to="Mongo").json["verdict"] == "PASS"

    smoke = films("smoke", "--module", "films", "--backend", "Mongo", "--format", "json")
    assert smoke.code == 0, smoke.err
    steps = {step["step"]: (step["result"], step["summary"]) for step in smoke.json["steps"]}
    assert steps["schema"][0] == "pass"
    skipped_steps = {name for name, step in steps.items() if step == ("skipped", WITHOUT)}
    assert skipped_steps == {"C5 list order", "C6 lock smoke test", "trial"}


def test_a_difference_is_found_and_repaired_and_what_is_no_film_is_kept(films: Films) -> None:
    films.copied("out")
    films.documents["films"].update_one({"_id": "film-3"}, {"$set": {"rating.votes": 5}})
    films.documents.command(
        "insert", "films", documents=[{"_id": "bad", "title": 17}], bypassDocumentValidation=True
    )
    report = films.directory / "report"
    found = films.backfill("verify", "--out", report).json
    assert found["verdict"] == "FAIL"
    (entity, *_) = found["entities"]
    assert [item["path"] for item in entity["fields"] if item["kind"] == "different"] == ["doc.rating.votes"]
    repaired = films.backfill("repair", "--in", report, "--execute", "--out", films.directory / "mended")
    assert (repaired.code, repaired.json["repaired"]["written"]) == (Exit.INCONCLUSIVE, {"films": 1})
    again = films.backfill("verify").json
    assert (again["verdict"], again["entities"][0]["counts"]["quarantined"]) == ("INCONCLUSIVE", 1)
    assert films.copied("again")["quarantined"] == 1
    listed = films("backfill", "quarantine", "list", "--to", "Postgres", "--module", "films")
    assert (listed.code, "bad" in listed.out) == (0, True), listed.err


@pytest.mark.long
def test_the_selftest_finds_every_corruption_of_it(
    films: Films, mongo_server: MongoServer, postgres_server: PostgresServer
) -> None:
    with mongo_server.database() as documents, postgres_server.empty_database() as tables:
        scratch = write_config(films.directory / "scratch.json", settings_of(documents, tables))
        answer = films.backfill("selftest", "--scratch", scratch, "--out", films.directory / "selftest")
    assert answer.code == 0, (answer.out[-3000:], answer.err)


def test_indexes_inside_of_fields_are_made_and_compared(films: Films) -> None:
    assert films.migrate("verify", "Postgres").code == films.migrate("verify", "Mongo").code == 0
    assert films("dev", "migration", "films", "--check").code == 0
    plan = films.documents["films"].find({"rating.site": "ofdb", "rating.score": {"$gt": 8}}).explain()
    assert "ix_rating_site_rating_score_title" in str(plan["queryPlanner"]["winningPlan"])
    films.copied("out")
    with psycopg.connect(films.tables, autocommit=True) as tables:
        tables.execute("SET enable_seqscan = off")
        for where, index in (
            ("(rating->>'site') COLLATE \"C\" = 'ofdb' AND rating->'score' > '8'", "idx_films_rating"),
            ("genres @> '{noir}'", "idx_films_genres"),
            ("""roles @> '[{"actor": "Actor 3"}]'""", "idx_films_actor"),
        ):
            query = f"EXPLAIN SELECT id FROM films.films WHERE {where}"  # noqa: S608  # of this test
            assert index in str(tables.execute(query.encode()).fetchall())
        tables.execute("DROP INDEX films.idx_films_genres, films.idx_films_rating")
        tables.execute("CREATE INDEX idx_films_rating ON films.films ((rating->>'site'))")
    found = films.migrate("verify", "Postgres")
    assert (found.code, found.out.count("idx_films_genres") > 0) == (1, True)
    report = films.backfill("verify").json
    assert (report["verdict"], [item[:2] for item in report["reasons"]]) == ("INCONCLUSIVE", ["C8"])
    films.documents["films"].drop_index("ix_genres")
    assert "films.ix_genres is missing" in films.migrate("verify", "Mongo").out


def test_an_age_in_seconds_and_an_instant_of_expiry_are_judged_and_left_to_a_ttl_with_consent(
    films: Films,
) -> None:
    totals = films.copied("out", **AGES)
    assert (totals["written"], totals["expired"]) == (ALL - 2, 2)
    report = films.backfill("verify", **AGES).json
    assert (report["verdict"], report["documents_equal"]) == ("PASS", ALL - 2)
    assert films.copied("all")["written"] == 2
    purge = ("purge", "--module", "films", "--backend", "Postgres", "--execute", "--format", "json")
    purged = films(*purge, **AGES)
    assert {item["entity"]: item["rows"] for item in purged.json["entities"]} == {"showings": 1, "visits": 1}

    before = films.migrate("verify", "Mongo", **AGES)
    assert "showings.ix_endsAt removes rows never, but should after 0 s" in before.out
    assert "visits.ix_seenAt removes rows never, but should after 90 s" in before.out
    refused = films.migrate("run", "Mongo", **AGES)
    assert refused.code != 0
    assert "--accept-ttl showings=1 --accept-ttl visits=1" in refused.err
    accepted = ("--accept-ttl", "showings=1", "--accept-ttl", "visits=1")
    assert films.migrate("run", "Mongo", *accepted, **AGES).code == 0
    ages = {
        name: films.documents[name].index_information()[index]["expireAfterSeconds"]
        for name, index in (("showings", "ix_endsAt"), ("visits", "ix_seenAt"))
    }
    assert ages == {"showings": 0, "visits": 90}
    assert films.migrate("verify", "Mongo", **AGES).code == 0
    assert "removes rows after 0 s, but should never" in films.migrate("verify", "Mongo").out


@pytest.mark.parametrize(
    ("path", "queried"),
    [
        ("doc.title", True),
        ("doc.genres[1]", True),
        ("doc.rating", True),
        ("doc.rating.score", True),
        ("doc.rating.votes", False),
        ("doc.roles[3].actor", True),
        ("doc.roles[3].part", False),
        ("doc.updatedAt", False),
    ],
)
def test_an_equivalence_is_in_a_queried_value_where_an_index_leads(path: str, *, queried: bool) -> None:
    field = re.split(r"[.[]", path)[1]
    assert is_queried(Change("number_type", path, field), queried_fields(FILMS_DESCRIBED)) is queried
