"""What the programs of the demo get of the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["without_settings"]

SEPARATOR: Final = "__"
FILE: Final = "TWINSTORE_CONFIG"


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without settings of twinstore.

    They win over the file of the demo: ``Scheduler__Storage__Postgres__ConnectionString`` would send its copy
    to a server of the user.
    """
    return {key: value for key, value in environ.items() if SEPARATOR not in key and key.upper() != FILE}
