"""Commands take any installed module, and find out which one where the settings leave no choice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest

import twinstore
from tests.support.copies import invoke, write_config
from tests.support.distributions import LIBRARY, install_distribution
from tests.support.library.books import Book
from twinstore import aio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.library.module import LibraryStorage

BOOK = Book(id="first", tenant_id="acme", title="On stores")
SIDES = ("--from", "Memory", "--to", "Memory")
SHOP = """
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import ModuleSettings

PLUGIN = ModulePlugin(name="shop", title="Shop", settings=ModuleSettings(section="Shop"))
"""


def settings(path: Path, **switches: str) -> Path:
    """Write settings on a memory store of their own."""
    return write_config(path, {"Persistence": {**switches, "Memory": {"Store": uuid4().hex}}})


def fill(config: Path, *books: Book) -> None:
    """Store books."""
    add = cast("Callable[[Path], LibraryStorage]", getattr(twinstore, "add_library_memory_storage"))  # noqa: B009  # no stub knows it
    with add(config) as storage:
        for book in books:
            storage.books.put(book)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a third-party module."""
    install_distribution(monkeypatch, tmp_path, "acme-library", LIBRARY)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a module of which this release knows the settings only."""
    points = {"twinstore.modules": {"shop": "acme_shop:PLUGIN"}}
    (install_distribution(monkeypatch, tmp_path, "acme-shop", points) / "acme_shop.py").write_text(SHOP)
    yield
    sys.modules.pop("acme_shop", None)


class TestChoice:
    @pytest.mark.parametrize(
        "command",
        [
            ("config", "check"),
            ("migrate", "status"),
            ("migrate", "plan"),
            ("migrate", "run"),
            ("migrate", "verify"),
            ("migrate", "export"),
            ("purge",),
            ("backfill", "status", "--to", "Memory"),
        ],
    )
    @pytest.mark.parametrize(
        "others", [{}, {"Shop": "Mongo"}], ids=["alone", "beside one of which the settings are known"]
    )
    @pytest.mark.usefixtures("shop")
    def test_the_only_module_that_the_settings_name_is_meant(
        self,
        command: tuple[str, ...],
        others: dict[str, str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = settings(tmp_path / "s.json", Scheduler="Memory", **others)
        answer = invoke(capsys, "--config", config, *command)
        assert (answer.code, answer.err) == (0, "")

    def test_where_the_settings_name_none_there_is_no_choice(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = settings(tmp_path / "s.json")
        answer = invoke(capsys, "--config", config, "migrate", "status", "--backend", "Memory")
        assert (answer.code, "There are 3 modules (scheduler, tracking, taskrunner)" in answer.err) == (
            2,
            True,
        )

    @pytest.mark.parametrize(
        ("switches", "message"),
        [
            (
                {"Scheduler": "Memory", "Library": "Memory"},
                "The settings name 2 modules (scheduler, library)",
            ),
            ({}, "There are 4 modules (scheduler, tracking, taskrunner, library)"),
        ],
    )
    @pytest.mark.parametrize(
        "command",
        [("config", "check"), ("migrate", "run"), ("purge",), ("backfill", "plan", *SIDES)],
        ids=" ".join,
    )
    @pytest.mark.usefixtures("library")
    def test_a_choice_is_left_to_the_operator(
        self,
        switches: dict[str, str],
        message: str,
        command: tuple[str, ...],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = settings(tmp_path / "s.json", **switches)
        answer = invoke(capsys, "--config", config, *command)
        assert answer.code == 2
        assert f"{message}; say with --module which one is meant." in answer.err

    @pytest.mark.usefixtures("library")
    def test_two_sides_that_name_different_modules_leave_a_choice(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        left = settings(tmp_path / "l.json", Scheduler="Memory")
        right = settings(tmp_path / "r.json", Library="Memory")
        for command in ("plan", "copy", "verify"):
            answer = invoke(
                capsys, "backfill", command, *SIDES, "--source-config", left, "--target-config", right
            )
            assert (answer.code, "2 modules (scheduler, library)" in answer.err) == (2, True)

    @pytest.mark.parametrize(
        ("module", "message"),
        [
            ("schedular", "Unknown module 'schedular'. Did you mean scheduler?"),
            ("shop", "is known by its settings only"),
        ],
    )
    @pytest.mark.usefixtures("shop")
    def test_a_module_that_cannot_be_used_says_why(
        self, module: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = settings(tmp_path / "s.json", Scheduler="Memory")
        for command in (("migrate", "run"), ("backfill", "copy", *SIDES)):
            answer = invoke(capsys, "--config", config, *command, "--module", module)
            assert (answer.code, message in answer.err) == (2, True)


@pytest.mark.usefixtures("library")
class TestOutsider:
    def verified(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: object) -> dict[str, Any]:
        sides = ("--source-config", tmp_path / "l.json", "--target-config", tmp_path / "r.json")
        return invoke(capsys, "backfill", "verify", *SIDES, *sides, "--format", "json", *more).json

    def test_its_rows_are_copied_and_proved_with_its_own_lists(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        left = settings(tmp_path / "l.json", Library="Memory")
        right = settings(tmp_path / "r.json", Library="Memory")
        fill(left, BOOK, BOOK.evolve(id="second"))
        before = self.verified(tmp_path, capsys)
        failed = {check["id"] for check in before["checks"] if check["result"] == "fail"}
        assert (before["verdict"], failed) == ("FAIL", {"C1", "C2", "C5"})

        copy = ("backfill", "copy", *SIDES, "--source-config", left, "--target-config", right, "--execute")
        assert invoke(capsys, *copy).code == 0
        report = self.verified(tmp_path, capsys)
        assert (report["module"], report["verdict"], report["documents_equal"]) == ("library", "PASS", 2)
        assert "set Persistence:Library to Memory" in report["next_step"]
        assert [check["id"] for check in report["checks"]] == ["C1", "C2", "C3", "C5", "C6", "C7", "C8"]
        lists = next(check for check in report["checks"] if check["id"] == "C5")
        assert lists["summary"] == "1 list with 1 row compared"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a writable copy of the third-party package."""
    points = {"twinstore.modules": {"library": "checked_out_library.plugin:PLUGIN"}}
    site = install_distribution(monkeypatch, tmp_path, "acme-library", points)
    package = site / "checked_out_library"
    package.mkdir()
    for file in (Path(__file__).parents[2] / "support" / "library").glob("*.py"):
        (package / file.name).write_text(
            file.read_text().replace("tests.support.library", "checked_out_library")
        )
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "checked_out_library"]:
        del sys.modules[name]


