"""Full disks under commands: that of the target, and that of the files which commands write; and a judge.

python -m tools.soak.full_disk [--seed 7] [--faults 10] [--rows 3000] [--only target,files,driver]

    target  the disk of the target is full (as root; a file system in memory) while ``copy``, ``work``,
            ``verify``, ``repair`` or ``migrate run`` work, for some seconds or until the command has ended;
            PostgreSQL and MongoDB
    files   each call of the system that writes below the directory of a command may fail (a library that is
            preloaded; needs a C compiler), once or from then on: no space, no quota, read-only, forbidden,
            input/output error; at open, write, fsync, close, rename and mkdir. As root also a real file
            system with a few pages left.
    driver  the same for the files of the filesystem driver, under a writer

``--faults`` is how many there are of each command, and ten times as many for the driver. Promised:

- a command ends with its own code or with 4; with 2 if its directory takes no file before it begins
- one line on stderr says why, and names the directory; no traceback
- after code 2 or 4 no report of this run is there but those that say why; all others are as before
- the same command with room ends as it would have, and the rows of both sides and the job are right
- of the driver: what was confirmed is stored, what was refused as not applied is not, and files are whole

The command prints a table, and exits with 1 on any violation.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast
from xml.etree import ElementTree as ET

from pymongo import MongoClient
from pymongo.errors import PyMongoError
from rich.console import Console
from rich.table import Table

from tests.drivers.filesystem.test_killed_writers import assert_stored, assert_whole
from tests.drivers.filesystem.writer import RUNS
from tests.support import forked
from tests.support.copies import open_store
from tests.support.outages import IN_MEMORY
from tools.soak.commands import LIMIT_SECONDS, PROGRAM, SOURCE, Soak, empty, legs, planted_in, run_id
from tools.soak.faults import small_disk
from tools.soak.servers import filled
from twinstore.config import load_settings
from twinstore.errors import Outcome
from twinstore.storage.open import open_module
from twinstore_backfill.outcome import Exit
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tools.soak.commands import Leg
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore_embedded import Servers

SOURCE_OF_LIBRARY: Final = Path(__file__).with_name("failing_calls.c")
ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)
PAGE: Final = 4096
SMALL: Final = 8_000_000
# They hold what the ledger said when they were written as a whole, and outlive a copy that fails.
LISTS: Final = frozenset({"quarantine.ndjson", "conflicts.ndjson"})
# Commands that do not run again where their files are.
REFUSES_ITS_FILES: Final = frozenset({"init", "dev new"})
SAID: Final = 1500
POLL_SECONDS: Final = 0.05
# So that a fault comes while a copy works.
RATE: Final = 1500
RANGE_SIZE: Final = 50
# Beyond the rows of a source.
SPOILT: Final = 9_000_000


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        files: what its directory holds then.
        calls: how many of its calls counted.
    """

    code: int
    said: str
    files: Mapping[str, bytes]
    calls: int = 0

    @property
    def errors(self) -> list[str]:
        """The lines that say why it failed."""
        return [line for line in self.said.splitlines() if line.startswith("error: ")]


@dataclass(frozen=True, slots=True)
class Case:
    """A command that writes files.

    Attributes:
        words: its command line.
        stdout: whether its result goes to a file by the shell.
        temporary: whether the temporary files fail, and not those of its directory.
        prepare: what has to happen before each run.
    """

    words: Sequence[str]
    stdout: bool = False
    temporary: bool = False
    prepare: Callable[[], object] = lambda: None


