"""Run the test files that execute what has changed.

``python -m tests.support.changed [arguments of pytest]`` finds them in the map that ``make test-long`` writes
(:mod:`tests.support.executed`). Changed is what differs from ``BASE``, and what git does not know yet.
``BASE`` is the merge base with main on a branch, and on main the last commit on which ``make test`` passed
here; a variable ``BASE`` in the environment names another.

Where the map cannot know who uses a changed file, all of ``make test`` runs, and the first lines say why.
``--note-passed``, an option of pytest, notes the commit if a run passes; ``make test`` adds it to whole runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.executed import MAP, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PASSED: Final = ROOT / ".twinstore" / "tests-passed"
MAIN: Final = "main"
PRODUCT: Final = ("core/", "backends/", "tools/backfill/", "tools/embedded/")
# What is read rather than executed, which the map does not see; the first pattern counts.
READERS: Final = {
    "samples/api/*": (),
    "samples/invalid/*": (),
    "samples/taskrunner/*": (),
    "samples/tracking/*": (),
    "samples/*": (
        "tests/docs/test_*.py",
        "tests/kit/test_own_*.py",
        "tests/packaging/test_*_samples.py",
        "tests/packaging/test_deployments.py",
        "tests/packaging/test_schedules.py",
    ),
    "docs/*": ("tests/docs/test_*.py",),
    "*.md": ("tests/docs/test_*.py",),
    "mkdocs.yml": ("tests/docs/test_*.py",),
}
# Whole files of them run in addition to make test, which only builds one wheel.
BUILT_FROM: Final = ("pyproject.toml", "hatch_build.py", "hatch_version.py", "core/native/*")
BUILDS: Final = tuple(
    f"tests/packaging/test_{name}.py" for name in ("extras", "native_build", "sdist", "without_compiler")
)


class PassedCommitPlugin:
    """Notes the commit of a run that passes; what was not committed when it began counts as changed later."""

    def __init__(self, file: Path = PASSED) -> None:
        """Remember the commit that is tested."""
        self._file, self._commit = file, ""
        # A release has no git.
        with suppress(NotKnownError):
            self._commit = git("rev-parse", "HEAD")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note it."""
        if exitstatus == pytest.ExitCode.OK and self._commit:
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_text(f"{self._commit}\n")


class NotKnownError(Exception):
    """Which tests a change concerns is not known; the text says why."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Test files to run, which of them with what only a long run does, and why all must run."""

    files: frozenset[str]
    whole: frozenset[str]
    unknown: tuple[str, ...] = ()


def git(*words: str, folder: Path = ROOT) -> str:
    """Return what git prints.

    Raises:
        NotKnownError: it fails, or there is no git.
    """
    try:
        return subprocess.run(
            ["git", *words],  # noqa: S607  # from the path, as git itself is
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        raise NotKnownError(f"git {words[0]} failed: {output.strip()}") from error


def base(folder: Path = ROOT, passed: Path = PASSED) -> str:
    """Return the commit that changes are counted from.

    Raises:
        NotKnownError: there is none.
    """
    if named := os.environ.get("BASE"):
        return git("rev-parse", "--verify", f"{named}^{{commit}}", folder=folder)
    if git("branch", "--show-current", folder=folder) != MAIN:
        return git("merge-base", MAIN, "HEAD", folder=folder)
    if not passed.is_file():
        raise NotKnownError("This is main, and make test has not passed here yet.")
    return passed.read_text().strip()


def changed_since(commit: str, folder: Path = ROOT) -> list[str]:
    """Return the files that differ from a commit, deleted ones included, and those git does not know yet."""
    differ = git("diff", "--name-only", "--no-renames", "-z", commit, "--", folder=folder)
    unknown = git("ls-files", "--others", "--exclude-standard", "-z", folder=folder)
    return sorted({name for name in (differ + "\0" + unknown).split("\0") if name})


def choose(changed: Iterable[str], known: Mapping[str, Sequence[str]], folder: Path = ROOT) -> Choice:
    """Choose the test files that changes concern."""
    files, whole, unknown = set[str](), set[str](), list[str]()
    for name in changed:
        concerned = {*known.get(name, ()), *readers(name, folder)}
        path = Path(name)
        if path.parts[0] == "tests" and fnmatch(path.name, "test_*.py"):
            concerned.add(name)
        elif path.name == "conftest.py" or not concerned:
            unknown.append(f"The map does not know which tests use {name}.")
        files |= concerned
        if not name.startswith(PRODUCT):
            whole |= concerned
        if any(fnmatch(name, pattern) for pattern in BUILT_FROM):
            whole |= {*BUILDS}
    there = {name for name in files | whole if (folder / name).is_file()}
    return Choice(frozenset(there), frozenset(whole & there), tuple(unknown))


def readers(name: str, folder: Path) -> set[str]:
    """Return the test files that read a page or a sample."""
    patterns = next((patterns for pattern, patterns in READERS.items() if fnmatch(name, pattern)), ())
    return {path.relative_to(folder).as_posix() for each in patterns for path in folder.glob(each)}


def read_map(path: Path = MAP) -> dict[str, list[str]]:
    """Read the map.

    Raises:
        NotKnownError: there is none.
    """
    try:
        known: dict[str, list[str]] = json.loads(path.read_text())
    except FileNotFoundError:
        raise NotKnownError(f"There is no {path.relative_to(ROOT)}; make test-long writes it.") from None
    return known


def main(arguments: Sequence[str]) -> int:
    """Run the tests; return the exit code."""
    try:
        since = base()
        changed = changed_since(since)
        choice = choose(changed, read_map())
    except NotKnownError as reason:
        choice = Choice(frozenset(), frozenset(), (str(reason),))
    else:
        log(f"{len(changed)} files have changed since {since[:12]}; {len(choice.files)} test files use them.")
    if choice.unknown:
        log("\n".join([*choice.unknown, "So all of make test runs."]))
    elif not choice.files:
        return 0
    return run(choice, arguments)


def run(choice: Choice, arguments: Sequence[str]) -> int:
    """Run what was chosen; return the exit code."""
    long = [f"--long-file={name}" for name in sorted(choice.whole)]
    code = pytest.main([*arguments, *long, *([] if choice.unknown else sorted(choice.files))])
    # All that was chosen may be left to the long run.
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)


def log(text: str) -> None:
    """Print what is done before a run of tests says more."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
