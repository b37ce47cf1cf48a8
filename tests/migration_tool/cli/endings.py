"""Commands, how they end, and what must agree with their exit code; and stores that make them end so.

What concerns a process is tried in one: signals, streams that are closed or full, workers. In the full form
one ending of every command is, too. All others differ only in what the command itself does, and run here,
through the function that a separate process calls. A process is a fork, unless a shell must prepare it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib import resources
from io import StringIO
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from jsonschema import Draft202012Validator
from psycopg.conninfo import conninfo_to_dict
from pymongo import MongoClient

from tests.support import forked
from tests.support.copies import Pair, fill, open_store, write_config
from tests.support.proxies import connected, end_all
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore_backfill.cli import main
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.proxies import Address

SERVER_PATIENCE: Final = 60
TENANTS: Final = ("acme", "broken", "surplus", "umbrella")
NO_MONGO: Final = {
    "ConnectionString": "mongodb://127.0.0.1:1/?directConnection=true",
    "ServerSelectionTimeoutMs": 200,
}
# In a statement of every copy and verification, and of nothing before them.
MARKER: Final = b"impact_snapshots"


@dataclass(frozen=True, slots=True)
class Stores:
    """Settings files by what is wrong with them, and the proxy of ``held``."""

    configs: Mapping[str, Path]
    held: Proxy


class Proxy:
    """Passes connections on to a server until a client sends the marker; then it holds or cuts them."""

    def __init__(self, target: Address, *, cut: bool) -> None:
        self.reached, self.go_on = Event(), Event()
        self._target, self._cut = target, cut
        self._sockets: list[socket.socket] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut every connection and take no more."""
        self._closed = True
        self.go_on.set()
        end_all(self._listener, *self._sockets)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = connected(self._target)
                except OSError:
                    client.close()
                    raise
                self._sockets += [client, server]
                if self._closed:  # meanwhile
                    end_all(client, server)
                    return
                Thread(target=self._pass, args=(client, server), daemon=True).start()
                Thread(target=self._pass, args=(server, client, b"-"), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, unless: bytes = b"") -> None:
        with suppress(OSError):
            while chunk := source.recv(65_536):
                if not unless and MARKER in chunk:
                    self.reached.set()
                    if self._cut:
                        self.close()
                        return
                    self.go_on.wait(SERVER_PATIENCE)
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def prepared(
    mongo: MongoDatabase, postgres: PostgresDatabase, empty: PostgresDatabase, directory: Path
) -> Iterator[Stores]:
    """Yield stores of four tenants.

    ``acme`` is equal, ``umbrella`` differs, ``broken`` has a document that no copy takes, and of ``surplus``
    the target has a row more.
    """
    good = {"Mongo": _section(mongo, "Mongo"), "Postgres": _section(postgres, "Postgres")}
    config = _written(directory, "good", good)
    _fill(config, mongo)
    _report(config)
    with ExitStack() as stack:
        proxies = {
            name: Proxy(_address(postgres), cut=name != "held") for name in ("cut-copy", "cut-verify", "held")
        }
        for proxy in proxies.values():
            stack.callback(proxy.close)
        ports = {name: proxy.port for name, proxy in proxies.items()} | {"no-postgres": 1}
        superuser = {**good["Postgres"], "ConnectionString": postgres.superuser_url}
        bad: dict[str, dict[str, Any]] = {
            "no-mongo": {**good, "Mongo": {**good["Mongo"], **NO_MONGO}},
            "superuser": {**good, "Postgres": superuser},
            "empty": {**good, "Postgres": _section(empty, "Postgres")},
            **{name: {**good, "Postgres": _through(good["Postgres"], port)} for name, port in ports.items()},
        }
        configs = {name: _written(directory, name, sections) for name, sections in bad.items()}
        yield Stores({"good": config, **configs}, proxies["held"])


def _section(database: MongoDatabase | PostgresDatabase, name: str) -> dict[str, Any]:
    sections: Any = database.config["Persistence"]
    found: dict[str, Any] = sections[name]
    return found


def _written(directory: Path, name: str, sections: Mapping[str, object]) -> Path:
    keep = {"Storage": {"RunRetentionDays": 0}}
    return write_config(directory / f"{name}.json", {"Persistence": sections, "Scheduler": keep})


def _fill(config: Path, mongo: MongoDatabase) -> None:
    settings = load_settings(config, environ={})
    with (
        open_store("scheduler", "mongo", settings) as source,
        open_store("scheduler", "postgres", settings) as target,
    ):
        source.storage.initializer.ensure_migrations()
        fill(source.storage, TENANTS)
        Pair(source, target, config.parent / "copied").copy()
        first = target.storage.schedules.list("umbrella")[0]
        target.storage.schedules.upsert(first.evolve(name="Renamed"))
    with MongoClient[dict[str, Any]](mongo.url) as client:
        runs = client[mongo.name]["runs"]
        document = runs.find_one({"tenantId": "broken"}) or {}
        client[mongo.name]["audit"].delete_one({"tenantId": "surplus"})
        runs.insert_one({**document, "_id": "bad", "state": "x"}, bypass_document_validation=True)


