"""Two services, one on each database, for hours: what grows in them, and whether they keep what they confirm.

python -m tools.soak.hours [--minutes 90] [--warm-up 20] [--restart 10] [--rate 100] [--seed 7]

The sample service runs as two processes, one on MongoDB and one on PostgreSQL. Each gets so many requests a
second: runs are created and read, their logs appended and listed. Each server is restarted again and again.
What must hold:

- after the warm-up, memory grows by less than 1 MB an hour; connections, threads and open files do not grow
- a request is refused only while the server is away, and for 15 seconds after
- each run whose creation was confirmed is stored

The program prints a table of the fitted slopes with their standard errors, and exits with 1 on any violation.
A slope is a violation if it is over its limit by more than two standard errors, and the figure was never that
high before: a pool that is small after a restart grows again, but not beyond what it was.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import linear_regression
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

import httpx
import psutil
from rich.console import Console
from rich.table import Table

import twinstore
import twinstore_embedded
from tests.support.databases import without_retention
from tests.support.outages import IN_MEMORY
from tests.support.servers import mongo_config, postgres_config
from tools.soak.work import entries_of
from twinstore import CanonicalJsonSerializer
from twinstore.catalog.keys import KeyRange
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_embedded import Shutdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

TENANTS: Final = ("acme", "zeta")
SAMPLES: Final = Path(__file__).parents[2] / "samples" / "service"
DATABASE: Final = "soak_hours"
# Clients of each service, each with a connection of its own.
CLIENTS: Final = 16
# Longer than any call takes whose server is away.
CALL_SECONDS: Final = 60.0
SAMPLE_SECONDS: Final = 15.0
READY_SECONDS: Final = 15.0
START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
# How many of the newest runs a client reads.
KNOWN: Final = 100
JSON: Final = {"Content-Type": "application/json"}
UNAVAILABLE: Final = frozenset({503, 504})
LIMITS: Final = {"memory (MB)": 1.0, "connections": 0.0, "threads": 0.0, "files": 0.0}
SHOWN: Final = 20
Span: TypeAlias = tuple[float, float]


@dataclass(slots=True)
class Served:
    """One service, its server, and what was seen of both.

    Attributes:
        name: of the database.
        process: the service.
        url: where it listens.
        tokens: of its tenants.
        ports: the server's.
        restart: restarts the server.
        away: from when to when the server was.
        refused: at which instants requests were refused.
        answered: how many requests were answered.
        confirmed: the runs whose creation was.
        samples: the instant and the figures, in the order of ``LIMITS``.
        wrong: what must not have happened.
    """

    name: str
    process: psutil.Process
    url: str
    tokens: Mapping[str, str]
    port: int
    restart: Callable[[], object]
    away: list[Span] = field(default_factory=list[Span])
    refused: list[Span] = field(default_factory=list[Span])
    answered: int = 0
    confirmed: set[str] = field(default_factory=set[str])
    samples: list[tuple[float, tuple[float, ...]]] = field(
        default_factory=list[tuple[float, tuple[float, ...]]]
    )
    wrong: list[str] = field(default_factory=list[str])

    def sample(self) -> None:
        """Note what the service has at this moment."""
        with self.process.oneshot():
            links = [
                link
                for link in self.process.net_connections("tcp")
                if link.status == psutil.CONN_ESTABLISHED and link.raddr[1:] == (self.port,)
            ]
            megabytes = self.process.memory_info().rss / 1e6
            figures = (megabytes, len(links), self.process.num_threads(), self.process.num_fds())
        self.samples.append((time.monotonic(), figures))

    def restarted(self) -> None:
        """Restart the server, and note how long it is away."""
        began = time.monotonic()
        self.restart()
        self.away.append((began, time.monotonic()))

    def refused_outside(self) -> int:
        """Return how many requests were refused although the server was there all the time."""
        return sum(
            not any(began <= end and begin <= back + READY_SECONDS for began, back in self.away)
            for begin, end in self.refused
        )


@dataclass(slots=True)
class Client:
    """Sends requests at a rate, and judges the answers."""

    served: Served
    name: str
    random: Random
    runs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _made: int = 0

    def work(self, seconds: float, end: Event) -> None:
        """Send one request after the other, one in so many seconds, until the end is set."""
        with httpx.Client(base_url=self.served.url, timeout=CALL_SECONDS) as http:
            due = time.monotonic()
            while not end.wait(max(0.0, due - time.monotonic())):
                self._send(http)
                # What an outage delayed is not sent all at once.
                due = max(due + seconds, time.monotonic() - 1)

    def _send(self, http: httpx.Client) -> None:
        call = self.random.choice((self._create, self._append, self._read, self._list, self._log))
        tenant, run_id = self.random.choice(self.runs) if self.runs else (TENANTS[0], "")
        request, made = call(http, tenant, run_id) if run_id else self._create(http, tenant, run_id)
        request.headers["Authorization"] = f"Bearer {self.served.tokens[made[0] if made else tenant]}"
        began = time.monotonic()
        try:
            response = http.send(request)
        except httpx.TransportError as error:
            self.served.wrong.append(f"the service did not answer: {type(error).__name__}")
            return
        if response.status_code in UNAVAILABLE:
            self.served.refused.append((began, time.monotonic()))
        elif not response.is_success:
            what = f"{request.method} {request.url.path}"
            self.served.wrong.append(f"{what} was answered with {response.status_code}: {response.text}")
        else:
            self.served.answered += 1
            if made is not None:
                self.served.confirmed.add(made[1])
                self.runs = [*self.runs[1 - KNOWN :], made]

    def _create(self, http: httpx.Client, *_: str) -> tuple[httpx.Request, tuple[str, str]]:
        self._made += 1
        tenant, run_id = self.random.choice(TENANTS), f"{self.name}-{self._made}"
        body = CanonicalJsonSerializer.serialize(make_run(tenant, run_id))
        path = f"/tenants/{tenant}/runs"
        return http.build_request("POST", path, content=body, headers=JSON), (tenant, run_id)

    def _append(self, http: httpx.Client, tenant: str, run_id: str) -> tuple[httpx.Request, None]:
        (entry,) = entries_of(tenant, run_id, ("evaluated",))
        body = b'{"items":[' + CanonicalJsonSerializer.serialize(entry) + b"]}"
        return http.build_request("POST", f"{_of(tenant, run_id)}/logs", content=body, headers=JSON), None

    def _read(self, http: httpx.Client, tenant: str, run_id: str) -> tuple[httpx.Request, None]:
        return http.build_request("GET", _of(tenant, run_id)), None

    def _list(self, http: httpx.Client, tenant: str, _: str) -> tuple[httpx.Request, None]:
        return http.build_request("GET", f"/tenants/{tenant}/runs?limit=20"), None

    def _log(self, http: httpx.Client, tenant: str, run_id: str) -> tuple[httpx.Request, None]:
        return http.build_request("GET", f"{_of(tenant, run_id)}/logs?limit=20"), None


def _of(tenant: str, run_id: str) -> str:
    return f"/tenants/{tenant}/runs/{quote(run_id)}"


@dataclass(frozen=True, slots=True)
class Slope:
    """How much a figure changes in an hour, its standard error, and the highest value before and since."""

    an_hour: float
    error: float
    before: float
    since: float


def slope_of(points: Sequence[tuple[float, float]], before: Sequence[float]) -> Slope:
    """Fit a line to instants in seconds and values, at least three of them."""
    instants = [instant / 3600 for instant, _ in points]
    values = [value for _, value in points]
    line = linear_regression(instants, values)
    middle = sum(instants) / len(instants)
    spread = sum((instant - middle) ** 2 for instant in instants)
    rest = sum(
        (value - line.slope * instant - line.intercept) ** 2
        for instant, value in zip(instants, values, strict=True)
    )
    error = math.sqrt(rest / (len(points) - 2) / spread)
    return Slope(line.slope, error, max(before, default=0.0), max(values))


def slopes_of(served: Served, since: float) -> dict[str, Slope]:
    """Return the slope of each figure since an instant."""
    points = [(instant, figures) for instant, figures in served.samples if instant >= since]
    before = [figures for instant, figures in served.samples if instant < since]
    return {
        name: slope_of(
            [(instant, figures[number]) for instant, figures in points],
            [figures[number] for figures in before],
        )
        for number, name in enumerate(LIMITS)
    }


def violations_of(served: Served, slopes: Mapping[str, Slope], stored: set[str]) -> Iterator[str]:
    """Yield what must not have happened, each in a sentence."""
    for name, slope in slopes.items():
        if slope.an_hour - 2 * slope.error > LIMITS[name] and slope.since > slope.before:
            yield f"{served.name}: {name} grow by {slope.an_hour:.2f} an hour"
    if outside := served.refused_outside():
        yield f"{served.name}: {outside} requests were refused although the server was there"
    if lost := len(served.confirmed - stored):
        yield f"{served.name}: {lost} confirmed runs are not stored"
    yield from (f"{served.name}: {wrong}" for wrong in served.wrong)


def serve(
    stack: ExitStack, directory: Path, name: str, settings: Mapping[str, Any]
) -> tuple[psutil.Process, str, dict[str, str]]:
    """Start the sample service, until the stack ends; return its process, its address and its tokens."""
    tokens = {tenant: os.urandom(8).hex() for tenant in TENANTS}
    config, listed, log = (directory / f"{name}.{what}" for what in ("json", "tokens", "log"))
    config.write_text(json.dumps(settings), "utf-8")
    callers = {token: {"tenantId": tenant, "actor": "soak"} for tenant, token in tokens.items()}
    listed.write_text(json.dumps(callers), "utf-8")
    words = "--port", "0", "--config", str(config), "--tokens", str(listed)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "scheduler_service", *words],
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONPATH": str(SAMPLES)},
        )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if (url := log.read_text("utf-8").partition("\n")[0]).startswith("http"):
            return psutil.Process(process.pid), url, tokens
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"The service on {name} did not start; its log ends with: {log.read_text()[-500:]}")


def both(stack: ExitStack, directory: Path) -> list[tuple[Served, Mapping[str, Any]]]:
    """Start servers and services; return the services with their settings."""
    mongo = twinstore_embedded.start_mongo(directory / "mongo", owned=True)
    stack.callback(twinstore_embedded.stop, directory / "mongo")
    postgres = twinstore_embedded.start_postgres(directory / "postgres", owned=True)
    stack.callback(twinstore_embedded.stop, directory / "postgres")

    def mongo_again() -> None:
        mongo.halt()
        mongo.resume()

    def postgres_again() -> None:
        postgres.halt(Shutdown.FAST)
        postgres.resume()

    found: list[tuple[Served, Mapping[str, Any]]] = []
    for name, settings, port, again in (
        ("MongoDB", mongo_config(mongo.url, DATABASE), mongo.port, mongo_again),
        (
            "PostgreSQL",
            postgres_config(postgres.app_url(), postgres.owner_url()),
            postgres.port,
            postgres_again,
        ),
    ):
        kept = without_retention(settings)
        process, url, tokens = serve(stack, directory, name, kept)
        found.append((Served(name, process, url, tokens, port, again), kept))
    return found


def run(services: Sequence[Served], options: argparse.Namespace) -> float:
    """Send requests, restart servers and take samples; return the instant of the end of the warm-up."""
    end, began = Event(), time.monotonic()
    clients = [
        Thread(
            target=Client(served, name, Random(f"{options.seed}/{name}")).work,
            args=(CLIENTS / options.rate, end),
            name=name,
        )
        for served in services
        for name in (f"{served.name.lower()}-{number}" for number in range(CLIENTS))
    ]
    for client in clients:
        client.start()
    restarts = Thread(target=restart_often, args=(services, options.restart * 60, end), name="restarts")
    restarts.start()
    try:
        while time.monotonic() < began + options.minutes * 60:
            for served in services:
                served.sample()
            end.wait(SAMPLE_SECONDS)
    finally:
        end.set()
        for thread in (*clients, restarts):
            thread.join()
    return began + float(options.warm_up) * 60


def restart_often(services: Sequence[Served], seconds: float, end: Event) -> None:
    """Restart each server once in so many seconds, one after the other, until the end is set."""
    while not end.wait(seconds):
        for served in services:
            served.restarted()


def stored_runs(settings: Mapping[str, Any]) -> set[str]:
    """Return the ids of all stored runs."""
    with twinstore.open_storage(settings) as opened, opened.scheduler.bulk.view() as view:
        return {
            str(record.key[-1])
            for tenant in TENANTS
            for batch in view.records(RUNS, KeyRange(), tenant_id=tenant)
            for record in batch
            if record.key is not None
        }


def main(given: Sequence[str] | None = None) -> int:
    """Run both, print and judge."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak.hours", description=__doc__)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--warm-up", type=float, default=20, help="minutes before figures count")
    parser.add_argument("--restart", type=float, default=10, help="minutes from one restart to the next")
    parser.add_argument("--rate", type=float, default=100, help="requests a second for each service")
    parser.add_argument("--seed", type=int, default=7, help="decides every random choice")
    parser.add_argument("--samples", type=Path, help="a file for the figures of every 15 seconds, as JSON")
    options, console, violations = parser.parse_args(given), Console(), list[str]()
    table = Table("", "MongoDB", "PostgreSQL", title=f"{options.minutes:g} minutes, seed {options.seed}")
    with ExitStack() as stack:
        parent = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="twinstore-soak-", dir=parent)))
        directory.chmod(0o711)
        services = both(stack, directory)
        since = run([served for served, _ in services], options)
        if options.samples is not None:
            found = {served.name: served.samples for served, _ in services}
            options.samples.write_text(json.dumps(found), "utf-8")
        columns: list[dict[str, str]] = []
        for served, settings in services:
            slopes = slopes_of(served, since)
            violations += violations_of(served, slopes, stored_runs(settings))
            columns.append(column_of(served, slopes, options.minutes * 60))
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    console.print(table)
    for wrong in violations[:SHOWN]:
        console.print(wrong, markup=False, soft_wrap=True)
    console.print(f"{len(violations)} violations")
    return int(bool(violations))


def column_of(served: Served, slopes: Mapping[str, Slope], seconds: float) -> dict[str, str]:
    """Return what the table says of a service, by row."""
    found = {
        "requests answered a second": f"{served.answered / seconds:.1f}",
        "restarts": str(len(served.away)),
        "refused while away": f"{len(served.refused):,}",
        "confirmed runs": f"{len(served.confirmed):,}",
    }
    for name, slope in slopes.items():
        found[f"{name}, highest in the warm-up, later"] = f"{slope.before:.1f}, {slope.since:.1f}"
        found[f"{name} an hour"] = f"{slope.an_hour:+.2f} ± {slope.error:.2f}"
    return found


if __name__ == "__main__":
    sys.exit(main())
