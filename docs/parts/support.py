"""Which driver supports which method, as a run of ``make test-long`` has shown.

The data is committed, so that the pages can be checked without a run. ``make verification-report
ARGS=--update-docs`` renews it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.parts.tables import code, codes, table

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SUPPORT", "committed_support", "support_table", "support_text"]

SUPPORT: Final = Path(__file__).with_name("support.json")
DRIVERS: Final = ("memory", "mongo", "postgres")
Support = dict[str, list[str]]
"""By method, the drivers on which a case exercised it."""


def support_text(support: Mapping[str, list[str]]) -> str:
    """Return the text of the file, a line for each method."""
    lines = (f" {json.dumps(method)}: {json.dumps(drivers)}" for method, drivers in support.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def committed_support() -> Support:
    """Return what the last run has found."""
    found: Support = json.loads(SUPPORT.read_text("utf-8"))
    return found


def support_table() -> str:
    """Return a row for each repository and service."""
    parts: dict[str, Support] = {}
    for method, drivers in committed_support().items():
        module, attribute, *names = method.split(".")
        parts.setdefault(f"{module}.{attribute}", {})[".".join(names)] = drivers
    rows = (
        (code(part), codes(methods), *(_supported(methods, driver) for driver in DRIVERS))
        for part, methods in parts.items()
    )
    return table(("Repository or service", "Methods", *(driver.title() for driver in DRIVERS)), rows)


def _supported(methods: Support, driver: str) -> str:
    lacking = [name for name, drivers in methods.items() if driver not in drivers]
    return f"all but {codes(lacking)}" if lacking else "all"
