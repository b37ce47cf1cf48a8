"""A fresh store of any of our drivers, for tests that hold for all of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from tests.servers import Settings

__all__ = ["DRIVERS", "fresh_settings", "kept"]

DRIVERS: Final = ("memory", "mongo", "postgres")


def kept(settings: Settings) -> Settings:
    """Return settings with which MongoDB never removes a row: what samples finish lies in the past."""
    return {**settings, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}


@contextmanager
def fresh_settings(driver: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Give the settings of a store that has its schema and no row."""
    if driver == "memory":
        yield {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": f"test-{uuid4().hex}"}}}
        return
    server = request.getfixturevalue(f"{driver}_server")
    with server.migrated_database() as fresh:
        yield kept(fresh.config)
