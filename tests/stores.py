"""A fresh store of any of our drivers, for tests that hold for all of them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from tests.servers import Settings

__all__ = ["DRIVERS", "environment_of", "fresh_settings", "kept"]

DRIVERS: Final = ("memory", "mongo", "postgres")


def kept(settings: Settings) -> Settings:
    """Return settings with which MongoDB never removes a row: what samples finish lies in the past."""
    return {**settings, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the environment of a process that is configured with these settings alone, as a host would."""
    inherited = {name: value for name, value in os.environ.items() if "__" not in name}
    return {**inherited, **dict(_variables(settings))}


def _variables(settings: Settings, path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _variables(cast("Settings", value), f"{path}{name}__")
        else:
            yield f"{path}{name}", str(value)


@contextmanager
def fresh_settings(driver: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Give the settings of an empty store; only that of PostgreSQL has its schema already."""
    if driver == "memory":
        yield {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": f"test-{uuid4().hex}"}}}
        return
    server = request.getfixturevalue(f"{driver}_server")
    database = server.database() if driver == "mongo" else server.migrated_database()
    with database as fresh:
        yield kept(fresh.config)
