"""``twinstore config``: every setting with its default, wrong values, and where nothing was named."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from tests.support.copies import invoke, write_config
from twinstore_backfill.cli import output as output_module
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNNAMED = "No settings file was named: TWINSTORE_CONFIG and --config are unset."
SECRET = "pl4nted-s3cret"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TWINSTORE_CONFIG", "TWINSTORE_ENV_FILE", "TWINSTORE_SECRETS_DIR"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


def config(tmp_path: Path, **postgres: object) -> Path:
    return write_config(
        tmp_path / "settings.json", {"Persistence": {"Scheduler": "Postgres", "Postgres": postgres}}
    )


def test_show_prints_the_defaults_of_the_driver_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, PoolMax=7)
    shown = {
        line.split()[0]: line.split()[1:]
        for line in invoke(capsys, "--config", path, "config", "show").out.splitlines()
    }
    assert shown["Persistence:Postgres:PoolMax"] == ["7", "file", str(path)]
    assert shown["Persistence:Postgres:PoolTimeoutMs"] == ["10000", "default"]
    assert shown["Persistence:Postgres:TransactionPooler"] == ["false", "default"]
    assert shown["Persistence:Postgres:ConnectionString"] == ["not", "set", "default"]
    assert shown["Persistence:Tracking"] == ["not", "set", "default"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_value_that_a_driver_refuses_is_shown_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    path = config(tmp_path, PoolMax="lots", ConnectionString=f"postgresql://a:{SECRET}@h/d")
    answer = invoke(capsys, "--config", path, "config", "show", "--format", form)
    message = f"Persistence:Postgres:PoolMax (file {path}) is not valid: Input should be a valid integer"
    assert answer.code == Exit.USAGE
    assert "lots" in answer.out
    assert SECRET not in answer.out + answer.err
    if form == "json":
        (problem,) = json.loads(answer.out)["problems"]
        assert problem.startswith(message)
        assert answer.err == ""
    else:
        assert answer.err.startswith(f"error: {message}")


def test_without_a_file_the_message_names_what_is_missing_and_that_no_file_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = invoke(capsys, "config", "show")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, UNNAMED)
    status = ("migrate", "status", "--module", "scheduler")
    assert f"(environment: Persistence__Scheduler). {UNNAMED}" in invoke(capsys, *status).err
    for driver, missing in (("Mongo", "give ConnectionString"), ("Filesystem", "Root is not set")):
        module = "taskrunner" if driver == "Filesystem" else "scheduler"
        given = ("migrate", "status", "--module", module, "--backend", driver)
        answer = invoke(capsys, *given)
        assert answer.code == Exit.USAGE
        assert missing in answer.err
        assert answer.err.endswith(f"{UNNAMED}\n")
    copying = ("backfill", "plan", "--module", "scheduler", "--from", "Mongo", "--to", "Postgres")
    assert UNNAMED in invoke(capsys, *copying).err
    assert UNNAMED not in invoke(capsys, "--config", config(tmp_path), "config", "show").out


def test_the_options_in_front_name_environment_file_and_secret_files_of_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, directory = tmp_path / ".env", tmp_path / "secrets"
    directory.mkdir()
    lines.write_text("Persistence__Scheduler=Memory\nPersistence__Memory__Store=lines\n")
    (directory / "Persistence__Tracking").write_text("Memory\n")
    given = ("--env-file", lines, "--secrets-dir", directory)
    found = json.loads(invoke(capsys, *given, "config", "show", "--format", "json").out)["settings"]
    assert found["Persistence:Scheduler"]["source"] == f"environment file {lines}, line 1"
    assert found["Persistence:Tracking"]["source"] == f"secret file {directory / 'Persistence__Tracking'}"
    sides = ("--from", "Memory", "--to", "Memory", "--source-config", config(tmp_path))
    # A side with a separate settings file keeps the other two: both name the same store here.
    answer = invoke(capsys, *given, "backfill", "plan", "--module", "scheduler", *sides)
    assert answer.code == Exit.USAGE
    assert "lines" in answer.err


def test_check_says_yes_and_no_and_for_what_the_remedy_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(
        tmp_path / "settings.json",
        {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": tmp_path.name}}},
    )
    memory = invoke(capsys, "--config", path, "config", "check")
    assert memory.code == 0
    rows = dict(line.rsplit(maxsplit=1) for line in memory.out.splitlines()[2:])
    assert rows["transactions"] in {"yes", "no"}
    assert rows["row level security"] == "no"
    assert "True" not in memory.out
    document = json.loads(invoke(capsys, "--config", path, "config", "check", "--format", "json").out)
    assert (document["ready"], document["capabilities"]["transactions"]) == (True, True)
    remedy = document["capabilities"]["remedy"]
    assert ("For a capability that it lacks: " in memory.out) == bool(remedy)
    assert not [line for line in memory.out.splitlines() if line.startswith("remedy")]


def test_no_key_breaks_on_a_terminal_of_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("Persistence__Postgres__OwnerConnectionString", f"host=h password={SECRET}")
    monkeypatch.chdir(tmp_path)
    path = config(tmp_path).name
    documented = json.loads(invoke(capsys, "--config", path, "config", "show", "--format", "json").out)
    monkeypatch.setattr(output_module, "NO_WRAP_WIDTH", 80)
    lines = invoke(capsys, "--config", path, "config", "show").out.splitlines()
    assert max(map(len, lines)) <= 80
    for key in documented["settings"]:
        assert any(line.startswith(f"{key} ") for line in lines), key
    (owner,) = [line for line in lines if ":OwnerConnectionString" in line]
    # The variable is the key itself, and would only be folded.
    assert owner.split()[-1] == "environment"