@dataclass(slots=True)
class Found:
    """What was seen, by case.

    Attributes:
        codes: how many runs ended with a code, by case.
    """

    codes: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    console: Console = field(default_factory=Console)
    violations: list[str] = field(default_factory=list[str])

    def add(self, case: str, code: object) -> None:
        """Count an end."""
        self.codes.setdefault(case, Counter())[str(code)] += 1
        self.console.print(f"{case}: {code}", markup=False)

    def count(self, case: str, number: int = 1) -> None:
        """Count writes."""
        self.codes.setdefault(case, Counter())["writes"] += number

    def left_out(self, library: Path | None, *, disk: bool) -> None:
        """Say what cannot happen on this machine."""
        if library is None:
            self.console.print("left out, no C compiler: calls of the system that fail")
        if not disk:
            self.console.print("left out, no file system can be mounted here: file systems that are full")

    def wrong(self, case: str, what: str, said: str = "") -> None:
        """Add a violation."""
        self.violations.append(f"{case}: {what}\n{said[-SAID:]}")
        self.console.print(self.violations[-1], markup=False, soft_wrap=True)


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the content of all files below a directory by name."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def are_lines(content: bytes) -> bool:
    """Whether a file has whole lines of JSON, or none."""
    lines = content.splitlines()
    return content[-1:] in {b"", b"\n"} and all(json.loads(line) for line in lines)


def says_why(name: str, content: bytes, code: int) -> bool:
    """Whether a file is whole and says why a command failed."""
    if name.endswith(".json"):
        document = json.loads(content)
        return bool(document.get("exit_code") == code and document.get("state") != "complete")
    if name.endswith(".xml"):
        return ET.fromstring(content).get("errors") == "1"  # noqa: S314  # our own
    end = b"</html>" if name.endswith(".html") else b"\n"
    return content.rstrip(b" ").endswith((end, end + b"\n")) and f"exit code {code}".encode() in content


