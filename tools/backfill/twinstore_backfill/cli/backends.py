"""``twinstore backends``."""

from __future__ import annotations

from dataclasses import asdict

from twinstore.plugins import list_backends
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.cli.params import Format, OutputFormat

__all__ = ["backends"]


def backends(output: OutputFormat = Format.TEXT) -> None:
    """List the installed drivers, without importing their client libraries."""
    found = list_backends()
    rows = [
        (info.name, info.distribution, info.version, info.state, ", ".join(info.modules) or "-")
        for info in found
    ]
    problems = [f"{info.name}: {info.detail}" for info in found if info.detail]
    emit(
        output,
        {"backends": [asdict(info) for info in found]},
        table(("driver", "distribution", "version", "state", "modules"), rows),
        *problems,
    )
