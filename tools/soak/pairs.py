"""Every two commands of a migration at the same time, and a judge of what both left.

python -m tools.soak.pairs [--seed 7] [--rows 3000] [--only copy,verify] [--with verify]

Before each pair a copy is killed halfway, so that rows are missing and a verification has listed them, and a
document in quarantine is fixed at the source. The second command starts up to a second after the first. What
``promise`` says is promised of each pair, and of all: the next copy and a retry of the quarantine succeed, a
verification passes after them, and one that passes meanwhile is right.

The command prints a table, and exits with 1 on any violation.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, TypeAlias

from pymongo import MongoClient
from rich.console import Console
from rich.table import Table

from tests.support.copies import COPIED, contents_of, open_store
from tests.support.outages import IN_MEMORY
from tools.soak.commands import LIMIT_SECONDS, PROGRAM, SOURCE, empty, legs, run_id
from twinstore.config import load_settings
from twinstore.scheduler.catalog import LOCKS
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.soak.commands import Leg
    from twinstore_embedded import Servers

Pair: TypeAlias = tuple[str, str]
COMMANDS: Final = ("copy", "other rules", "retry", "work", "verify", "repair", "migrate", "selftest")
RULES: Final = """
[[drop]]
path = "runs.note_of_another_program"
reason = "no run has it"
"""
RULES_FILE: Final = "rules.toml"
BEFORE: Final = "before"
# Rows a second, so that the second command meets the first one at work.
RATE: Final = 1000
RANGE_SIZE: Final = 100
# Takes the lease of the job, which one command has at a time.
LEASED: Final = frozenset({"copy", "other rules", "retry"})
# These end with 3 while a document is in quarantine.
COPIES: Final = frozenset({"copy", "other rules"})
BOTH: Final = "both right"
ONE: Final = "one is refused with 7, or both right if one ends before the other begins"
AGAIN: Final = "both right; or the copy ends with 4 after ranges under earlier rules, the next one with 0"
POLL_SECONDS: Final = 0.2
SAID: Final = 1000


def promise(pair: Pair) -> str:
    """Return what is promised of two commands at the same time."""
    if set(pair) == {"other rules", "work"}:
        return AGAIN
    return ONE if LEASED.issuperset(pair) else BOTH


def allowed(name: str, pair: Pair) -> set[int]:
    """Return the codes that a command may end with."""
    if name == "verify":
        # Of a target that another command writes to it says what it saw.
        return {Exit.OK, Exit.DIFFERENT, Exit.INCONCLUSIVE}
    if name == "repair":
        # It compares what it wrote.
        return {Exit.OK, Exit.DIFFERENT}
    copied: set[int] = {Exit.OK, Exit.INCONCLUSIVE} if name in COPIES else {Exit.OK}
    more = {ONE: Exit.LEASE_HELD, AGAIN: Exit.FAILED}.get(promise(pair), Exit.OK)
    return {*copied, more} if name != "work" else copied


@dataclass(slots=True)
class Pairs:
    """What was done so far, and what was wrong with it."""

    random: Random
    directory: Path
    servers: Servers
    leg: Leg
    rows: int
    violations: list[str] = field(default_factory=list[str])

    def command(self, name: str, out: str) -> list[str]:
        """Return the command line of a command by its name here."""
        written = "--out", self.directory / out
        copied = "--execute", "--range-size", RANGE_SIZE, "--max-rate", RATE, *written
        words: dict[str, tuple[object, ...]] = {
            "copy": ("copy", *copied),
            "other rules": (f"--job-file {self.directory / RULES_FILE} copy", *copied),
            "retry": ("quarantine retry", "--execute", *written),
            "work": ("work", "--execute"),
            "verify": ("verify", *written),
            "repair": ("repair", "--in", self.directory / BEFORE, "--delete-extra", "--execute", *written),
            "selftest": ("selftest", "--sample", 5, *written),
        }
        if name == "migrate":
            given = "--module", "scheduler", "--backend", self.leg.target
            return [PROGRAM, "--config", str(self.leg.config), "migrate", "run", *given]
        return self.leg.command(str(words[name][0]), *words[name][1:])

    def _start(self, name: str, out: str) -> subprocess.Popen[bytes]:
        with self._log(out).open("wb") as log:
            return subprocess.Popen(self.command(name, out), stdout=log, stderr=log)

    def _log(self, out: str) -> Path:
        return self.directory / f"{out}.log"

    def run(self, pair: Pair) -> tuple[int, int]:
        """Run two commands at the same time, judge them, and return their codes."""
        self._prepare()
        first = self._start(pair[0], "first")
        time.sleep(self.random.uniform(0, 1))
        second = self._start(pair[1], "second")
        codes = first.wait(LIMIT_SECONDS), second.wait(LIMIT_SECONDS)
        for name, code, out in zip(pair, codes, ("first", "second"), strict=True):
            if code not in allowed(name, pair):
                said = self._log(out).read_text()[-SAID:]
                self.violations.append(f"{name} next to {pair} ended with {code}: {said}")
        if set(codes) == {Exit.LEASE_HELD}:
            self.violations.append(f"none of {pair} did its work")
        if any(name == "verify" and code == Exit.OK for name, code in zip(pair, codes, strict=True)):
            self._judge(f"a verification next to {pair} passed")
        for name in ("copy", "retry", "verify"):
            code = self._start(name, "after").wait(LIMIT_SECONDS)
            if code != Exit.OK and (name, code) != ("copy", Exit.INCONCLUSIVE):
                said = self._log("after").read_text()[-SAID:]
                self.violations.append(f"after {pair} {name} ended with {code}: {said}")
        self._judge(f"{pair}")
        return codes

    def _prepare(self) -> None:
        """Leave a copy that was killed halfway, and the list of what is missing."""
        empty(self.leg, self.servers)
        subprocess.run(self.command("migrate", BEFORE), check=True, stdout=subprocess.DEVNULL)
        with MongoClient[dict[str, object]](self.servers.mongo.url) as client:
            runs = client[SOURCE]["runs"]
            sound = runs.find_one({"_id": run_id(0)})
            assert sound is not None
            spoilt = {**sound, "state": 7}
            runs.replace_one({"_id": run_id(0)}, spoilt, bypass_document_validation=True)
            copy = self._start("copy", BEFORE)
            while self._live() < self.rows // RANGE_SIZE // 3:
                time.sleep(POLL_SECONDS)
            copy.send_signal(signal.SIGKILL)
            copy.wait()
            runs.replace_one({"_id": run_id(0)}, sound)
        if self._start("verify", BEFORE).wait(LIMIT_SECONDS) != Exit.DIFFERENT:
            self.violations.append("a copy that was killed halfway is complete")

    def _live(self) -> int:
        """Return how many ranges are finished; none while the ledger is being made."""
        with (
            suppress(PreflightError),
            open_store("scheduler", self.leg.target, load_settings(self.leg.config, environ={})) as target,
        ):
            jobs = list(target.ledger.jobs()) if has_ledger(target) else []
            return target.ledger.counts(jobs[0].id).get("live", 0) if jobs else 0
        return 0

    def _judge(self, what: str) -> None:
        settings = load_settings(self.leg.config, environ={})
        with (
            open_store("scheduler", self.leg.source, settings) as source,
            open_store("scheduler", self.leg.target, settings) as target,
        ):
            for entity in [entity for entity in COPIED if entity is not LOCKS]:
                if contents_of(source.bulk, entity) != contents_of(target.bulk, entity):
                    self.violations.append(f"{what}, and the {entity.name} differ")


def main(given: Sequence[str] | None = None) -> int:
    """Run all pairs, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak.pairs", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="decides when the second one starts")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--only", type=lambda text: tuple(text.split(",")), default=COMMANDS)
    parser.add_argument("--with", dest="one", choices=COMMANDS, help="only pairs with this command")
    options, console = parser.parse_args(given), Console()
    table = Table("first", "second", "promise", "ended with", "violations")
    with ExitStack() as stack:
        parent = IN_MEMORY if IN_MEMORY.is_dir() else None
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="twinstore-soak-", dir=parent)))
        directory.chmod(0o711)
        servers, (leg, _) = stack.enter_context(legs(options.rows, directory))
        (directory / RULES_FILE).write_text(RULES)
        pairs = Pairs(Random(options.seed), directory, servers, leg, options.rows)
        for pair in combinations_with_replacement(options.only, 2):
            if options.one is not None and options.one not in pair:
                continue
            before = len(pairs.violations)
            codes = pairs.run(pair)
            wrong = len(pairs.violations) - before
            table.add_row(*pair, promise(pair), str(codes), str(wrong))
            console.print(pair, codes, wrong)
    console.print(table)
    for violation in pairs.violations:
        console.print(violation, markup=False, soft_wrap=True)
    return int(bool(pairs.violations))


if __name__ == "__main__":
    sys.exit(main())
