"""The version of this package.

In a checkout it is that of ``pyproject.toml``, because an editable installation keeps the version that it was
made with; elsewhere that of the installed distribution.
"""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Final

__all__ = ["__version__"]

NAME: Final = "twinstore"
PYPROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"


def current(pyproject: Path = PYPROJECT) -> str:
    """Return the version, from a file that exists in a checkout only, or from the installed distribution."""
    if pyproject.is_file():
        project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {})
        # Where somebody has unpacked this package in a checkout of theirs, the file is of another project.
        if project.get("name") == NAME and "version" in project:
            return str(project["version"])
    return version(NAME)


__version__: Final = current()
