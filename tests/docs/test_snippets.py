"""Every sample in the pages works: Python runs on every store, settings load, commands exist."""

from __future__ import annotations

import json
import linecache
import sys
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
import yaml

from tests.docs.pages import PAGES, Block, all_blocks, blocks
from tests.support.databases import DRIVERS, fresh_settings
from twinstore import load_settings, open_storage
from twinstore.config.keys import key_tree
from twinstore.plugins.drivers import load_backend
from twinstore.plugins.modules import built_modules, module_plugins
from twinstore.testing.scheduler.builders import make_run, make_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import Settings

PARSERS: Final[dict[str, Callable[[str], dict[str, object]]]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
LANGUAGES: Final = {"console", "ini", "json", "nginx", "python", "sh", "sql", "text", "toml", "yaml"}
PYTHON: Final = all_blocks("python")
# It needs two stores, so tests/migration_tool/python runs it.
TWO_STORES: Final = "migrating-from-python.md"
# Files of a tutorial are run by its replay.
PYTHON_PAGES: Final = sorted(
    {
        block.page
        for block in PYTHON
        if "no-run" not in block.notes and not block.file and block.page.name != TWO_STORES
    }
)
# What these show may be done again on the same store.
REPEATED: Final = ("quickstart.md", "web-service.md")
MODULES: Final = ("taskrunner", "scheduler")
STORES: Final = (*DRIVERS, "filesystem")
SETTINGS: Final = all_blocks("json", "toml", "yaml")


@pytest.fixture(params=DRIVERS)
def workplace(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Change to a directory with the settings of a migrated store."""
    with fresh_settings(request.param, request) as scheduler:
        page: Path = request.node.callspec.params["page"]
        settings = with_modules(scheduler, page)
        (tmp_path / "appsettings.json").write_text(json.dumps(settings))
        with open_storage(settings) as storage:
            for module in modules_of(page):
                storage.module(module).initializer.ensure_migrations()
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("TWINSTORE_CONFIG", str(tmp_path / "appsettings.json"))
        yield tmp_path


def modules_of(page: Path) -> list[str]:
    """Return the modules that a page speaks of: those of ``storage.<module>``, and the scheduler."""
    text = page.read_text("utf-8")
    return [name for name in built_modules() if name == "scheduler" or f"storage.{name}" in text]


def with_modules(settings: Settings, page: Path) -> Settings:
    """Return settings that store every module of a page where the scheduler is stored."""
    persistence = dict(cast("dict[str, object]", settings["Persistence"]))
    for name in modules_of(page):
        persistence.setdefault(module_plugins()[name].settings.section, persistence["Scheduler"])
    return {**settings, "Persistence": persistence}


def run_page(page: Path, folder: Path) -> None:
    """Run the Python of a page in order and compare what it prints with what the page shows."""
    names: dict[str, Any] = {"__name__": "page"}
    printed = StringIO()
    for block in blocks(page):
        if block.language == "toml":
            install(folder, tomllib.loads(block.body))
        elif block.file is not None:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.body, "utf-8")
        elif block.language == "python":
            if "no-run" not in block.notes:
                with redirect_stdout(printed):
                    exec(compiled(block), names)  # noqa: S102  # the samples of our own pages
        elif block.language == "text" and "output" in block.notes:
            assert printed.getvalue() == block.body, block.place
            printed = StringIO()


def install(folder: Path, project: dict[str, Any]) -> None:
    """Make the entry points of a pyproject known, as its installation would."""
    if "project" not in project:
        return
    name, version = project["project"]["name"].replace("-", "_"), project["project"]["version"]
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["project"]["entry-points"].items()
    lines = [
        [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())] for group, points in groups
    ]
    (info / "entry_points.txt").write_text("\n".join(line for group in lines for line in group))


def compiled(block: Block) -> Any:  # noqa: ANN401  # a code object
    """Compile a block so that a traceback names page and line."""
    source = "\n" * (block.line - 1) + block.body
    linecache.cache[block.place] = (len(source), None, source.splitlines(keepends=True), block.place)
    return compile(source, block.place, "exec")


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_and_prints_what_the_page_shows(page: Path, workplace: Path) -> None:
    with open_storage() as storage:
        if page.name == "README.md":
            storage.scheduler.schedules.upsert(make_schedule("acme", "nightly"))
        storage.scheduler.runs.create(make_run("initech", "run-of-somebody-else"))
    before = set(sys.modules)
    try:
        for _ in range(2 if page.name in REPEATED else 1):
            run_page(page, workplace)
    finally:
        for name in set(sys.modules) - before:  # modules that the page wrote itself
            if getattr(sys.modules[name], "__file__", None) and str(workplace) in str(
                sys.modules[name].__file__
            ):
                del sys.modules[name]


@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}), ids=lambda page: page.name)
def test_the_python_of_a_page_compiles(page: Path) -> None:
    assert [compiled(block) for block in blocks(page) if block.language == "python"]


def test_every_block_has_a_language_that_is_checked_here() -> None:
    assert [block.place for page in PAGES for block in blocks(page) if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("block", SETTINGS, ids=lambda block: block.place)
def test_settings_in_a_page_load(block: Block, tmp_path: Path) -> None:
    if not {name.casefold() for name in key_tree()} & {name.casefold() for name in top_level(block)}:
        return  # a report or another document: parsing it was the test
    path = tmp_path / f"appsettings.{block.language}"
    path.write_text(block.body, "utf-8")
    settings = load_settings(path, environ={})
    named = [
        (module, name) for module in MODULES for name in STORES if settings.backend_section(module, name)
    ]
    assert named, "no driver is configured"
    for module, name in named:
        settings.backend_settings(module, load_backend(name, module=module))


def top_level(block: Block) -> dict[str, object]:
    """Parse a block."""
    parse = PARSERS[block.language]
    return parse(block.body)
