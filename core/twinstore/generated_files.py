"""Files that are generated: formatted as their project formats, written where they are not current."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from twinstore.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["formatted", "update_files"]


def formatted(path: Path, text: str) -> str:
    """Return the text of a file as ruff formats and sorts it with the settings of its project.

    Raises:
        ConfigurationError: ruff is not installed, or refuses the text.
    """
    # Imports are sorted first, because sorting may leave lines that the formatter joins.
    for command in (["check", "--fix", "--quiet", "--select", "I,RUF022"], ["format", "--quiet"]):
        done = subprocess.run(  # noqa: S603  # the formatter of this environment
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()
            raise ConfigurationError(
                f"{path.name} cannot be formatted ({reason[-1] if reason else 'ruff failed'}). "
                "Run: pip install ruff"
            )
        text = done.stdout
    return text


def update_files(wanted: dict[Path, str], *, check: bool) -> bool:
    """Write the files and remove what else stands beside them; return whether anything was not current.

    Args:
        wanted: text by path. A generated package is here as a whole: its other files are removed.
        check: write and remove nothing.
    """
    packages = {path.parent for path in wanted if path.name == "__init__.py"}
    real = {path for package in packages for path in package.glob("*.py")} | wanted.keys()
    stale = {
        path for path in real if not path.is_file() or path.read_text(encoding="utf-8") != wanted.get(path)
    }
    if not check:
        for path in stale:
            if path not in wanted:
                path.unlink()
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
    return bool(stale)
