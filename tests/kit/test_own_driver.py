"""The sample driver: third-party code, installed as a third party does, and proved by the kit."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from docs.parts.interface import public_names
from tests.support.copies import DOCUMENTS_PER_TENANT, fill, write_config
from tests.support.distributions import SAMPLES, imported, installed
from twinstore import driver
from twinstore.testing import DriverContract

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.distributions import InstalledSample

pytestmark = pytest.mark.long

FOLDER: Final = SAMPLES / "own_driver"
DRIVER: Final = sorted((FOLDER / "twinstore_sqlite").glob("*.py"))
TESTS: Final = sorted((FOLDER / "tests").glob("*.py"))
LONGEST_DRIVER: Final = 500
LONGEST_TEST: Final = 20
KIT: Final = ("pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-c", "pyproject.toml")
ROWS: Final = 2 * DOCUMENTS_PER_TENANT


@pytest.fixture(scope="module")
def installed_sample(tmp_path_factory: pytest.TempPathFactory) -> InstalledSample:
    return installed(FOLDER, tmp_path_factory.mktemp("own_driver") / "venv")


@pytest.mark.smoke
@pytest.mark.parametrize("path", [*DRIVER, *TESTS], ids=lambda path: path.name)
def test_it_imports_public_names_only(path: Path) -> None:
    public = {(module, name) for module, names in public_names().items() for name in names}
    public |= {("twinstore.driver", name) for name in dir(driver)}
    assert [item for item in imported(path) if item not in public] == []


def test_it_is_short() -> None:
    assert sum(len(path.read_text().splitlines()) for path in DRIVER) <= LONGEST_DRIVER
    assert len((FOLDER / "tests" / "test_sqlite.py").read_text().splitlines()) <= LONGEST_TEST


def test_the_list_of_drivers_shows_it(installed_sample: InstalledSample) -> None:
    shown = installed_sample.run("twinstore_backfill", "backends", "--format", "json")
    (sqlite,) = [item for item in json.loads(shown.stdout)["backends"] if item["name"] == "sqlite"]
    assert (sqlite["distribution"], sqlite["state"]) == ("twinstore-sqlite", "ready")


# One case for each subject of the operations: rows, lists, changes, units, conflicts.
SMOKE: Final = (
    "equal_row_is_not_written or goes_on_strictly or lose_no_change or unit_unusable or foreign_row_is_as"
)


@pytest.mark.smoke
def test_a_case_of_each_subject_passes(installed_sample: InstalledSample) -> None:
    result = installed_sample.run(*KIT, "tests/test_sqlite.py::TestSqlite::TestAccess", "-k", SMOKE)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]
    assert re.search(r"^\d{1,2} passed, \d{3} deselected in", result.stdout, re.MULTILINE), result.stdout[
        -300:
    ]


@pytest.mark.parametrize("kit", ["TestAccess", "TestDefaults", *DriverContract.kits()])
def test_the_kit_passes(installed_sample: InstalledSample, kit: str) -> None:
    chosen = f"tests/test_sqlite.py::TestSqlite::{kit}"
    result = installed_sample.run(*KIT, chosen)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]
    least = 30 if kit == "TestCopies" else 100
    found = re.search(r"^(\d+) passed in", result.stdout, re.MULTILINE)
    assert found, result.stdout[-300:]
    assert int(found[1]) >= least


def test_the_kit_of_an_outsiders_module_passes(tmp_path: Path) -> None:
    both = installed(FOLDER, tmp_path / "venv", SAMPLES / "own_module")
    result = both.run(*KIT, "tests/test_sqlite.py::TestSqlite::TestLibrary")
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]
    assert re.search(r"^\d{3,} passed in", result.stdout, re.MULTILINE), result.stdout[-300:]


def test_rows_move_from_mongodb_through_it_to_postgresql(
    installed_sample: InstalledSample,
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> None:
    persistence: dict[str, object] = {"SQLite": {"Path": str(tmp_path / "data.sqlite")}}
    for database in (empty_mongo_database, postgres_database):
        found = database.config["Persistence"]
        assert isinstance(found, dict)
        persistence |= found
    # The rows of these tests are old; the TTL index of MongoDB would remove them some time.
    settings = {"Persistence": persistence, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}
    with twinstore.add_scheduler_mongo_storage(empty_mongo_database.config) as storage:
        storage.initializer.ensure_migrations()
        fill(storage)
    config = write_config(tmp_path / "settings.json", settings)
    reports: list[dict[str, object]] = []
    for source, target in (("mongo", "sqlite"), ("sqlite", "postgres")):
        sides = ["--module", "scheduler", "--from", source, "--to", target, "--as-of", "2026-01-02T00:00:00Z"]
        for command in (["copy", *sides, "--execute", "--range-size", "3"], ["verify", *sides]):
            shown = installed_sample.run(
                "twinstore_backfill",
                "--config",
                config,
                "backfill",
                *command,
                "--out",
                tmp_path / target,
                "--format",
                "json",
            )
            assert shown.returncode == 0, shown.stdout + shown.stderr
            reports.append(json.loads(shown.stdout))
    assert [(report["verdict"], report["documents_equal"]) for report in reports[1::2]] == [
        ("PASS", ROWS)
    ] * 2
