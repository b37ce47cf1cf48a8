"""Modules of data alone, installed as packages and migrated as their author does it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.copies import Pair, open_store, write_config
from tests.support.databases import MongoDatabase, PostgresDatabase
from tests.support.distributions import install_distribution
from twinstore.config import load_settings
from twinstore_backfill.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from twinstore.config import Settings

    Database = MongoDatabase | PostgresDatabase


@contextmanager
def installed_module(
    folder: Path, name: str, config: Mapping[str, object], file: str = "applications", text: str = ""
) -> Iterator[None]:
    """Install one of the modules of data alone as a package, migrated as its author does it.

    Args:
        folder: where the package is made.
        name: of the module.
        config: settings that name a PostgreSQL.
        file: of this folder, which describes the module.
        text: of the package instead.
    """
    with pytest.MonkeyPatch.context() as patch:
        points = {"twinstore.modules": {name: f"{name}:{name.upper()}_PLUGIN"}}
        package = install_distribution(patch, folder, f"acme-{name}", points) / name
        package.mkdir()
        described = f"from tests.support.{file} import {name.upper()}_PLUGIN as {name.upper()}_PLUGIN\n"
        (package / "__init__.py").write_text(text or described)
        settings = write_config(folder / f"{name}.json", config)
        for command in (
            ("dev", "migration", name, f"create_{name}"),
            ("migrate", "run", "--module", name, "--backend", "Postgres"),
            ("dev", "schema", name, "--backend", "Postgres"),
        ):
            assert main(["--config", str(settings), *command]) == 0
        yield
        sys.modules.pop(name, None)


@contextmanager
def opened(module: str, source: Database, target: Database, out: Path) -> Iterator[Pair]:
    """Open two databases; the target is migrated, and the source is what another program has made."""
    out.mkdir(exist_ok=True)
    with (
        open_store(module, backend_of(source), settings_of(source), read_only=True) as reader,
        open_store(module, backend_of(target), settings_of(target)) as writer,
    ):
        writer.storage.initializer.ensure_migrations()
        yield Pair(reader, writer, out)


def backend_of(database: Database) -> str:
    return "Mongo" if isinstance(database, MongoDatabase) else "Postgres"


def settings_of(database: Database) -> Settings:
    return load_settings(dict(database.config), environ={})
