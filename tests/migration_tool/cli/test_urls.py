"""Stores that are named by URLs on the command line: no password is accepted there, and none is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.copies import fill, invoke, open_store
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore.config.urls import settings_of_url
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

SECRET = "pl4nted-s3cret"
USER = "somebodys-name"
MODULE = ("--module", "scheduler")


@pytest.mark.parametrize(
    "url",
    [
        f"mongodb://{USER}:{SECRET}@h/db",
        f"mongodb+srv://{USER}:{SECRET}@h/db",
        f"postgresql://{USER}:{SECRET}@h/db",
        f"postgres://h/db?user={USER}&password={SECRET}",
        f"postgresql://{USER}@h/db?sslpassword={SECRET}",
        f"host=h user={USER} password={SECRET}",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("backfill", "plan", "--to", "Memory", "--from-url"),
        ("backfill", "status", "--to-url"),
        ("migrate", "status", "--url"),
        ("smoke", "--url"),
    ],
)
def test_a_url_with_a_password_is_refused_and_not_repeated(
    url: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for output in ("text", "json"):
        answer = invoke(capsys, *command, url, *MODULE, "--format", output)
        assert answer.code == Exit.USAGE
        assert "env:NAME or file:PATH" in answer.err + answer.out
        assert SECRET not in answer.err + answer.out
        assert USER not in answer.err + answer.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", "Memory"), "Missing option '--from' or '--from-url'. See `twinstore backfill plan --help`"),
        (("--from", "Memory"), "Missing option '--to' or '--to-url'. See"),
        (("--from-url", "nope", "--to", "Memory"), "should have the scheme of a driver"),
        (("--from-url", "env:NO_SUCH_URL", "--to", "Memory"), "'NO_SUCH_URL', which is not set"),
        (("--from", "Postgres", "--from-url", "mongodb://h/db", "--to", "Memory"), "which is of Mongo"),
    ],
)
def test_what_names_no_store_is_a_mistake(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = invoke(capsys, "backfill", "plan", *options, *MODULE)
    assert (answer.code, said in answer.err, answer.err.count("\n")) == (Exit.USAGE, True, 1)


def test_a_url_replaces_the_section_of_its_driver_and_leaves_the_options() -> None:
    settings = load_settings(
        {
            "Persistence": {
                "Scheduler": "Mongo",
                "Postgres": {
                    "ConnectionString": "postgresql://a/x",
                    "OwnerConnectionString": "postgresql://a/y",
                },
                "Mongo": {"Database": "kept"},
            },
            "Scheduler": {"Storage": {"RunRetentionDays": 7, "Postgres": {"ApplicationRole": "other"}}},
        },
        environ={},
    )
    found = settings_of_url("postgres://b/z", "Scheduler", over=settings)
    section = found.backend_section("scheduler", "Postgres")
    assert (found.backend_name("scheduler"), set(section)) == (
        "Postgres",
        {"ConnectionString", "ApplicationRole"},
    )
    assert found.options("scheduler") == settings.options("scheduler")
    assert found.backend_section("scheduler", "Mongo") == {"Database": "kept"}


def test_two_urls_are_enough_to_copy_and_prove_and_no_user_is_shown(
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = empty_postgres_database.owner_url
    with open_store("scheduler", "mongo", load_settings(empty_mongo_database.config, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        fill(store.storage, ["acme"], plain=True)
    base, _, query = empty_mongo_database.url.partition("?")
    url = f"{base.rstrip('/')}/{empty_mongo_database.name}?{query}"
    (tmp_path / "target").write_text(f"{target}\n")
    monkeypatch.setenv("SOURCE", url)
    # One role for everything, as in a first look.
    monkeypatch.setenv("Persistence__Postgres__AllowUnsafeRole", "true")
    monkeypatch.setenv("Persistence__Postgres__OwnerConnectionString", "postgresql://nowhere/other")
    sides = ("--from-url", "env:SOURCE", "--to-url", f"file:{tmp_path / 'target'}", *MODULE)
    out = tmp_path / "out"
    shown = [
        invoke(capsys, "backfill", name, *sides, "--as-of", "2025-10-27T00:00:00Z", *more)
        for name, *more in (
            ("plan",),
            ("copy", "--execute", "--out", str(out)),
            ("verify", "--out", str(out)),
        )
    ]
    shown.append(invoke(capsys, "backfill", "status", *sides[2:], "--format", "json"))
    assert [answer.code for answer in shown] == [Exit.OK] * 4, shown
    assert "PASS" in shown[2].out
    parts = conninfo_to_dict(target)
    user_info = [f"{parts['user']}{end}" for end in (f":{parts['password']}", "@")]
    monkeypatch.setenv("WRONG", postgres_url(target, user=USER, password=SECRET))
    refused = invoke(capsys, "backfill", "status", "--to-url", "env:WRONG", *MODULE, "--debug")
    assert refused.code == Exit.USAGE
    files = [path.read_text() for path in out.rglob("*") if path.is_file()]
    for text in (*(answer.out + answer.err for answer in (*shown, refused)), *files):
        assert [word for word in (*user_info, USER, SECRET) if word in text] == [], text
