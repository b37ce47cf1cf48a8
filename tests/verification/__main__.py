"""Runs the groups and writes ``verification-report.md`` and ``verification-report.json``.

Exit code 1: a case failed, or a method has no case on a driver; each is named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from docs.parts.support import SUPPORT, support_text
from tests.servers import ONLY
from tests.verification.groups import DRIVERS, KITS, files_of_groups
from tests.verification.report import Facts, markdown, report_of
from twinstore.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "verification-report"
SERVERS: Final = ("mongo", "postgres")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.verification", description=__doc__)
    parser.add_argument("--only", choices=SERVERS, help="this driver alone; the other server is not started")
    parser.add_argument("--out", type=Path, default=ROOT, help="where the report is written")
    parser.add_argument("--workers", default="2", help="processes that run the cases")
    parser.add_argument("--update-docs", action="store_true", help="renew the data of the support table")
    return parser.parse_args(given)


def files_of(only: str | None) -> list[str]:
    """Return the test files of a run; the kits of other drivers would be deselected case by case."""
    others = {file for driver, file in KITS.items() if only not in {None, driver}}
    return [file for file in files_of_groups() if file not in others]


def run(options: argparse.Namespace, folder: Path) -> int:
    """Run the cases; return the exit code of pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", options.workers, "--dist", "loadfile"]
    command += ["--no-loadscope-reorder", "-p", "twinstore.testing.matrix", "-p", "tests.verification.plugin"]
    command += [f"--method-matrix={folder / 'matrix'}", f"--drivers-file={folder / 'drivers'}"]
    environ = dict(os.environ)
    if options.only is not None:
        command.append(f"--only-driver={options.only}")
        environ[ONLY] = options.only
    return subprocess.run([*command, *files_of(options.only)], cwd=ROOT, env=environ, check=False).returncode


def commit() -> str:
    """Return the commit of the working copy, and whether it was changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607  # whichever git there is
        return done.stdout.strip()

    found = git("rev-parse", "--short=12", "HEAD") or "unknown"
    return f"{found} with changes" if git("status", "--porcelain", "--untracked-files=no") else found


def facts_of(only: str | None, clock: Clock) -> Facts:
    """Return what the report says of this run."""
    return Facts(
        version=version("twinstore"),
        commit=commit(),
        written_at=clock.now().isoformat(timespec="seconds"),
        python=platform.python_version(),
        drivers=DRIVERS if only is None else (only,),
    )


def write(report: dict[str, Any], folder: Path) -> Path:
    """Write both forms of the report; return the path of that for people."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.json").write_text(f"{json.dumps(report, indent=1)}\n", "utf-8")
    path = folder / f"{NAME}.md"
    path.write_text(markdown(report), "utf-8")
    return path


def support_of(report: dict[str, Any]) -> dict[str, list[str]]:
    """Return on which drivers each method was exercised."""
    return {
        method: [driver for driver in report["drivers"] if by_driver.get(driver)]
        for method, by_driver in report["methods"].items()
    }


def main(given: Sequence[str] | None = None, clock: Clock | None = None) -> int:
    """Run, write and judge."""
    options = arguments(given)
    # Before the run, because somebody may commit while it lasts.
    facts = facts_of(options.only, clock or SystemClock())
    with TemporaryDirectory() as name:
        folder = Path(name)
        code = run(options, folder)
        if not (folder / "matrix").exists():
            sys.stderr.write(f"The run ended with code {code} before any case; there is no report.\n")
            return 2
        content = json.loads((folder / "matrix").read_text("utf-8"))
        drivers = json.loads((folder / "drivers").read_text("utf-8"))
    report = report_of(content, drivers, facts)
    path = write(report, options.out)
    for item in report["missing"]:
        sys.stderr.write(f"no case: {item}\n")
    if options.update_docs and options.only is None:
        SUPPORT.write_text(support_text(support_of(report)), "utf-8")
    sys.stdout.write(f"{report['result']}: {path}\n")
    return 0 if report["result"] == "passed" and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
