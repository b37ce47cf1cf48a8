"""A module of data alone, from its one file: migrated, copied both ways, compared, repaired and proved."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.copies import Answer, invoke, write_config
from tests.support.distributions import install_distribution
from tests.support.servers import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer

Document = dict[str, Any]
NOW: Final = datetime.now(UTC).replace(microsecond=0)
WITHOUT: Final = "the module is one of data alone and has no repositories"
FILMS: Final[list[Document]] = [
    {
        "_id": f"film-{number}",
        "title": f"Film {number}",
        "genres": ["drama", "noir"][: number % 3],
        "rating": {"site": "ofdb", "score": 8.5, "votes": 2**40 + number},
        "roles": [{"actor": f"Actor {number}", "part": "Maria"}],
        "updatedAt": NOW,
    }
    for number in range(1, 8)
]
SHOWINGS: Final[list[Document]] = [
    {"_id": "ended", "filmId": "film-1", "endsAt": NOW - timedelta(hours=1)},
    {"_id": "later", "filmId": "film-1", "endsAt": NOW + timedelta(hours=1)},
]
VISITS: Final[list[Document]] = [
    {"_id": "old", "page": "/", "seenAt": NOW - timedelta(hours=1)},
    {"_id": "new", "page": "/", "seenAt": NOW},
]


@dataclass(frozen=True)
class Films:
    """A MongoDB with films, and an empty PostgreSQL."""

    config: Path
    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *command: object) -> Answer:
        """Run a command."""
        return invoke(self.capsys, "--config", self.config, *command)

    def backfill(self, command: str, *more: object, to: str = "Postgres") -> Answer:
        """Run a command of the backfill from one database to the other."""
        other = "Mongo" if to == "Postgres" else "Postgres"
        sides = ("--from", other, "--to", to, "--module", "films", "--format", "json")
        return self("backfill", *command.split(), *sides, *more)


def settings_of(mongo: MongoDatabase, postgres: PostgresDatabase, **options: object) -> Settings:
    """Return the settings of both databases."""
    both = {**mongo.config["Persistence"], **postgres.config["Persistence"]}  # type: ignore[dict-item]
    drivers = {name: both[name] for name in ("Mongo", "Postgres")}
    return {"Persistence": {**drivers, "Films": "Mongo"}, "Films": options}


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
    films = Films(write_config(tmp_path / "settings.json", settings), tmp_path, capsys)
    assert films("dev", "migration", "films", "create_films").code == 0
    assert sorted(path.name for path in (package / "migrations").iterdir()) == ["mongo", "postgres"]
    for backend in ("Postgres", "Mongo"):
        answer = films("migrate", "run", "--module", "films", "--backend", backend)
        assert answer.code == 0, answer.err
    assert films("dev", "schema", "films", "--backend", "Postgres").code == 0
    database = mongo_server.client[empty_mongo_database.name]
    for name, documents in (("films", FILMS), ("showings", SHOWINGS), ("visits", VISITS)):
        database[name].insert_many(documents)
    return films


def test_data_is_copied_both_ways_and_the_verdict_names_what_was_not_compared(
    films: Films, mongo_server: MongoServer, empty_mongo_database: MongoDatabase
) -> None:
    out = ("--out", films.directory / "out")
    assert films.backfill("plan").code == 0
    totals = films.backfill("copy", "--execute", *out).json["totals"]
    assert (totals["written"], totals["quarantined"]) == (len(FILMS) + len(SHOWINGS) + len(VISITS), 0)
    again = films.backfill("copy", "--execute", "--out", films.directory / "again").json["totals"]
    assert again["written"] == 0

    report = films.backfill("verify", "--require-cutover-ready").json
    assert (report["verdict"], report["exit_code"], report["cutover_ready"]) == ("PASS", 0, True)
    assert report["next_step"].startswith("Lists and locks were not compared, because the module has no")
    skipped = {check["id"]: check["summary"] for check in report["checks"] if check["result"] == "skipped"}
    assert skipped == {"C5": WITHOUT, "C6": WITHOUT}

    database = mongo_server.client[empty_mongo_database.name]
    for name in ("visits", "showings", "films"):
        database[name].delete_many({})
    back = films.backfill("copy", "--execute", "--out", films.directory / "back", to="Mongo")
    assert back.json["totals"]["written"] == totals["written"]
    stored = [
        {name: value for name, value in row.items() if name != "_version"} for row in database["films"].find()
    ]
    assert (
        stored == [{**row, "updatedAt": row["updatedAt"].replace(tzinfo=None)} for row in FILMS]
        or stored == FILMS
    )
    assert films.backfill("verify", to="Mongo").json["verdict"] == "PASS"


def test_a_planted_difference_is_found_and_repaired(
    films: Films, mongo_server: MongoServer, empty_mongo_database: MongoDatabase
) -> None:
    assert films.backfill("copy", "--execute", "--out", films.directory / "out").code == 0
    database = mongo_server.client[empty_mongo_database.name]
    database["films"].update_one({"_id": "film-3"}, {"$set": {"rating.votes": 5}})
    database.command(
        "insert", "films", documents=[{"_id": "bad", "title": 17}], bypassDocumentValidation=True
    )
    found = films.backfill("verify", "--out", films.directory / "report")
    assert found.json["verdict"] == "FAIL"
    fields = found.json["entities"][0]["fields"]
    assert [item["path"] for item in fields if item["kind"] == "different"] == ["doc.rating.votes"]
    differences = films.directory / "report/differences.ndjson"
    repaired = films.backfill(
        "repair", "--from-report", differences, "--execute", "--out", films.directory / "r"
    )
    assert repaired.code in {0, 3}, repaired.err
    assert films.backfill("verify").json["verdict"] == "INCONCLUSIVE"  # one is in quarantine
    listed = films(
        "backfill", "quarantine", "list", "--to", "Postgres", "--module", "films", "--format", "json"
    )
    assert listed.code == 0, listed.err


def test_the_selftest_finds_every_corruption_of_it(
    films: Films,
    mongo_server: MongoServer,
    postgres_server: PostgresServer,
) -> None:
    with mongo_server.database() as documents, postgres_server.empty_database() as tables:
        scratch = write_config(films.directory / "scratch.json", settings_of(documents, tables))
        answer = films.backfill(
            "selftest",
            "--scratch-source-config",
            scratch,
            "--scratch-config",
            scratch,
            "--out",
            films.directory,
        )
    assert answer.code == 0, (answer.out, answer.err)


def test_a_smoke_test_says_what_the_module_does_not_have(films: Films) -> None:
    answer = films("smoke", "--module", "films", "--backend", "Mongo", "--format", "json")
    assert answer.code == 0, answer.err
    steps = {step["step"]: (step["result"], step["summary"]) for step in answer.json["steps"]}
    assert steps["schema"][0] == "pass"
    skipped = {name for name, step in steps.items() if step == ("skipped", WITHOUT)}
    assert skipped == {"C5 list order", "C6 lock smoke test", "trial"}
