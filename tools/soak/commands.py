"""SIGKILLs of ``copy``, ``work``, ``verify`` and ``repair`` at random moments, and a judge of what they left.

python -m tools.soak.commands [--kills 500] [--seed 7] [--rows 20000]

Rows are copied from MongoDB to PostgreSQL and back into another database of MongoDB, and again, until so many
processes were killed. After each copy rows of the target are changed, removed and added; a verification has
to find exactly these, and a repair has to fix them. ``copy`` and ``work`` are killed after progress, the
others between a quarter and all of the time that they take. What must hold:

- the next run of the command goes on and ends with its code; a copy has one job
- source and target have the same rows, and the tallies of ranges sum up to them: nothing is lost or doubled
- a verification that ends, whatever was killed before, finds the planted differences and no others

The command prints a line for each leg and a table, and exits with 1 on any violation.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from pymongo import MongoClient
from rich.console import Console
from rich.table import Table

import twinstore_embedded
from tests.support.copies import COPIED, contents_of, fill, open_store, write_config
from tests.support.databases import without_retention
from tests.support.outages import IN_MEMORY
from tests.support.servers import mongo_config, postgres_config
from twinstore.config import load_settings
from twinstore.scheduler.catalog import LOCKS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit
from twinstore_embedded.roles import DATABASE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.stores import Store
    from twinstore_embedded import Servers

PROGRAM: Final = str(Path(sys.executable).with_name("twinstore"))
TENANT: Final = "acme"
RANGE_SIZE: Final = 100
WORKERS: Final = 2
# Of ten blows at a copy one is for its coordinator, whose lease the next one has to wait for.
COORDINATOR: Final = 0.1
# In each leg; the copy gets as many as it survives.
KILLS: Final = {"copy": 30, "verify": 8, "repair": 8}
# Rows that are changed, removed and added in a target.
PLANTED: Final = 40
GOES_ON: Final = 0.5
POLL_SECONDS: Final = 0.05
LIMIT_SECONDS: Final = 600.0
LOG: Final = 5000
# On MongoDB; PostgreSQL has one.
SOURCE: Final = "soak_first"
TARGET: Final = "soak_last"
Finding: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Leg:
    """A copy in one direction, with its settings file."""

    source: str
    target: str
    config: Path

    def command(self, name: str, *words: object) -> list[str]:
        """Return a command between the two; its name may have several words."""
        sides = "--module", "scheduler", "--from", self.source, "--to", self.target
        given = PROGRAM, "--config", self.config, "backfill", *name.split(), *sides, *words
        return [str(word) for word in given]


@dataclass(slots=True)
class Soak:
    """What was done so far, and what was wrong with it.

    Attributes:
        left: how many kills are still wanted.
        kills: how many there were, by command.
        ends: how many commands ended by themselves, by command and code.
    """

    random: Random
    directory: Path
    servers: Servers
    rows: int
    left: int
    kills: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    violations: list[str] = field(default_factory=list[str])
    _seconds: dict[str, float] = field(default_factory=dict[str, float])

    def leg(self, leg: Leg) -> None:
        """Copy, verify, repair and verify again."""
        settings = load_settings(leg.config, environ={})
        with (
            open_store("scheduler", leg.source, settings, read_only=True) as source,
            open_store("scheduler", leg.target, settings) as target,
        ):
            target.storage.initializer.ensure_migrations()
            target.bulk.ledger_initializer.ensure_migrations()
            self._copy(leg, target)
            self.judge(leg, source, target)
            self.verify(leg, planted_in(leg, self.servers, target.storage, self.random, self.rows))
            words = "--in", self._out("verify"), "--delete-extra", "--execute"
            self._struck(leg, "repair", Exit.OK, *words)
            self.verify(leg, set())
            self.judge(leg, source, target)

    def _out(self, name: str) -> Path:
        return self.directory / name

    def start(self, leg: Leg, name: str, *words: object) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(leg.command(name, "--progress", "none", *words), stdout=log, stderr=log)

    def _kill(self, name: str, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.kills[name] += 1
        self.left -= 1

    def _copy(self, leg: Leg, target: Store[SchedulerStorage]) -> None:
        """Copy with a coordinator and workers, which are killed after progress and started again."""
        words = "--execute", "--out", self._out("copy"), "--range-size", RANGE_SIZE, "--engine", "workers://"
        commands = {"copy": words, **{f"work {number}": ("--execute",) for number in range(WORKERS)}}
        running = {name: self.start(leg, name.split()[0], *commands[name]) for name in commands}
        blows, seen, deadline = min(KILLS["copy"], self.left), 0, time.monotonic() + LIMIT_SECONDS
        while running["copy"].poll() is None and time.monotonic() < deadline:
            jobs = list(target.ledger.jobs())
            live = target.ledger.counts(jobs[0].id).get("live", 0) if jobs else 0
            if blows and live > seen:
                workers = [name for name in running if name != "copy" and running[name].poll() is None]
                chosen = self.random.choice(workers) if workers else "copy"
                name = "copy" if self.random.random() < COORDINATOR else chosen
                self._kill(name.split()[0], running[name])
                running[name] = self.start(leg, name.split()[0], *commands[name])
                blows, seen = blows - 1, live
            time.sleep(POLL_SECONDS)
        for name, process in running.items():
            self._await(leg, name.split()[0], process, Exit.OK)
        if len(list(target.ledger.jobs())) != 1:
            self.violations.append(f"the copy to {leg.target} has several jobs")

    def _await(self, leg: Leg, name: str, process: subprocess.Popen[bytes], wanted: int) -> None:
        try:
            code = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.violations.append(f"{name} to {leg.target} did not end")
            return
        self.ends[name, code] += 1
        if code != wanted:
            self.violations.append(f"{name} to {leg.target} ended with {code} instead of {wanted}")

    def _struck(self, leg: Leg, name: str, wanted: int, *words: object, go_on: Sequence[str] = ()) -> None:
        """Run a command until it ends by itself after the last kill; each end is judged.

        Every other run after a kill has the words of ``go_on`` as well; if nothing was finished before, it is
        refused.
        """
        blows, more = min(KILLS[name], self.left), tuple[str, ...]()
        while True:
            began, process = time.monotonic(), self.start(leg, name, *words, *more)
            if blows and name in self._seconds:
                blows -= 1
                try:
                    process.wait(self.random.uniform(0.25, 1) * self._seconds[name])
                except subprocess.TimeoutExpired:
                    self._kill(name, process)
                    more = tuple(go_on) if self.random.random() < GOES_ON else ()
                    continue
            if more and process.wait(LIMIT_SECONDS) == Exit.PREFLIGHT_REFUSED:
                more = ()
                continue
            self._await(leg, name, process, wanted)
            self._seconds[name] = time.monotonic() - began
            if not blows:
                return

    def verify(self, leg: Leg, planted: set[Finding]) -> None:
        out = self._out("verify")
        shutil.rmtree(out, ignore_errors=True)
        self._struck(leg, "verify", Exit.DIFFERENT if planted else Exit.OK, "--out", out, go_on=("--resume",))
        if self.violations:
            return
        verdict = json.loads((out / "parity-report.json").read_text())["verdict"]
        if verdict != ("FAIL" if planted else "PASS"):
            self.violations.append(f"the verdict of {leg.target} is {verdict}")
        lines = map(json.loads, (out / "differences.ndjson").read_text().splitlines())
        found = {(line["kind"], line["key"][-1]) for line in lines}
        if found != planted:
            self.violations.append(f"{leg.target}: {len(found ^ planted)} rows are reported wrongly")

    def judge(self, leg: Leg, source: Store[SchedulerStorage], target: Store[SchedulerStorage]) -> None:
        (job,) = target.ledger.jobs()
        read: Counter[str] = Counter()
        for item in target.ledger.ranges(job.id):
            read[item.entity] += sum(item.tally.read.values()) if item.tally else 0
        # A copy releases locks.
        for entity in [entity for entity in COPIED if entity is not LOCKS]:
            rows = contents_of(source.bulk, entity)
            if rows != contents_of(target.bulk, entity):
                self.violations.append(f"{leg.target} has other {entity.name} than {leg.source}")
            if read[entity.name] != len(rows):
                self.violations.append(f"the tallies of {leg.target} say {read[entity.name]} {entity.name}")


def planted_in(
    leg: Leg, servers: Servers, storage: SchedulerStorage, random: Random, rows: int
) -> set[Finding]:
    """Change, remove and add runs of a target; return what a verification has to find."""
    numbers = random.sample(range(rows), 2 * PLANTED)
    changed, removed = numbers[:PLANTED], numbers[PLANTED:]
    remove(leg, servers, [run_id(number) for number in numbers])
    for number in changed:
        storage.runs.create(make_run(TENANT, run_id(number), schedule_id="another"))
    added = range(rows, rows + PLANTED)
    for number in added:
        storage.runs.create(make_run(TENANT, run_id(number)))
    kinds = {"different": changed, "missing": removed, "extra": added}
    return {(kind, run_id(number)) for kind, numbers in kinds.items() for number in numbers}


def run_id(number: int) -> str:
    """Return the id of a run that stands alone."""
    return f"many-{number:07}"


def superuser(servers: Servers) -> psycopg.Connection:
    """Connect to PostgreSQL past its policies."""
    return psycopg.connect(servers.postgres.superuser_url(database=DATABASE), autocommit=True)


def remove(leg: Leg, servers: Servers, ids: list[str]) -> None:
    """Remove runs past the repositories."""
    if leg.target == "Postgres":
        with superuser(servers) as connection:
            connection.execute("DELETE FROM scheduler.runs WHERE id = ANY(%s)", [ids])
    else:
        with MongoClient[dict[str, Any]](servers.mongo.url) as client:
            client[TARGET]["runs"].delete_many({"_id": {"$in": ids}})


def empty(leg: Leg, servers: Servers) -> None:
    """Remove everything from a target, also what copies remember there."""
    if leg.target == "Postgres":
        with superuser(servers) as connection:
            connection.execute("DROP SCHEMA IF EXISTS scheduler, twinstore CASCADE")
    else:
        with MongoClient[dict[str, Any]](servers.mongo.url) as client:
            client.drop_database(TARGET)


def merged(*settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the databases of all."""
    return {"Persistence": {name: place for item in settings for name, place in item["Persistence"].items()}}


