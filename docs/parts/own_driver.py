"""The files of the sample driver, as the guide shows them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parts"]

FOLDER: Final = Path(__file__).parents[2] / "samples" / "own_driver"
FILES: Final = {
    "project": "pyproject.toml",
    "plugin": "twinstore_sqlite/plugin.py",
    "file": "twinstore_sqlite/file.py",
    "unit": "twinstore_sqlite/unit.py",
    "backend": "twinstore_sqlite/backend.py",
    "deployment": "tests/deployment.py",
    "test": "tests/test_sqlite.py",
}


def parts() -> dict[str, Callable[[], str]]:
    """Return what makes each part, by its name in the page."""
    return {f"own-driver.{name}": partial(shown, path) for name, path in FILES.items()}


def shown(path: str) -> str:
    """Return a file as a fenced block, which the tests of the pages write to a file again."""
    language = "toml" if path.endswith(".toml") else f"python file={path}"
    return f"```{language}\n{(FOLDER / path).read_text('utf-8')}```"
