"""The environment of the figures: versions and the machine."""

from __future__ import annotations

import os
import platform
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from benchmarks.databases import BenchmarkDatabases

__all__ = ["QUIET", "facts", "load_line"]

LIBRARIES: Final = ("twinstore", "pymongo", "psycopg", "psycopg-pool", "pydantic", "pydantic-core", "orjson")
# The load of the last minute below which a machine counts as quiet.
QUIET: Final = 0.5


def load_line(load: float) -> str:
    """Return what to say of the load before the first measurement."""
    text = f"load before the run: {load:.2f}"
    if load < QUIET:
        return f"{text} (quiet: below {QUIET})"
    return f"{text}, so the machine is not quiet (below {QUIET}): trust the ratios and not the rates"


def facts(databases: BenchmarkDatabases) -> dict[str, object]:
    """Return versions of everything involved, and what the machine is."""
    with closing(databases.superuser()) as connection:
        postgres = connection.info.server_version
        settings = connection.execute(
            "SELECT name, setting FROM pg_settings "
            "WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers')"
        ).fetchall()
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "mongodb": str(databases.client.server_info()["version"]),
        "postgresql": f"{postgres // 10000}.{postgres % 10000}",
        "postgresql_settings": dict(settings),
        **{library: version(library) for library in LIBRARIES},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
