"""What to type: examples of each command, for its help and its section in the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["EXAMPLES"]

_WAY: Final = "--from Mongo --to Postgres"
EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "backfill plan": (f"twinstore backfill plan {_WAY}",),
        "backfill copy": (
            f"twinstore backfill copy {_WAY}",
            f"twinstore backfill copy {_WAY} --max-rate 500 --execute",
        ),
        "backfill verify": (
            f"twinstore backfill verify {_WAY} --out report",
            f"twinstore backfill verify {_WAY} --mode sample --format json",
        ),
        "backfill diff": (f"twinstore backfill diff {_WAY} --entity runs --key run-7 --show-values",),
        "backfill recheck": (f"twinstore backfill recheck {_WAY} --in report",),
        "backfill repair": (
            f"twinstore backfill repair {_WAY} --in report",
            f"twinstore backfill repair {_WAY} --in report --execute",
        ),
        "backfill quarantine list": ("twinstore backfill quarantine list --to Postgres",),
        "backfill quarantine show": (
            "twinstore backfill quarantine show --to Postgres --entity runs --key run-7",
        ),
        "backfill quarantine export": ("twinstore backfill quarantine export --to Postgres --out held",),
        "backfill quarantine retry": (f"twinstore backfill quarantine retry {_WAY} --execute",),
        "backfill status": ("twinstore backfill status --to Postgres",),
        "backfill report": ("twinstore backfill report --in report --format markdown",),
        "backfill selftest": (f"twinstore backfill selftest {_WAY} --sample 20",),
        "backfill pause": ("twinstore backfill pause --to Postgres",),
        "backfill resume": ("twinstore backfill resume --to Postgres",),
        "backfill rate": (
            "twinstore backfill rate 200 --to Postgres",
            "twinstore backfill rate none --to Postgres",
        ),
        "migrate status": ("twinstore migrate status",),
        "migrate plan": ("twinstore migrate plan --backend Postgres",),
        "migrate run": (
            "twinstore migrate run",
            "twinstore migrate run --backend Mongo --accept-ttl runs=500",
        ),
        "migrate verify": ("twinstore migrate verify",),
        "migrate revert": ("twinstore migrate revert 016_add_list_indexes.sql",),
        "migrate export": ("twinstore migrate export --backend Postgres",),
        "config show": ("twinstore config show", "twinstore --config staging.json config show"),
        "config check": ("twinstore config check",),
        "backends": ("twinstore backends",),
        "doctor": ("twinstore doctor", "twinstore doctor --format json"),
        "smoke": ("twinstore smoke", "twinstore smoke --backend Postgres --timeout 30"),
        "purge": ("twinstore purge", "twinstore purge --tenant acme --execute"),
        "demo": ("twinstore demo",),
        "up": ("twinstore up", "twinstore up --only postgres --data-dir /tmp/trial"),
        "down": ("twinstore down",),
        "dev migration": ("twinstore dev migration library",),
        "dev schema": ("twinstore dev schema library",),
        "dev aio": ("twinstore dev aio library",),
        "dev sql": ("twinstore dev sql",),
    }
)