class TestNewModule:
    def test_a_new_module_is_formatted_and_its_migrations_and_classes_follow(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = self.project("cellar", tmp_path, capsys, monkeypatch)
        for command in (
            ("migration", "cellar", "create_cellar"),
            ("aio", "cellar"),
            ("aio", "cellar", "--check"),
        ):
            answer = invoke(capsys, "dev", *command)
            assert answer.code == 0, answer.err
        assert "wine_lists_tenant_created" in next(project.rglob("*.sql")).read_text()
        ruff = [sys.executable, "-m", "ruff", "format", "--check", str(project)]
        assert subprocess.run(ruff, check=False).returncode == 0

    def test_one_of_data_alone_is_formatted_and_its_migrations_follow(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = self.project("vault", tmp_path, capsys, monkeypatch, "--data-only")
        assert {path.name for path in project.rglob("*.py")} == {
            "__init__.py",
            "module.py",
            "plugin.py",
            "test_kit.py",
            "testing.py",
        }
        answer = invoke(capsys, "dev", "migration", "vault", "create_vault")
        assert answer.code == 0, answer.err
        assert "CREATE TABLE IF NOT EXISTS vault.wine_lists" in next(project.rglob("*.sql")).read_text()
        refused = invoke(capsys, "dev", "aio", "vault")
        assert (refused.code, "A module of data alone has no classes for asyncio." in refused.err) == (
            2,
            True,
        )
        ruff = [sys.executable, "-m", "ruff", "format", "--check", str(project)]
        assert subprocess.run(ruff, check=False).returncode == 0

    @pytest.mark.long
    @pytest.mark.parametrize(("name", "more"), [("pantry", ()), ("cupboard", ("--data-only",))])
    def test_its_kit_passes(
        self,
        name: str,
        more: tuple[str, ...],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        project = self.project(name, tmp_path, capsys, monkeypatch, *more)
        kit = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-c",
            "pyproject.toml",
        ]
        environment = {**os.environ, "PYTHONPATH": f"{project}{os.pathsep}{tmp_path / f'{name}-module'}"}
        done = subprocess.run(kit, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (("scheduler", "--entity", "run"), "The module scheduler is installed already"),
            (("json", "--entity", "note"), "There is a package json already"),
            (("Notes", "--entity", "note"), "A module cannot be called 'Notes'"),
            (("class", "--entity", "note"), "A module cannot be called 'class'"),
            (("notes", "--entity", "class"), "An entity cannot be called 'class'"),
            (("notes", "--entity", "session"), "An entity cannot be called 'session'"),
            (("notes", "--entity", "page"), "An entity cannot be called 'page'"),
            (("notes", "--entity", "note", "--entity", "notes"), "Two classes would be called Notes"),
            (("full", "--entity", "note"), "full exists; choose another name"),
        ],
        ids=" ".join,
    )
    def test_a_name_that_cannot_be_used_writes_nothing(
        self, given: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "full").mkdir()
        answer = invoke(capsys, "dev", "new", "module", *given, "--out", tmp_path)
        assert (answer.code, message in answer.err) == (2, True), answer.err
        assert [path.name for path in tmp_path.iterdir()] == ["full"]

    def project(
        self,
        name: str,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        *more: str,
    ) -> Path:
        """Write a project of two entities and install it as it is; each test imports another one."""
        entities = ("--entity", "wine", "--entity", "wine_list")
        answer = invoke(capsys, "dev", "new", "module", name, *entities, *more, "--out", folder)
        assert answer.code == 0, answer.err
        assert (f"twinstore dev aio {name}" in answer.out) is not bool(more)
        points = {"twinstore.modules": {name: f"{name}.plugin:PLUGIN"}}
        install_distribution(monkeypatch, folder, f"{name}-module", points)
        monkeypatch.syspath_prepend(str(folder / name))
        return folder / name


class TestMigrations:
    def test_a_file_is_not_written_again_before_the_snapshot_shows_it(
        self, checkout: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ("dev", "migration", "library")
        folder = checkout / "migrations" / "postgres"
        assert invoke(capsys, *command, "create_library", "--backend", "Postgres").code == 0
        (file,) = folder.iterdir()
        # Its author may have edited it: what counts is what it makes.
        file.write_text(file.read_text().replace("(\n    ", "(").replace("TEXT", "text"))
        for more in ((), ("--backend", "Postgres")):
            answer = invoke(capsys, *command, "create_again", *more)
            assert (answer.code, answer.out) == (4, "")
            assert "is older than postgres/001_create_library.sql" in answer.err
            assert "`twinstore dev schema library`" in answer.err
        # Nothing was written, for no store.
        assert [path.name for path in (checkout / "migrations").rglob("*.*")] == [file.name]
        assert invoke(capsys, *command, "--check").code == 1

    def test_a_driver_that_cannot_be_imported_is_skipped_with_its_reason(
        self,
        checkout: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        points = {"twinstore.backends": {"logbook": "broken_logbook:plugin"}}
        site = install_distribution(monkeypatch, tmp_path, "logbook-driver", points)
        (site / "broken_logbook.py").write_text("raise RuntimeError('broken')")
        answer = invoke(capsys, "dev", "migration", "library", "create_library")
        assert answer.code == 0, answer.err
        assert "Skipped the driver logbook: " in answer.err
        assert sorted(path.name for path in (checkout / "migrations").iterdir()) == ["mongo", "postgres"]
        refused = invoke(capsys, "dev", "migration", "library", "--check", "--backend", "logbook")
        assert (refused.code, "logbook" in refused.err) == (2, True)

    @pytest.mark.usefixtures("checkout")
    def test_before_the_first_migration_both_databases_say_how_to_write_it(
        self,
        mongo_database: MongoDatabase,
        postgres_database: PostgresDatabase,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        for driver, database in (("Mongo", mongo_database), ("Postgres", postgres_database)):
            section = cast("Mapping[str, object]", database.config["Persistence"])[driver]
            content = {"Persistence": {driver: section, "Library": driver}}
            config = write_config(tmp_path / "settings.json", content)
            for command in ("run", "plan", "verify"):
                answer = invoke(capsys, "--config", config, "migrate", command, "--module", "library")
                assert answer.code == 4, answer
                assert f"Module library has no migrations for {driver} yet. Its author writes" in answer.err
                assert "`twinstore dev migration library create_library`" in answer.err


class TestAsyncio:
    def test_the_classes_are_written_into_the_package_of_the_module_and_work(
        self, checkout: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stale = invoke(capsys, "dev", "aio", "library", "--check")
        assert (stale.code, (checkout / "aio").exists()) == (1, False)
        assert "Run: twinstore dev aio library" in stale.out
        assert invoke(capsys, "dev", "aio", "library").code == 0
        assert {path.name for path in (checkout / "aio").glob("*.py")} == {"__init__.py", "books.py"}
        assert invoke(capsys, "dev", "aio", "library", "--check").code == 0
        (checkout / "aio" / "old.py").write_text("")
        assert invoke(capsys, "dev", "aio", "library", "--check").code == 1
        assert invoke(capsys, "dev", "aio", "library").code == 0
        assert not (checkout / "aio" / "old.py").exists()
        assert {"AsyncLibrarySession", "AsyncLibraryStorage"} <= set(aio.__all__)
        asyncio.run(asyncio.wait_for(self.used(), timeout=100))

    async def used(self) -> None:
        from checked_out_library.books import Book as TheirBook  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]  # noqa: PLC0415  # installed for this test

        book = TheirBook(id="first", tenant_id="acme", title="On stores")
        memory = {"Persistence": {"Library": "Memory", "Memory": {"Store": uuid4().hex}}}
        async with aio.open_storage(memory) as storage:
            books: Any = getattr(storage, "library")  # noqa: B009  # no stub knows it
            async with books.transaction("acme") as unit:
                await unit.books.put(book)
            assert await books.books.get("acme", "first") == book
            assert (
                await books.transact(lambda unit: unit.books.get("acme", "first"), tenant_id="acme") == book
            )
            assert storage.module("library", type(books)) is books

    @pytest.mark.usefixtures("shop")
    def test_a_module_of_which_only_the_settings_are_known_has_none(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = invoke(capsys, "dev", "aio", "shop")
        assert (answer.code, "known by its settings only" in answer.err) == (2, True)
