"""Describes the driver to twinstore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from twinstore.driver import BackendSettings, BackendSpec, hookimpl

if TYPE_CHECKING:
    from twinstore.driver import ModuleBackend, OpenRequest


class SqliteSettings(BackendSettings):
    """Settings of the SQLite driver.

    Attributes:
        path: the file; its folder must exist.
        timeout_ms: how long a commit waits for that of another process, in milliseconds.
        synchronous: what survives a loss of power; see the documentation of SQLite.
    """

    path: Path
    timeout_ms: int = 5000
    synchronous: Literal["OFF", "NORMAL", "FULL"] = "FULL"


def open_module(request: OpenRequest) -> ModuleBackend[object]:
    """Open one module; connects on first use."""
    from twinstore_sqlite.backend import SqliteBackend

    return SqliteBackend(request.module, request)


@hookimpl
def twinstore_register_backend() -> BackendSpec:
    """Describe the driver."""
    return BackendSpec(
        name="SQLite",
        schemes=("sqlite",),
        api_version=2,
        settings=SqliteSettings,
        factory=open_module,
        extra="twinstore-sqlite",
        requires=("sqlite3",),
    )
