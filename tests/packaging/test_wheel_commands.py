"""Every command works from the built wheel: each shows its help, and each is run once on real servers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from pymongo import MongoClient

from docs.parts.commands import commands, subcommands
from tests.docs.pages import TUTORIALS
from tests.docs.tutorials import Command, steps
from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.support.copies import fill, open_store, write_config
from twinstore.config import load_settings

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.distributions import Installed

pytestmark = pytest.mark.long

LEAVES: Final = [name for name, command in commands() if not subcommands(command)]
PROGRAM: Final = Path(__file__).with_name("commands_of_wheel.py")
BOTH: Final = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
INTO: Final = ("--module", "scheduler", "--to", "postgres")
ON: Final = ("--module", "scheduler", "--backend", "postgres")
# In their order: each finds what those before it have left. A code other than 0 is the answer wanted.
LINES: Final[tuple[tuple[str, tuple[str, ...], int], ...]] = (
    ("backends", (), 0),
    ("init", (), 2),
    ("doctor", (), 0),
    ("config show", (), 0),
    ("config check", (), 0),
    ("migrate plan", ON, 0),
    ("migrate run", ON, 0),
    ("migrate status", ON, 0),
    ("migrate verify", ON, 0),
    ("migrate export", ON, 0),
    ("migrate revert", ("014", *ON), 0),
    ("backfill plan", BOTH, 0),
    # One document is in the way, so this job stays open for the next three.
    ("backfill copy", (*BOTH, "--execute", "--max-quarantine", "0", "--out", "copy"), 3),
    ("backfill pause", INTO, 0),
    ("backfill rate", ("1000", *INTO), 0),
    ("backfill resume", INTO, 0),
    ("backfill status", INTO, 0),
    # It would not end by itself.
    ("backfill serve", (*INTO, "--host", "192.0.2.1"), 2),
    ("backfill quarantine list", INTO, 0),
    ("backfill quarantine show", (*INTO, "--entity", "runs", "--key", "bad"), 0),
    ("backfill quarantine export", (*INTO, "--out", "kept.ndjson"), 0),
    ("backfill quarantine retry", BOTH, 1),
    ("backfill copy", (*BOTH, "--execute", "--out", "copy"), 3),
    ("backfill work", BOTH, 0),
    ("backfill verify", (*BOTH, "--out", "report"), 3),
    ("backfill run", (*BOTH, "--execute"), 6),
    ("backfill report", ("--in", "report"), 0),
    ("backfill diff", (*BOTH, "--entity", "runs", "--key", "acme-run-1"), 0),
    ("backfill recheck", (*BOTH, "--in", "report"), 3),
    ("backfill repair", (*BOTH, "--in", "report"), 1),
    ("smoke", ON, 0),
    ("purge", ON, 0),
    ("dev new", ("module", "fleet", "--entity", "vehicle"), 0),
    ("dev sql", ("scheduler",), 0),
    ("dev migration", ("scheduler", "--check"), 0),
    # These format by the settings of the project around the module, and a wheel has none.
    ("dev aio", ("scheduler", "--check"), 1),
    ("dev schema", ("scheduler", "--check", "--backend", "postgres"), 0),
)
# Run from the wheel elsewhere, because they bring servers of their own.
DEMO: Final = {"demo", "backfill selftest"}


def in_wheel(
    installed: Installed, folder: Path, lines: list[list[str]], **variables: str
) -> list[tuple[int, str, str]]:
    """Run commands in the environment of the wheel, away from the checkout."""
    passed = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    done = subprocess.run(
        [installed.python, "-P", PROGRAM],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        env={**passed, **variables},
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stderr
    return [cast("tuple[int, str, str]", tuple(answer)) for answer in answers]


def of_tutorials() -> set[str]:
    """Return the commands that the tutorials run, in the same environment."""
    typed = [step.line for page in TUTORIALS for step in steps(page) if isinstance(step, Command)]
    return {name for name in LEAVES if any(f"{name} " in f"{line} " for line in typed)}


@pytest.mark.smoke
def test_every_command_is_run_once_from_the_wheel() -> None:
    run = {f"twinstore {name}" for name in {*DEMO, *(name for name, _, _ in LINES)}} | of_tutorials()
    assert set(LEAVES) - run == set(), "give it a line here"
    assert run - set(LEAVES) == set(), "there is no such command any more"


def test_every_command_of_the_wheel_shows_its_help(installed: Installed, tmp_path: Path) -> None:
    answers = in_wheel(installed, tmp_path, [[*name.split()[1:], "--help"] for name in LEAVES])
    for name, (code, shown, said) in zip(LEAVES, answers, strict=True):
        assert (code, name in " ".join(shown.split()), said) == (0, True, ""), name


@pytest.mark.smoke
def test_no_flag_of_the_wheel_shows_a_value_with_the_newest_typer(
    installed: Installed, tmp_path: Path
) -> None:
    asked = "from importlib.metadata import version; print(version('typer'))"
    found = subprocess.run(
        [installed.python, "-P", "-c", asked], check=True, capture_output=True, text=True, cwd="/"
    ).stdout
    assert tuple(map(int, found.split(".")[:2])) >= (0, 29), "run `make setup` again"
    lines = [
        ["backfill", "copy", "--help"],
        ["backfill", "verify", "--help"],
        ["migrate", "--help"],
        ["--help"],
    ]
    shown = "".join(out for _, out, _ in in_wheel(installed, tmp_path, lines, COLUMNS="120"))
    assert shown.count("--help ") == 4
    assert "bool" not in shown.casefold()


def test_the_commands_of_the_wheel_work(
    installed: Installed,
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> None:
    settings = merged_settings(empty_mongo_database, empty_postgres_database)
    settings["Persistence"] = {**cast("dict[str, object]", settings["Persistence"]), "Scheduler": "Mongo"}
    config = write_config(tmp_path / "settings.json", settings)
    with open_store("scheduler", "mongo", load_settings(config, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        fill(store.storage, ["acme"])
    with MongoClient[dict[str, Any]](empty_mongo_database.url) as client:
        runs = client[empty_mongo_database.name]["runs"]
        found = runs.find_one({"_id": "acme-run-1"}) or {}
        runs.insert_one({**found, "_id": "bad", "legacy": 1})
    lines = [[*name.split(), *options] for name, options, _ in LINES]
    answers = in_wheel(installed, tmp_path, lines, TWINSTORE_CONFIG=str(config))
    for line, (_, _, wanted), (code, shown, said) in zip(lines, LINES, answers, strict=True):
        assert code == wanted, (line, code, shown, said)
        assert "Traceback" not in said, (line, said)
    assert (tmp_path / "report/parity-report.html").is_file()


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["twinstore", "twinstore_backfill"])
def test_nothing_of_the_checkout_is_found_there(installed: Installed, name: str) -> None:
    asked = f"import {name}; print({name}.__file__)"
    done = subprocess.run(
        [installed.python, "-P", "-c", asked], check=True, capture_output=True, text=True, cwd="/"
    )
    assert Path(done.stdout).is_relative_to(installed.environment)
