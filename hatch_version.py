"""Computes the version of a build: `0.2.0.dev1922` is the next release and the number of commits.

Tags do not count, because one clone of a commit may have them and another one not. Uncommitted changes do
not count either: the version names the commit, and the checksum in each report names the code. An sdist
keeps the version it was made with, without this file. ``TWINSTORE_VERSION`` is the version of a release. A
build in a shallow clone stops, and one without git is ``0.2.0.dev0+unknown``. A checkout
reports the version of its last `make setup`. Code compares releases, never
the number after ``.dev``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

NEXT_RELEASE: Final = "0.2.0"
# A release is built with its number in this variable, which is used as it is.
VARIABLE: Final = "TWINSTORE_VERSION"
# By name, so that neither a repository around this folder nor GIT_DIR of a hook is counted instead.
REPOSITORY: Final = Path(__file__).resolve().parent / ".git"
TOO_SHALLOW: Final = (
    "the commits of a shallow clone cannot be counted: run `git fetch --unshallow`, or set the version, "
    f"such as {NEXT_RELEASE}.dev1, in the environment variable {VARIABLE}."
)


def version() -> str:
    """Return the version of what is built here.

    Raises:
        RuntimeError: this is a shallow clone.
    """
    if given := os.environ.get(VARIABLE):
        return given
    try:
        shallow, commits = git("rev-parse", "--is-shallow-repository"), git("rev-list", "--count", "HEAD")
    except (OSError, subprocess.CalledProcessError):  # without git, or without a repository
        return f"{NEXT_RELEASE}.dev0+unknown"
    if shallow == "true":
        raise RuntimeError(TOO_SHALLOW)
    return f"{NEXT_RELEASE}.dev{commits}"


def git(*words: str) -> str:
    """Return the answer of git about this repository."""
    command = ["git", "--git-dir", str(REPOSITORY), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603  # no shell
