"""The sample module: third-party code, installed as a third party does, copied and proved both ways."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest

from docs.parts.interface import MODULE_PARTS
from tests.support.copies import write_config
from tests.support.distributions import SAMPLES, imported, installed
from tests.support.servers import MONGO_URL, POSTGRES_URL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoServer, PostgresDatabase
    from tests.support.distributions import InstalledSample
    from tests.support.servers import ServerUrls, Settings

pytestmark = pytest.mark.long

ROOT: Final = SAMPLES.parent
FOLDER: Final = SAMPLES / "own_module"
FILES: Final = sorted(FOLDER.rglob("*.py"))
PACKAGE: Final = FOLDER / "acme_library"
ROWS: Final = {"acme": 5, "globex": 5, "copies": 10, "ddc": 5}
EQUAL: Final = {"books": 10, "copies": 10, "subjects": 5}
KIT: Final = ("pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-c", "pyproject.toml")
# What is planted into the repositories of the sample, and the case that must find it.
FAULTS: Final = {
    "books of all tenants are listed": (
        "books_query(self._admit(tenant_id),",
        'books_query(self._admit(tenant_id) and import_module("twinstore.catalog.tenancy").ALL_TENANTS,',
        "test_rows_of_another_tenant_do_not_exist",
    ),
    "any text is a key": (
        '(field_argument(Book, "id", book_id, "book_id"),)',
        "(book_id,)",
        "test_an_unacceptable_key_is_named_and_refused",
    ),
    "subjects of all schemes are listed": (
        'within = ("scheme",)',
        "within = ()",
        "test_all_pages_make_the_whole_list_in_order",
    ),
}
LISTS: Final = "3 lists with 15 rows compared"


@pytest.fixture(scope="module")
def installed_sample(tmp_path_factory: pytest.TempPathFactory) -> InstalledSample:
    return installed(FOLDER, tmp_path_factory.mktemp("own_module") / "venv")


class Side:
    """The library on one store, as its application and its operators reach it."""

    def __init__(
        self, installed_sample: InstalledSample, driver: str, settings: Settings, folder: Path
    ) -> None:
        """Write the settings that switch the library to a driver."""
        section = settings["Persistence"]
        assert isinstance(section, dict)
        persistence = {**section, "Library": driver}
        del persistence["Scheduler"]
        self.installed_sample = installed_sample
        self.driver = driver
        self.config = write_config(folder / f"{driver}-{id(self)}.json", {"Persistence": persistence})

    def command(self, *arguments: object) -> str:
        """Run a command of twinstore on this side; return what it printed."""
        return self._run("twinstore_backfill", "--config", self.config, *arguments)

    def shown(self, host: str = "show") -> dict[str, Any]:
        """Return what the application reads, synchronously and with asyncio, after it stored rows or not."""
        found: dict[str, Any] = json.loads(self._run("library_host", host, self.config))
        return found

    def copied(self, target: Side, folder: Path) -> dict[str, Any]:
        """Copy to another side, in ranges of three rows; return the report of the verification."""
        ends = ("--module", "library", "--from", self.driver, "--to", target.driver)
        sides = (*ends, "--source-config", self.config, "--target-config", target.config, "--out", folder)
        self.command("backfill", "copy", *sides, "--range-size", "3", "--execute")
        report: dict[str, Any] = json.loads(self.command("backfill", "verify", *sides, "--format", "json"))
        return report

    def _run(self, *arguments: object) -> str:
        result = self.installed_sample.run(*arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


def is_public(module: str, name: str) -> bool:
    """Return whether a module exports a name, or has a submodule of that name."""
    found = import_module(module)
    return name in found.__all__ or hasattr(getattr(found, name, None), "__path__")


@pytest.mark.smoke
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_it_imports_public_names_only(path: Path) -> None:
    assert [item for item in imported(path) if not is_public(*item)] == []
    generated = path.is_relative_to(PACKAGE / "aio")
    assert [
        module
        for module, _ in imported(path)
        if module not in {*MODULE_PARTS, "twinstore.module"} and not generated
    ] == []


def test_its_distribution_has_all_files(installed_sample: InstalledSample) -> None:
    (package,) = installed_sample.python.parents[1].glob("lib/*/site-packages/acme_library")
    shipped = {path.relative_to(package).as_posix() for path in package.rglob("*.*")}
    assert {"migrations/postgres/schema.txt", "migrations/mongo/001_create_library.json"} <= shipped
    assert shipped >= {
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.*") if path.suffix != ".pyc"
    }


def test_its_own_tests_pass(installed_sample: InstalledSample) -> None:
    result = installed_sample.run(*KIT)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]
    assert " passed in" in result.stdout


@pytest.mark.parametrize(("old", "new", "case"), FAULTS.values(), ids=FAULTS)
def test_its_kit_finds_a_fault(
    installed_sample: InstalledSample, tmp_path: Path, old: str, new: str, case: str
) -> None:
    folder = tmp_path / "own_module"
    shutil.copytree(FOLDER, folder)
    path = folder / "acme_library" / "repository.py"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    # A fault may ask for what the file does not import.
    text = text.replace("from typing import", "from importlib import import_module\nfrom typing import", 1)
    path.write_text(text.replace(old, new), encoding="utf-8")
    result = replace(installed_sample, folder=folder).run(*KIT, "tests/test_kit.py", "-k", case)
    assert result.returncode == 1, result.stdout[-2000:] + result.stderr[-500:]
    assert f"TestInMemory::{case}" in result.stdout, result.stdout[-2000:]


@pytest.mark.usefixtures("mongo_server", "postgres_server")
@pytest.mark.parametrize("tests", ["TestOnMongo", "TestOnPostgres"])
def test_its_kit_passes_on_servers(
    installed_sample: InstalledSample, servers: ServerUrls, tests: str
) -> None:
    result = installed_sample.run(
        "pytest",
        *("-q", "-n", "0", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml"),
        f"{ROOT / 'tests' / 'kit' / 'library_on_servers.py'}::{tests}",
        PYTHONPATH=f"{FOLDER}{os.pathsep}{ROOT}",
        **{MONGO_URL: servers.mongo, POSTGRES_URL: servers.postgres},
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]
    assert re.search(r"^\d{3,} passed in", result.stdout, re.MULTILINE), result.stdout[-300:]


@pytest.mark.smoke
@pytest.mark.parametrize("command", ["migration", "aio"])
def test_what_commands_wrote_is_current(installed_sample: InstalledSample, command: str) -> None:
    result = installed_sample.run("twinstore_backfill", "dev", command, "library", "--check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_schema_that_it_ships_is_what_a_server_holds(
    installed_sample: InstalledSample, empty_postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    side = Side(installed_sample, "Postgres", empty_postgres_database.config, tmp_path)
    side.command("migrate", "run")
    assert "is current" in side.command("dev", "schema", "library", "--check")


def test_its_rows_move_from_mongodb_to_postgresql_and_back(
    installed_sample: InstalledSample,
    mongo_server: MongoServer,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> None:
    with mongo_server.database() as full, mongo_server.database() as empty:
        first = Side(installed_sample, "Mongo", full.config, tmp_path)
        second = Side(installed_sample, "Postgres", empty_postgres_database.config, tmp_path)
        third = Side(installed_sample, "Mongo", empty.config, tmp_path)
        for side in (first, second):
            side.command("migrate", "run")  # of the one module that the settings name
        stored = first.shown("fill")
        assert stored["async"] == stored["sync"]
        assert {name: len(rows) for name, rows in stored["sync"].items()} == ROWS
        for source, target in ((first, second), (second, third)):
            report = source.copied(target, tmp_path / target.config.stem)
            assert (report["module"], report["verdict"]) == ("library", "PASS")
            assert {item["entity"]: item["counts"]["equal"] for item in report["entities"]} == EQUAL
            assert LISTS in [check["summary"] for check in report["checks"]]
            found = json.loads(target.command("smoke", "--format", "json"))
            assert (found["verdict"], {step["result"] for step in found["steps"]}) == (
                "OK",
                {"pass", "skipped"},
            )
            assert {"row of books", "row of subjects, rolled back"} <= {
                step["step"] for step in found["steps"]
            }
            assert target.shown() == stored


def test_the_self_test_finds_what_it_plants_among_its_rows(
    installed_sample: InstalledSample,
    mongo_server: MongoServer,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> None:
    with mongo_server.database() as full, mongo_server.database() as empty:
        source = Side(installed_sample, "Mongo", full.config, tmp_path)
        source.command("migrate", "run")
        source.shown("fill")
        mongo, postgres = empty.config["Persistence"], empty_postgres_database.config["Persistence"]
        assert isinstance(mongo, dict)
        assert isinstance(postgres, dict)
        persistence = {"Mongo": mongo["Mongo"], "Postgres": postgres["Postgres"]}
        scratch = write_config(tmp_path / "scratch.json", {"Persistence": persistence})
        ends = ("--module", "library", "--from", "Mongo", "--to", "Postgres", "--scratch", scratch)
        report = json.loads(source.command("backfill", "selftest", *ends, "--format", "json"))
    assert (report["problems"], report["false_alarms"], report["untested"]) == ([], 0, [])
    assert report["found"] == report["planted"] > 100
    for store in report["stores"]:
        # Of rows with a number in their key and without a tenant, too.
        assert set(store["by_entity"]) == set(EQUAL)