@contextmanager
def legs(rows: int, directory: Path) -> Iterator[tuple[Servers, tuple[Leg, Leg]]]:
    """Run both servers, fill the first database, and yield both directions."""
    with twinstore_embedded.servers(directory / "servers", durable=False) as servers:
        found: list[Leg] = []
        for sides, name in ((("Mongo", "Postgres"), SOURCE), (("Postgres", "Mongo"), TARGET)):
            mongo = mongo_config(servers.mongo.url, name)
            postgres = postgres_config(servers.postgres.app_url(), servers.postgres.owner_url())
            config = write_config(directory / f"{name}.json", without_retention(merged(mongo, postgres)))
            found.append(Leg(*sides, config))
        with open_store("scheduler", "Mongo", load_settings(found[0].config, environ={})) as source:
            source.storage.initializer.ensure_migrations()
            fill(source.storage)
            for number in range(rows):
                source.storage.runs.create(make_run(TENANT, run_id(number)))
        yield servers, (found[0], found[1])


def main(given: Sequence[str] | None = None) -> int:
    """Kill, judge and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak.commands", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7, help="decides every random choice")
    parser.add_argument("--rows", type=int, default=20_000)
    options, console = parser.parse_args(given), Console()
    with ExitStack() as stack:
        parent = IN_MEMORY if IN_MEMORY.is_dir() else None
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="twinstore-soak-", dir=parent)))
        directory.chmod(0o711)
        servers, both = stack.enter_context(legs(options.rows, directory))
        soak = Soak(Random(options.seed), directory, servers, options.rows, options.kills)
        for leg in cycle(both):
            empty(leg, servers)
            soak.leg(leg)
            console.print(f"copied to {leg.target}: {dict(soak.kills)}, {len(soak.violations)} violations")
            if soak.left <= 0 or soak.violations:
                break
        if soak.violations:
            console.print((directory / "log").read_text()[-LOG:], markup=False)
    table = Table("", "killed", "ended by itself", title=f"Kills of commands, seed {options.seed}")
    for name in sorted({name for name, _ in soak.ends}):
        ended = {f"code {code}": number for (of, code), number in soak.ends.items() if of == name}
        table.add_row(name, str(soak.kills[name]), str(ended))
    console.print(table)
    for wrong in soak.violations:
        console.print(wrong, markup=False)
    return int(bool(soak.violations))


if __name__ == "__main__":
    sys.exit(main())