@dataclass(slots=True)
class FilesOfCommands:
    """Commands whose files cannot be written."""

    random: Random
    directory: Path
    library: Path | None
    servers: Servers
    leg: Leg
    found: Found

    @property
    def out(self) -> Path:
        """What the commands write to."""
        return self.directory / "out"

    @property
    def temporary(self) -> Path:
        """Where the commands have temporary files."""
        return self.directory / "temporary"

    def run(self, case: Case, environment: Mapping[str, str] | None = None) -> Ended:
        """Run a command and return how it ended."""
        case.prepare()
        log = self.directory / "calls"
        log.unlink(missing_ok=True)
        self.temporary.mkdir(exist_ok=True)
        under = self.temporary if case.temporary else self.out
        given = {"LD_PRELOAD": str(self.library), "FAIL_UNDER": str(under), "FAIL_LOG": str(log)}
        with ExitStack() as stack:
            stdout = subprocess.DEVNULL
            if case.stdout:
                stdout = stack.enter_context((self.out / "stdout").open("wb")).fileno()
            done = forked.run(
                [PROGRAM, *case.words],
                env={
                    **os.environ,
                    "TMPDIR": str(self.temporary),
                    **(given if self.library else {}),
                    **(environment or {}),
                },
                cwd=self.out,
                stdout=stdout,
                timeout=LIMIT_SECONDS,
            )
        calls = len(log.read_text().splitlines()) if log.exists() else 0
        return Ended(done.returncode, done.stderr, files_of(self.out), calls)

    def cases(self) -> dict[str, Case]:
        """Return the commands, in an order in which each finds what it needs."""
        out, base = str(self.out), str(self.directory / "base")

        def words(name: str, *more: object) -> list[str]:
            return self.leg.command(name, *more)[1:]

        job = self.directory / "job.toml"
        job.write_text(
            f'module = "scheduler"\nconfig = "{self.leg.config}"\nfrom = "{self.leg.source}"\n'
            f'to = "{self.leg.target}"\nreports = "{out}"\n'
        )
        backfill = ["--config", str(self.leg.config), "backfill"]
        target = ["--module", "scheduler", "--to", self.leg.target]
        places: list[str] = []
        for option, url in (
            ("--from-url", self.servers.mongo.url.replace("/?", f"/{SOURCE}?")),
            ("--to-url", self.servers.postgres.app_url()),
            ("--to-owner-url", self.servers.postgres.owner_url()),
        ):
            file = self.directory / f"url{option}"
            file.write_text(url)
            places += option, f"file:{file}"
        repair = words("repair", "--in", base, "--delete-extra", "--execute", "--out", out)
        return {
            "copy from nothing": Case(
                words("copy", "--execute", "--out", out, "--range-size", RANGE_SIZE),
                prepare=lambda: empty(self.leg, self.servers),
            ),
            "copy again": Case(words("copy", "--execute", "--out", out, "--range-size", RANGE_SIZE)),
            "dry run": Case(words("copy", "--out", out)),
            "verify": Case(words("verify", "--out", out)),
            "verify > stdout": Case(words("verify", "--format", "json"), stdout=True),
            "recheck": Case(words("recheck", "--in", base, "--out", out)),
            "repair": Case(repair),
            "repair, temporary files": Case(repair, temporary=True),
            "dry run, temporary files": Case(words("copy", "--out", out), temporary=True),
            "recheck, temporary files": Case(words("recheck", "--in", base), temporary=True),
            "selftest, temporary files": Case(words("selftest", "--sample", 2), temporary=True),
            "quarantine export": Case(
                [*backfill, "quarantine", "export", *target, "--out", f"{out}/q.ndjson"]
            ),
            "quarantine retry": Case(words("quarantine retry", "--execute", "--out", out)),
            "selftest": Case(words("selftest", "--sample", 2, "--out", out)),
            "run": Case(["backfill", "run", str(job), "--execute"]),
            "status": Case([*backfill, "status", *target, "--out", out]),
            "report > stdout": Case(["backfill", "report", "--in", base, "--format", "html"], stdout=True),
            "init": Case(["init", "--module", "scheduler", *places]),
            "dev new": Case(["dev", "new", "module", "notes", "--entity", "note", "--out", out]),
        }

    def judge(self, name: str, case: Case, before: Mapping[str, bytes], wanted: Ended, done: Ended) -> None:
        """Judge one run with a fault."""
        found = self.found
        found.add(name, done.code)
        if "Traceback" in done.said or "unexpected" in done.said:
            found.wrong(name, f"ended with {done.code} and no plain sentence", done.said)
        if drafts := [item for item in done.files if Path(item).name.startswith(".") and item not in before]:
            found.wrong(name, f"left {drafts}")
        if done.code == wanted.code:
            # A file that says only why is written if there is room; the exit code says that it failed.
            lost = {
                item
                for item in wanted.files.keys() - done.files.keys()
                if done.code < Exit.FAILED or not says_why(item, wanted.files[item], done.code)
            }
            if lost:
                found.wrong(name, f"ended with {done.code} without {lost}")
            return
        if done.code not in {Exit.FAILED, Exit.USAGE}:
            found.wrong(name, f"ended with {done.code}", done.said)
        place = str(self.temporary if case.temporary else self.out)
        if len(done.errors) != 1 or (place not in done.errors[0] and not case.stdout):
            found.wrong(name, "does not name the directory in one line", done.said)
        for item, content in done.files.items():
            if (
                content == before.get(item)
                or (Path(item).name in LISTS and are_lines(content))
                or item == "stdout"
                or says_why(item, content, done.code)
            ):
                continue
            found.wrong(name, f"ended with {done.code} and left {item}: {content[-200:]!r}", done.said)

    def all(self, faults: int, *, disk: bool, only: Sequence[str]) -> None:
        """Run every command with faults, and each time again without."""
        for name, case in self.cases().items():
            if only and not any(name.startswith(one) for one in only):
                continue
            empty_directory(self.out)
            wanted = self.run(case)
            if "error: " in wanted.said:
                self.found.wrong(name, f"without a fault ends with {wanted.code}", wanted.said)
                continue
            for number in range(faults):
                if name in REFUSES_ITS_FILES or self.random.random() < 0.5:
                    empty_directory(self.out)
                before = files_of(self.out)
                if case.temporary and not (self.library and wanted.calls):
                    break
                if self.library and (number % 3 or not disk or case.temporary):
                    how, done = self._failing(case, wanted.calls)
                else:
                    how, done = self._full(case, wanted.files, before)
                self.judge(f"{name}, {how}", case, before, wanted, done)
                if name in REFUSES_ITS_FILES and done.code == wanted.code:
                    empty_directory(self.out)
                again = self.run(case)
                if again.code != wanted.code or again.files.keys() != wanted.files.keys() | before.keys():
                    self.found.wrong(f"{name}, {how}", f"then ended with {again.code}", again.said)

    def _failing(self, case: Case, calls: int) -> tuple[str, Ended]:
        at, rest, why = (
            self.random.randint(1, max(1, calls)),
            self.random.random() < 0.5,
            self.random.choice(ERRORS),
        )
        given = {"FAIL_AT": str(at), "FAIL_REST": str(int(rest)), "FAIL_ERRNO": str(why)}
        done = self.run(case, given)
        failed = [
            line for line in (self.directory / "calls").read_text().splitlines() if line.endswith("FAILED")
        ]
        what = failed[0].removesuffix(" FAILED").replace(str(self.directory), "") if failed else "none"
        return f"{errno.errorcode[why]} at {what}{' and later' if rest else ''}", done

    def _full(self, case: Case, files: Mapping[str, bytes], before: Mapping[str, bytes]) -> tuple[str, Ended]:
        """Run a command with the directory on a file system that has a few pages left."""
        pages = sum(-(-len(content) // PAGE) for content in (*files.values(), *before.values()))
        size = self.random.randint(sum(-(-len(content) // PAGE) for content in before.values()), pages)
        with small_disk(self.out, str(max(1, size) * PAGE)):
            put(self.out, before)
            done = self.run(case)
        empty_directory(self.out)
        put(self.out, done.files)
        return f"{size} of {pages} pages", done


def empty_directory(directory: Path) -> None:
    """Remove everything from a directory, and make it if it is absent."""
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def put(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files by name."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def files_of_commands(random: Random, directory: Path, options: argparse.Namespace, found: Found) -> None:
    """Let the files of commands fail."""
    library, disk = options.library, can_mount(directory)
    found.left_out(library, disk=disk)
    with legs(options.files_rows, directory) as (servers, (leg, _)):
        preload(library)
        spoil(servers)
        files = FilesOfCommands(random, directory, library, servers, leg, found)
        first = files.cases()["copy from nothing"]
        empty_directory(files.out)
        files.run(first)
        settings = load_settings(leg.config, environ={})
        with open_store("scheduler", leg.target, settings) as target:
            planted_in(leg, servers, target.storage, random, options.files_rows)
        files.run(files.cases()["verify"])
        shutil.copytree(files.out, directory / "base")
        files.all(options.faults, disk=disk, only=options.cases)


def spoil(servers: Servers) -> None:
    """Add a document to the source that goes to the quarantine."""
    with MongoClient[dict[str, Any]](servers.mongo.url) as client:
        runs = client[SOURCE]["runs"]
        sound = runs.find_one({"_id": run_id(0)})
        assert sound is not None
        spoilt = {**sound, "_id": run_id(SPOILT), "state": 7}
        runs.insert_one(spoilt, bypass_document_validation=True)


def built(directory: Path) -> Path | None:
    """Build the library that lets calls fail; ``None`` without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    path = directory / "failing_calls.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, SOURCE_OF_LIBRARY, "-ldl"], check=True)
    return path


def preload(library: Path | None) -> None:
    """Start the process whose forks run the programs, with a library that lets calls fail."""
    forked.end()
    before = os.environ.pop("LD_PRELOAD", None)
    if library is not None:
        os.environ["LD_PRELOAD"] = str(library)
    try:
        forked.run(["-c", ""])
    finally:
        os.environ.pop("LD_PRELOAD", None)
        if before is not None:
            os.environ["LD_PRELOAD"] = before


def can_mount(directory: Path) -> bool:
    """Return whether this process can mount a file system."""
    path = directory / "mount"
    path.mkdir()
    with small_disk(path) as mounted:
        return mounted


@dataclass(slots=True)
class FullTargets:
    """Commands whose target has no space left for a while."""

    random: Random
    soak: Soak
    found: Found
    _seconds: dict[str, float] = field(default_factory=dict[str, float])

    def leg(self, leg: Leg, faults: int) -> None:
        """Fill the disk of a target under each command."""
        for _ in range(faults):
            empty(leg, self.soak.servers)
            for name in ("migrate", "copy", "work"):
                if name == "work":
                    empty(leg, self.soak.servers)
                    self._ends(leg, "migrate", self._started(leg, "migrate"))
                self._under(leg, name)
            self._judge(leg)
            settings = load_settings(leg.config, environ={})
            with open_store("scheduler", leg.target, settings) as target:
                planted = planted_in(leg, self.soak.servers, target.storage, self.random, self.soak.rows)
            self._under(leg, "verify")
            self.soak.verify(leg, planted)
            self._under(leg, "repair")
            self.soak.verify(leg, set())
            self._judge(leg)

    def _judge(self, leg: Leg) -> None:
        settings = load_settings(leg.config, environ={})
        with (
            open_store("scheduler", leg.source, settings, read_only=True) as source,
            open_store("scheduler", leg.target, settings) as target,
        ):
            self.soak.judge(leg, source, target)

    def _started(self, leg: Leg, name: str) -> list[subprocess.Popen[bytes]]:
        out = "--out", self.soak.directory / name
        copy = "--execute", *out, "--range-size", RANGE_SIZE, "--max-rate", RATE
        words: dict[str, tuple[object, ...]] = {
            "copy": ("copy", *copy),
            "work": ("copy", *copy, "--engine", "workers://"),
            "verify": ("verify", *out),
            "repair": ("repair", "--in", self.soak.directory / "verify", "--delete-extra", "--execute", *out),
        }
        commands = [] if name == "migrate" else [leg.command(str(words[name][0]), *words[name][1:])]
        if name == "migrate":
            given = "--module", "scheduler", "--backend", leg.target
            commands = [[PROGRAM, "--config", str(leg.config), "migrate", "run", *given]]
        if name == "work":
            commands += [leg.command("work", "--execute")] * 2
        running: list[subprocess.Popen[bytes]] = []
        for number, command in enumerate(commands):
            with self._log(name, number).open("wb") as log:
                running.append(subprocess.Popen(command, stdout=log, stderr=log))
        return running

    def _log(self, name: str, number: int) -> Path:
        return self.soak.directory / f"{name}-{number}.log"

    def _under(self, leg: Leg, name: str) -> None:
        """Fill the disk while a command works; run it again with room."""
        wanted = Exit.DIFFERENT if name == "verify" else Exit.OK
        running = self._started(leg, name)
        moment = self.random.uniform(0, self._seconds.get(name, 2))
        if name in {"copy", "work"}:
            self._await_ranges(leg, self.random.randint(0, self.soak.rows // RANGE_SIZE // 2))
        else:
            time.sleep(moment)
        # A coordinator waits for workers for as long as it takes.
        until_end = name != "work" and self.random.random() < 0.5
        case = f"{name} to {leg.target}, full {'until the end' if until_end else 'for some seconds'}"

        def meanwhile() -> None:
            if leg.target == "Mongo":
                # It has room that it made before; a checkpoint needs more.
                with (
                    suppress(PyMongoError),
                    MongoClient[Any](
                        self.soak.servers.mongo.url, serverSelectionTimeoutMS=2000, timeoutMS=20_000
                    ) as client,
                ):
                    client.admin.command("fsync")
            if not until_end:
                time.sleep(self.random.uniform(1, 6))
                return
            for process in running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LIMIT_SECONDS)

        servers = self.soak.servers
        server = servers.mongo if leg.target == "Mongo" else servers.postgres
        filled(server.home, server.resume, meanwhile)
        workers = [subprocess.Popen(leg.command("work", "--execute")) for _ in range(2 * (name == "work"))]
        for number, process in enumerate(running):
            code = process.wait(LIMIT_SECONDS)
            said = self._log(name, number).read_text()
            self.found.add(case, code)
            errors = [line for line in said.splitlines() if line.startswith("error: ")]
            plain = "Traceback" not in said and "unexpected" not in said and len(errors) == (code == 4)
            if code not in {wanted, Exit.FAILED} or not plain:
                self.found.wrong(case, f"ended with {code}", said)
        # The job is the same for any engine; workers that begin before there is work to join end at once.
        self._ends(leg, name, self._started(leg, "copy" if name == "work" else name), wanted)
        # They wait for a coordinator while entities have no ranges yet.
        for process in workers:
            process.wait(LIMIT_SECONDS)

    def _ends(
        self, leg: Leg, name: str, running: list[subprocess.Popen[bytes]], wanted: int = Exit.OK
    ) -> None:
        began = time.monotonic()
        for number, process in enumerate(running):
            if (code := process.wait(LIMIT_SECONDS)) != wanted:
                said = self._log(name, number).read_text()
                self.found.wrong(f"{name} to {leg.target}", f"with room ended with {code}", said)
        self._seconds[name] = time.monotonic() - began

    def _await_ranges(self, leg: Leg, wanted: int) -> None:
        """Wait until so many ranges are finished, or a while: a copy may end before."""
        settings, deadline = load_settings(leg.config, environ={}), time.monotonic() + 15
        while time.monotonic() < deadline:
            with suppress(Exception), open_store("scheduler", leg.target, settings) as target:
                jobs = list(target.ledger.jobs()) if has_ledger(target) else []
                if jobs and target.ledger.counts(jobs[0].id).get("live", 0) >= wanted:
                    return
            time.sleep(POLL_SECONDS)


def full_targets(random: Random, directory: Path, options: argparse.Namespace, found: Found) -> None:
    """Fill the disks of both databases."""
    if not can_mount(directory):
        found.left_out(directory, disk=False)
        return
    with ExitStack() as stack:
        for name in ("postgres", "mongo"):
            home = directory / "servers" / name
            home.mkdir(parents=True)
            stack.enter_context(small_disk(home))
        (directory / "servers").chmod(0o711)
        servers, both = stack.enter_context(legs(options.rows, directory))
        soak = Soak(random, directory, servers, options.rows, 0)
        for leg in both:
            FullTargets(random, soak, found).leg(leg, max(1, options.faults // 5))
        for violation in soak.violations:
            found.wrong("afterwards", violation)


@dataclass(slots=True)
class FilesOfDriver:
    """The files of the filesystem driver under a writer.

    Attributes:
        case: what happens now.
    """

    random: Random
    directory: Path
    library: Path | None
    found: Found
    case: str = ""

    @property
    def root(self) -> Path:
        """Where the driver writes."""
        return self.directory / "root"

    def run(self, name: str, **given: object) -> list[Any]:
        """Run a writer; return what it reports."""
        words = {name: str(value) for name, value in given.items()}
        if self.library:
            words |= {"LD_PRELOAD": str(self.library), "FAIL_UNDER": str(self.root)}
        words_of_writer = ["-m", "tools.soak.disk_writer", str(self.root), name]
        done = forked.run(words_of_writer, env={**os.environ, **words})
        if done.returncode:
            self.found.wrong(self.case, "a writer ended", done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def failing(self, name: str) -> list[Any]:
        """Run a writer whose calls of the system fail."""
        at, why = self.random.randint(1, 400), self.random.choice(ERRORS)
        rest = int(self.random.random() < 0.5)
        self.case = f"driver, {name}, {errno.errorcode[why]} at {at}{' and later' if rest else ''}"
        return self.run(name, FAIL_AT=at, FAIL_REST=rest, FAIL_ERRNO=why)

    def full(self, name: str, confirmed: list[Any]) -> list[Any]:
        """Run a writer on a file system that has a few pages left; judge it there."""
        before = files_of(self.root)
        pages = sum(-(-len(content) // PAGE) for content in before.values()) + self.random.randint(0, 100)
        self.case = f"driver, {name}, {pages} pages"
        with small_disk(self.root, str(pages * PAGE)):
            put(self.root, before)
            told = self.run(name)
            self.judge([*confirmed, *told])
            before = files_of(self.root)
        put(self.root, before)
        return told

    def judge(self, told: list[Any]) -> None:
        """Compare the files with what was confirmed and refused."""
        refused = [one for one in told if one[0] == "refused"]
        for _, _, outcome, text in refused:
            self.found.count(f"driver, refused, {outcome}")
            if str(self.root) not in text:
                self.found.wrong(self.case, "does not name the path", text)
        settings = {"Persistence": {"Filesystem": {"Root": str(self.root)}}}
        with open_module("taskrunner", "Filesystem", settings) as opened:
            storage = cast("TaskRunnerStorage", opened)
            try:
                assert_whole(self.root)
                assert_stored(storage, confirmed_of(told))
                for one in refused:
                    assert one[2] != Outcome.NOT_APPLIED or not is_stored(storage, one[1]), one
            except Exception as error:  # noqa: BLE001  # whatever is wrong there
                self.found.wrong(self.case, f"{type(error).__name__}: {error}")


def files_of_driver(random: Random, directory: Path, options: argparse.Namespace, found: Found) -> None:
    """Let the files of the filesystem driver fail."""
    library, disk = options.library, can_mount(directory)
    found.left_out(library, disk=disk)
    files, told = FilesOfDriver(random, directory, library, found), list[Any]()
    preload(library)
    for number in range(10 * options.faults):
        if not number % 2:
            empty_directory(files.root)
            told = files.run(f"w{number}")
        if library and (number % 3 or not disk):
            told += files.failing(f"f{number}")
            files.judge(told)
        elif disk:
            told += files.full(f"f{number}", told)
        again = files.run(f"a{number}")
        files.judge([*told, *again])
        found.count("driver, confirmed", len(confirmed_of(again)))
        if again != confirmed_of(again):
            found.wrong(files.case, "with room a write is refused")
        told = confirmed_of([*told, *again])


def confirmed_of(told: list[Any]) -> list[Any]:
    """Return what a writer had confirmed."""
    return [one for one in told if one[0] != "refused"]


def is_stored(storage: TaskRunnerStorage, mark: str) -> bool:
    """Return whether any write of a mark is there."""
    for run in RUNS:
        texts = [entry.message for entry in storage.pack_run_logs.read(run, limit=5000)]
        if any(text == mark or text.startswith(f"{mark}:") for text in texts):
            return True
        if storage.pack_artifacts.get(run, mark) or storage.pack_run_approvals.get(run, mark):
            return True
    return storage.pack_runs.get(mark) is not None


PARTS: Final = {"target": full_targets, "files": files_of_commands, "driver": files_of_driver}


def main(given: Sequence[str] | None = None) -> int:
    """Run the parts, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak.full_disk", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="decides every random choice")
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--files-rows", type=int, default=300)
    parser.add_argument("--only", type=lambda text: tuple(text.split(",")), default=tuple(PARTS))
    parser.add_argument("--cases", type=lambda text: tuple(text.split(",")), default=())
    options, found = parser.parse_args(given), Found()
    with TemporaryDirectory(prefix="twinstore-soak-") as made:
        options.library = built(Path(made))
        _run(options, found)
    forked.end()
    table = Table("", "ended with", title=f"Full disks, seed {options.seed}")
    for name, codes in found.codes.items():
        table.add_row(name, str(dict(codes)))
    found.console.print(table)
    found.console.print(f"{len(found.violations)} violations")
    return int(bool(found.violations))


def _run(options: argparse.Namespace, found: Found) -> None:
    for name in options.only:
        with TemporaryDirectory(
            prefix="twinstore-soak-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None
        ) as made:
            directory = Path(made)
            directory.chmod(0o711)
            PARTS[name](Random(f"{options.seed}/{name}"), directory, options, found)


if __name__ == "__main__":
    sys.exit(main())
