"""The command line as it is measured: copy, copy back, verify."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from benchmarks.children import run_child
from benchmarks.postgres_limits import COLUMNS
from benchmarks.schedule import Sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.children import Child
    from benchmarks.databases import BenchmarkDatabases

__all__ = ["CliCases", "Differences", "fast_part"]

CHANGED: Final = 4
MISSING: Final = 3
EXTRA: Final = 3
KEEP: Final = f"CREATE TABLE public.kept AS SELECT {COLUMNS} FROM scheduler.runs WHERE id = ANY (%s)"  # noqa: S608  # constants
RESTORE: Final = f"INSERT INTO scheduler.runs ({COLUMNS}) SELECT {COLUMNS} FROM public.kept"  # noqa: S608  # constants
CHANGE: Final = "UPDATE scheduler.runs SET stats = stats || '{\"candidates\": 9999}' WHERE id = ANY (%s)"
REMOVE: Final = "DELETE FROM scheduler.runs WHERE id = ANY (%s)"
REST: Final = COLUMNS.removeprefix("id, ")
ADD: Final = f"""
INSERT INTO scheduler.runs (id, {REST}) SELECT id || '~', {REST} FROM scheduler.runs WHERE id = ANY (%s)
"""  # noqa: S608  # constants


@dataclass(frozen=True, slots=True)
class CliCases:
    """Runs of the command line over the runs in the databases of a benchmark.

    Attributes:
        environment: what is added to the environment of the command.
        further: what is added to the arguments of a copy.
        before: options of ``backfill`` itself.
    """

    databases: BenchmarkDatabases
    documents: int
    jobs: int
    profile: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    further: Sequence[str] = ()
    before: Sequence[str] = ()

    def copy(self, name: str, expected: str = "written") -> Sample:
        """Copy MongoDB to PostgreSQL; all documents but those of an earlier copy must be ``expected``."""
        child = self._copy(name, "mongo", "postgres", self.databases.settings_file())
        return self._sample(child, self._report(name), expected)

    def copy_back(self, name: str) -> Sample:
        """Copy PostgreSQL to MongoDB."""
        child = self._copy(name, "postgres", "mongo", self.databases.settings_file(back=True))
        return self._sample(child, self._report(name), "written")

    def verify(self, name: str, *, named: Sequence[str] = ()) -> Sample:
        """Compare both sides; every key in ``named`` must be reported as a difference, and no other."""
        out = self._out(name)
        arguments = self.arguments("verify", "mongo", "postgres", self.databases.settings_file(), out)
        child = self._run(arguments, name, expected=1 if named else 0)
        text = (out / "parity-report.json").read_text(encoding="utf-8")
        unnamed = [key for key in named if json.dumps(key, ensure_ascii=False) not in text]
        if unnamed:
            raise RuntimeError(f"verify did not name {unnamed}")
        return self._sample(child, json.loads(text), "")

    def _copy(self, name: str, source: str, target: str, settings: Path) -> Child:
        arguments = self.arguments("copy", source, target, settings, self._out(name))
        return self._run([*arguments, "--execute", *self.further], name, expected=0)

    def _run(self, arguments: Sequence[str], name: str, *, expected: int) -> Child:
        environment = {**os.environ, **self.environment}
        profile = self._profile(name)
        return run_child(arguments, expected=expected, profile=profile, environment=environment)

    def arguments(self, command: str, source: str, target: str, settings: Path, out: Path) -> list[str]:
        """Return the arguments of a command; a copy with them writes nothing."""
        both = ["--source-config", str(settings), "--target-config", str(settings)]
        words = ["backfill", *self.before, command, "--module", "scheduler", "--from", source, "--to", target]
        words += [*both, "--entity", "runs", "--jobs", str(self.jobs), "--out", str(out)]
        return [*words, "--format", "json"]

    def _out(self, name: str) -> Path:
        out = self.databases.directory / "out" / name.replace(" ", "-").replace(",", "")
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        return out

    def _profile(self, name: str) -> Path | None:
        return self.databases.directory / f"profile-{name.replace(' ', '-')}.txt" if self.profile else None

    def _report(self, name: str) -> dict[str, Any]:
        path = (
            self.databases.directory
            / "out"
            / name.replace(" ", "-").replace(",", "")
            / "backfill-report.json"
        )
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return report

    def _sample(self, child: Child, report: dict[str, Any], expected: str) -> Sample:
        if expected and report["totals"][expected] < self.documents * 0.85:
            raise RuntimeError(f"{report['totals']} where {self.documents} documents should be {expected}")
        return Sample(
            units=self.documents,
            seconds=report["envelope"]["seconds"],
            whole_seconds=child.seconds,
            peak_bytes=child.peak_bytes,
            client_seconds=child.processor_seconds,
            fast=fast_part(report),
            watch_seconds=child.watch_seconds,
        )


def fast_part(report: Mapping[str, Any]) -> float | None:
    """Return the part of the rows that native code moved or compared, if the report has it."""
    fast_path = report["envelope"].get("fast_path")
    return fast_path["rows"] / fast_path["of"] if fast_path and fast_path["of"] else None


class Differences:
    """Ten differences in the table, planted and removed again."""

    def __init__(self, databases: BenchmarkDatabases) -> None:
        """Take the databases; the table must be complete before the first plant."""
        self._databases = databases
        self.keys: tuple[str, ...] = ()

    def plant(self) -> None:
        """Change four rows, remove three, add three; remember their keys."""
        self.remove()
        with closing(self._databases.superuser()) as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM scheduler.runs ORDER BY id")]
            chosen = ids[len(ids) // 20 :: len(ids) // (CHANGED + MISSING + EXTRA)]
            changed, missing = chosen[:CHANGED], chosen[CHANGED : CHANGED + MISSING]
            origins = chosen[CHANGED + MISSING : CHANGED + MISSING + EXTRA]
            connection.execute(KEEP, [changed + missing])
            connection.execute(CHANGE, [changed])
            connection.execute(REMOVE, [missing])
            connection.execute(ADD, [origins])
        self.keys = (*changed, *missing, *(f"{key}~" for key in origins))

    def remove(self) -> None:
        """Bring the rows back as they were."""
        if not self.keys:
            return
        with closing(self._databases.superuser()) as connection:
            connection.execute(REMOVE, [list(self.keys)])
            connection.execute(RESTORE)
            connection.execute("DROP TABLE public.kept")
        self.keys = ()
