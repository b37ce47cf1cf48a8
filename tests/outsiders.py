"""Samples as an outsider has them: built from their own folder and installed into a virtual environment."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SAMPLES", "Outsider", "imported", "installed"]

SAMPLES: Final = Path(__file__).parents[1] / "samples"
# The libraries of this environment are lent to the new one, so that nothing is fetched.
LENT: Final = f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n"
# Files in memory where there are such: what is durable is not what the kit asks for.
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # for speed alone
PATIENCE_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class Outsider:
    """A sample that is installed.

    Attributes:
        folder: where its project is.
        python: the interpreter of its environment.
    """

    folder: Path
    python: Path

    def run(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a module of Python in the folder of the project; ``variables`` are added to its environment."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        # Found once; else each process looks up all of Unicode.
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(SAMPLES.parent / ".hypothesis")
        environment["PYTHONPATH"] = str(self.folder)  # its files as they are now, also those of a copy
        environment |= variables
        if SHARED_MEMORY.is_dir():
            environment["TMPDIR"] = str(SHARED_MEMORY)
        return subprocess.run(
            [self.python, "-m", *map(str, arguments)],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )


def installed(folder: Path, environment: Path, *others: Path) -> Outsider:
    """Build a project, and install it into a new environment that has twinstore and the test libraries.

    Args:
        folder: the project.
        environment: where to make the environment.
        others: projects to install beside it.
    """
    venv.create(environment, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (environment / "lib" / version / "site-packages" / "lent.pth").write_text(LENT)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install"]
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", *map(str, (folder, *others))]
    subprocess.run([*pip, *offline], check=True, capture_output=True, text=True)
    return Outsider(folder, python)


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules and names of twinstore that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "twinstore":
            yield from ((node.module or "", alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names if alias.name.startswith("twinstore."))
