"""Files that are generated: formatted as their project formats, written where they are not current."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

# In the first line of each file of a package that is generated as a whole.
MARK: Final = ", as ``twinstore dev "


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
    """Write the files and remove other files next to them; return whether anything was not current.

    Args:
        wanted: text by path. A generated package is here as a whole: its other files are removed.
        check: write and remove nothing.

    Raises:
        ConfigurationError: a file there was written by hand.
    """
    packages = {path.parent for path in wanted if path.name == "__init__.py"}
    for package in packages:
        if MARK in first_line(wanted[package / "__init__.py"]):
            refuse_others(package)
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


def refuse_others(package: Path) -> None:
    """Refuse a package in which, or in place of which, there is a module that was not generated.

    Raises:
        ConfigurationError: there is one.
    """
    for path in (package.with_suffix(".py"), *sorted(package.glob("*.py"))):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.strip() and MARK not in first_line(text):
            raise ConfigurationError(
                f"{path} is where a package is generated, and was written by hand; give it another name."
            )


def first_line(text: str) -> str:
    """Return the first line of a file."""
    return text.partition("\n")[0]