def _report(config: Path) -> None:
    """Write what a verification of the good stores finds."""
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
    command = ("--config", config, "backfill", "verify", *sides, "--out", config.parent / "report")
    main([str(word) for word in (*command, "--format", "json")])


def _address(database: PostgresDatabase) -> Address:
    server = conninfo_to_dict(database.app_url)
    host, port = str(server.get("host") or "127.0.0.1"), int(server.get("port") or 5432)
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def _through(section: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Return settings that reach PostgreSQL by a port of this host."""
    urls = ("ConnectionString", "OwnerConnectionString")
    return {
        **section,
        **{name: postgres_url(section[name], host="127.0.0.1", port=str(port)) for name in urls},
    }


PATIENCE: Final = 240
STALE: Final = b'{"stale": true, "exit_code": 0}'
COPY_REPORT: Final = "backfill-report.json"
DIFFERENCES: Final = "differences.ndjson"
SELFTEST_REPORT: Final = "selftest-report.json"
PARITY_REPORTS: Final = tuple(f"parity-report.{suffix}" for suffix in ("json", "xml", "md", "html"))


@dataclass(frozen=True, slots=True)
class Case:
    """One command line.

    Attributes:
        name: names it in the results.
        arguments: what follows ``twinstore``; ``{out}`` is a directory of this case.
        code: the exit code that it must have.
        stdout: ``kept``, ``gone`` (closed by its reader), ``closed`` (by the calling process), or ``full``.
        stale: the directory holds reports of an earlier run.
        full: no file accepts a byte.
        config: the settings file by name.
        writes: it writes a report to the directory.
        alone: in the full form it runs in a separate process, even if no other attribute requires one.
        long: it runs in the full form only, because another case differs from it only in the command.
    """

    name: str
    arguments: str
    code: int
    stdout: str = "kept"
    stale: bool = False
    full: bool = False
    config: str = "good"
    writes: bool = True
    alone: bool = False
    long: bool = False

    @property
    def needs_process(self) -> bool:
        """Whether it cannot run in this process."""
        return self.full or self.stdout != "kept"

    @property
    def needs_shell(self) -> bool:
        """Whether a shell starts it: it closes a stream or sets a limit, which a fork of a server cannot."""
        return self.full or self.stdout == "closed"

    @property
    def json(self) -> bool:
        """Return whether the result must be JSON."""
        return "--format json" in self.arguments


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    code: int
    out: str
    err: str
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    made: bool = False


def start(arguments: list[str], *, group: bool = False) -> forked.Popen:
    """Start a process whose output is kept, if asked in a separate group."""
    return forked.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=group)


def command_of(config: Path, arguments: str, out: Path) -> list[str]:
    """Return the command of a separate process, without its interpreter."""
    return ["-m", "twinstore_backfill", *_given(config, arguments, out)]


def _given(config: Path, arguments: str, out: Path) -> list[str]:
    """Return the arguments of a command."""
    places = {"out": str(out), "given": str(config.parent / "report"), "here": str(config)}
    return ["--config", str(config), *(part.format(**places) for part in arguments.split())]


def end_of(case: Case, configs: Mapping[str, Path], directory: Path) -> Ended:
    """Run a case to its end in a separate process."""
    out = place(case, directory)
    command = command_of(configs[case.config], case.arguments, out)
    with _stdout(case.stdout) as stdout:
        if case.needs_shell:
            done = subprocess.run(
                [*_before(case), sys.executable, *command],
                check=False,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                cwd=directory,
                timeout=PATIENCE,
            )
        else:
            done = forked.run(command, stdout=stdout, cwd=directory, timeout=PATIENCE)
    return Ended(done.returncode, done.stdout or "", done.stderr, files_of(out), out.parent.exists())


def ended(process: forked.Popen, out: Path) -> Ended:
    """Return how a process ended that writes its reports to a directory."""
    shown, errors = process.communicate(timeout=PATIENCE)
    return Ended(process.wait(), shown, errors, files_of(out), out.parent.exists())


def end_here(case: Case, configs: Mapping[str, Path], directory: Path) -> Ended:
    """Run a case to its end in this process; only in its main thread, which gets the signals."""
    out, shown, errors = place(case, directory), StringIO(), StringIO()
    with chdir(directory), redirect_stdout(shown), redirect_stderr(errors):
        code = main(_given(configs[case.config], case.arguments, out))
    return Ended(code, shown.getvalue(), errors.getvalue(), files_of(out), out.parent.exists())


def place(case: Case, directory: Path) -> Path:
    """Return where a case writes its reports, with those of an earlier run where it asks for them."""
    out = directory / case.name / "deep" / "report"
    if case.stale:
        out.mkdir(parents=True)
        for name in (COPY_REPORT, DIFFERENCES, SELFTEST_REPORT, *PARITY_REPORTS):
            (out / name).write_bytes(STALE)
    return out


def files_of(out: Path) -> dict[str, bytes]:
    """Return the files of a directory by name."""
    return {path.name: path.read_bytes() for path in out.iterdir()} if out.is_dir() else {}


@contextmanager
def _stdout(kind: str) -> Iterator[int]:
    if kind == "gone":
        reading, writing = os.pipe()
        os.close(reading)
    elif kind == "full":
        writing = os.open("/dev/full", os.O_WRONLY)
    else:
        yield subprocess.PIPE
        return
    try:
        yield writing
    finally:
        os.close(writing)


def _before(case: Case) -> list[str]:
    """Return what a shell does before the command takes its place."""
    limit = "ulimit -f 0; " if case.full else ""
    stdout = " >&-" if case.stdout == "closed" else ""
    return ["/bin/sh", "-c", f'{limit}exec "$@"{stdout}', "sh"]


def agreement(case: Case, ended: Ended) -> None:
    """Check that code, words and files of a process say the same."""
    said = f"{case.name}: {ended.out}{ended.err}"
    assert ended.code == case.code, said
    assert "Traceback" not in ended.out + ended.err, said
    failed = ended.code in {Exit.USAGE, Exit.FAILED, Exit.PREFLIGHT_REFUSED, Exit.LEASE_HELD, 130, 143}
    in_json = case.json and case.stdout == "kept"
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    # A command without its subcommand shows its help instead.
    told_there = not case.json or case.stdout == "full"
    assert len(errors) == (failed and told_there and " " in case.arguments), said
    if in_json:
        document = json.loads(ended.out)
        assert ("error" in document) == failed, said
        found = document["error"] if failed else document
        assert found.get("exit_code", ended.code) == ended.code, said
    if "{out}" in case.arguments and not case.writes:
        assert not ended.made, case.name
    elif "{out}" in case.arguments:
        _files_agree(case, ended, failed=failed)


def _files_agree(case: Case, ended: Ended, *, failed: bool) -> None:
    files = ended.files
    copied = " copy " in f" {case.arguments} "
    names = (COPY_REPORT,) if copied else (DIFFERENCES, *PARITY_REPORTS)
    if " selftest " in case.arguments:
        names = (SELFTEST_REPORT,)
    mine = {name: content for name, content in files.items() if name in names}
    assert STALE not in mine.values(), case.name
    assert not [name for name in files if name.startswith(".")], f"{case.name}: {sorted(files)}"
    if ended.code == Exit.USAGE or case.full:
        assert not mine, case.name
        assert case.stale or not ended.made, f"{case.name}: an empty directory is left"
    elif " selftest " in case.arguments:
        assert json.loads(mine[SELFTEST_REPORT])["exit_code"] == ended.code
    elif copied:
        report = json.loads(mine[COPY_REPORT])
        fits_schema("backfill-report", report)
        states = {Exit.OK: "complete", Exit.DIFFERENT: "stopped", Exit.INCONCLUSIVE: "complete"}
        states |= {Exit.PREFLIGHT_REFUSED: "refused", Exit.INTERRUPTED: "interrupted"}
        states |= {Exit.TERMINATED: "interrupted"}
        assert report["exit_code"] == ended.code
        # Rows that only the target has are pending work of a copy that is complete.
        wanted = "complete" if "extra" in report else states.get(Exit(ended.code), "failed")
        assert report["state"] == wanted
    else:
        _parity_agrees(mine, ended.code, failed=failed)


def fits_schema(name: str, report: object) -> None:
    """Check a report against the JSON Schema in the wheel."""
    schema = resources.files("twinstore_backfill.report") / "schemas" / f"{name}.schema.json"
    Draft202012Validator(json.loads(schema.read_text("utf-8"))).validate(report)


def _parity_agrees(files: Mapping[str, bytes], code: int, *, failed: bool) -> None:
    root = ET.fromstring(files["parity-report.xml"])  # noqa: S314  # written by the command under test
    bad = int(root.get("failures", "0")) + int(root.get("errors", "0"))
    assert (bad > 0) == (code != Exit.OK)
    if failed:
        assert sorted(files) == sorted(PARITY_REPORTS[1:])
        assert root.get("tests") == "1"
        values = [item.get("value") for item in root.iter("property") if item.get("name") == "exit_code"]
        assert values == [str(code)]
    else:
        report = json.loads(files["parity-report.json"])
        assert report["exit_code"] == code
        fits_schema("parity-report", report)
        for line in files.get(DIFFERENCES, b"").splitlines():
            fits_schema("differences", json.loads(line))
        # A fresh start compares nothing, so it has no list of differences.
        assert sorted(files.keys() - {DIFFERENCES}) == sorted(PARITY_REPORTS)


def interrupt_group(process: forked.Popen) -> None:
    """Send what Ctrl-C on a terminal sends: a signal to every process of the command."""
    os.killpg(process.pid, signal.SIGINT)
