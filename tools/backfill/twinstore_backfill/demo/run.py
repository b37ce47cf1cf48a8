"""The steps of the demo, from an empty folder to a proof."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, BinaryIO, Final, Self
from urllib.parse import quote
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn

from twinstore.config import load_settings
from twinstore.errors import TwinstoreError
from twinstore.scheduler import RunQueryOptions
from twinstore.storage.open import open_storage
from twinstore_backfill.demo.data import (
    OTHERS,
    TENANTS,
    load_everything,
    load_samples,
    shipped_folder,
    with_files_below,
)
from twinstore_backfill.process.messages import message_settings
from twinstore_backfill.selftest.report import headline

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.storage.open import Storage
    from twinstore_backfill.demo.data import OtherModule

RUNS: Final = 1_000
SCHEDULES_PER_TENANT: Final = 10
PAGE_SIZE: Final = 25
# Rows of each entity that the self-test takes; more would plant the same corruptions in other rows.
SAMPLE: Final = 5
# Columns with markers and nested values, and a fence. All of them would take the demo beyond
# its minute; `twinstore backfill selftest` does that.
CORRUPTED: Final = ("schedules", "locks")
FORMATS: Final = ("json", "xml", "md", "html")
INTRODUCTION: Final = """\
A service writes into MongoDB; its data moves to PostgreSQL, and a proof shows that both hold the same.
This takes about a minute on two cores. Ctrl-C stops it and whatever it started."""

RunPage = tuple[tuple[str, ...], str | None]


def run_demo(
    folder: Path, *, runs: int = RUNS, sample: int = SAMPLE, corrupted: Sequence[str] = CORRUPTED
) -> int:
    """Run all steps in ``folder`` and return the number of documents proved equal.

    The servers live in ``folder`` and are stopped at the end; the reports stay there.

    Args:
        folder: where to work.
        runs: how many runs to generate.
        sample: rows of each entity that the self-test takes.
        corrupted: the entities that it corrupts; empty for all.

    Raises:
        TwinstoreError: a step failed; nothing is proved.
    """
    from twinstore_embedded import servers, write_appsettings  # noqa: PLC0415  # an extra

    started = time.monotonic()
    remove_earlier_demo(folder)
    with DemoOutput() as output, ExitStack() as stack:
        output.print_line(INTRODUCTION)
        with output.step(f"Start a MongoDB replica set and a PostgreSQL below {folder}"):
            running = stack.enter_context(servers(folder / "servers"))
            write_appsettings(folder / "servers", running.mongo, running.postgres)
        try:
            proved = Demo(output, folder, runs, sample, corrupted).run()
        except KeyboardInterrupt:
            output.print_line(".. Interrupted: stop both servers")
            raise
        with output.step("Stop both servers"):
            stack.close()
    took = time.monotonic() - started
    output.console.print(f"PASS: {proved:,} documents proved equal, in {took:.1f} s", style="bold green")
    return proved


@dataclass(frozen=True, slots=True)
class Route:
    """A module, from where, and to where."""

    module: str
    source: str
    target: str

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a command that say so."""
        return ("--module", self.module, "--from", self.source, "--to", self.target)

    def reports_below(self, folder: Path) -> Path:
        """Return the directory of the reports: those of the scheduler, which people read, at the top."""
        return folder if self == SCHEDULER else folder / self.module


SCHEDULER: Final = Route("scheduler", "Mongo", "Postgres")


class Demo:
    """The steps of the demo and what they need of each other."""

    def __init__(
        self, output: DemoOutput, folder: Path, runs: int, sample: int, corrupted: Sequence[str]
    ) -> None:
        self._output = output
        self._folder = folder
        self._settings = folder / "servers" / "appsettings.json"
        self._runs = runs
        self._sample = sample
        self._corrupted = corrupted

    def run(self) -> int:
        """Go through the steps in order."""
        self._adjust_settings()
        over_http = self._serve_first()
        with self._switched("Mongo") as storage:
            with self._output.step(
                "Write schedules and runs through the service: Persistence:Scheduler = Mongo"
            ):
                self._load(storage.scheduler)
            self._print_counts(storage.scheduler)
            firsts, seconds = read_twice(storage.scheduler)
        self._backfill("Copy everything to PostgreSQL", "copy", SCHEDULER, "--jobs", "2", "--execute")
        self._backfill("Prove that both hold the same", "verify", SCHEDULER, "--jobs", "2")
        self._backfill(
            "Corrupt copies of a few rows in every way, on both stores, and count what the proof finds",
            "selftest",
            SCHEDULER,
            "--sample",
            str(self._sample),
            *(text for name in self._corrupted for text in ("--entity", name)),
        )
        self._print_found()
        with (
            self._output.step("Change one line, Persistence:Scheduler = Postgres, and read on"),
            self._switched("Postgres") as storage,
        ):
            check_same_pages(storage.scheduler, firsts, seconds)
        self._serve_on(over_http)
        others = sum(self._move(module) for module in OTHERS)
        return self._conclude() + others

    def _move(self, module: OtherModule) -> int:
        """Write into another module, copy it, prove it, switch it; return the number of rows proved equal."""
        with (
            self._output.step(f"Write {module.wrote}: Persistence:{module.section} = {module.source}"),
            self._switched(module.source, module.section) as storage,
        ):
            before = storage.module(module.name)
            before.initializer.ensure_migrations()
            module.write(before)
            shown = module.read(before)
        route = Route(module.name, module.source, module.target)
        self._backfill("Copy them to PostgreSQL", "copy", route, "--execute")
        self._backfill("Prove that both hold the same", "verify", route)
        with self._switched(module.target, module.section) as storage:
            if module.read(storage.module(module.name)) != shown:
                raise DemoFailedError(f"{module.section} shows something else after the switch.")
        report = json.loads((route.reports_below(self._folder) / "parity-report.json").read_text())
        return int(report["documents_equal"])

    def _serve_first(self) -> dict[str, bytes]:
        """Let the service work over HTTP on MongoDB; return what it answers then."""
        missing = missing_libraries()
        if missing:
            self._output.print_line(
                f"   The service over HTTP is skipped, because {' and '.join(missing)} is missing: "
                "pip install 'twinstore[service]' brings it."
            )
            return {}
        with (
            self._output.step("Serve over HTTP: a schedule fires, a worker executes its job, on MongoDB"),
            serving(self._settings, "Mongo") as url,
        ):
            work_over_http(url, "before-the-switch")
            return read_over_http(url)

    def _serve_on(self, before: dict[str, bytes]) -> None:
        """Let the same program go on with the same data on PostgreSQL."""
        if not before:
            return
        with (
            self._output.step("Serve over HTTP from PostgreSQL: the same answers, and the work continues"),
            serving(self._settings, "Postgres") as url,
        ):
            differing = [name for name, answer in read_over_http(url).items() if answer != before[name]]
            if differing:
                raise DemoFailedError(f"The service answers otherwise after the switch: {differing}.")
            work_over_http(url, "after-the-switch")

    def _switched(self, backend: str, section: str = "Scheduler") -> Storage:
        changed = json.loads(self._settings.read_text())
        changed["Persistence"][section] = backend
        return open_storage(load_settings(changed, environ={}))

    def _adjust_settings(self) -> None:
        """Switch retention off, and give the task runner a directory.

        The runs have fixed dates, and MongoDB would remove old finished ones.
        """
        settings = with_files_below(json.loads(self._settings.read_text()), self._settings.parent)
        settings["Scheduler"] = {"Storage": {"RunRetentionDays": 0}}
        self._settings.write_text(json.dumps(settings, indent=2))

    def _load(self, scheduler: SchedulerStorage) -> None:
        scheduler.initializer.ensure_migrations()
        load_samples(scheduler)
        load_everything(scheduler, self._runs, SCHEDULES_PER_TENANT)

    def _print_counts(self, scheduler: SchedulerStorage) -> None:
        counts = {entity.name: scheduler.bulk.counts(entity) for entity in scheduler.bulk.entities()}
        tenants = {tenant for by_tenant in counts.values() for tenant in by_tenant}
        shown = ", ".join(f"{sum(by_tenant.values()):,} {name}" for name, by_tenant in counts.items())
        self._output.print_line(f"   MongoDB holds {shown}, of {len(tenants)} tenants.")

    def _backfill(self, title: str, command: str, route: Route, *options: str) -> None:
        """Run the command line as a migration engineer would, and show the command."""
        shown = ["backfill", command, *route.options, *options]
        arguments = ["--config", str(self._settings), *shown, "--out", str(route.reports_below(self._folder))]
        with self._output.step(title):
            self._output.print_line(f"   $ twinstore {' '.join(shown)}", "dim", whole=True)
            done = subprocess.run(  # noqa: S603  # our own program with our own arguments
                [sys.executable, "-m", "twinstore_backfill", *arguments],
                check=False,
                capture_output=True,
                text=True,
                env=without_settings(os.environ),
            )
            if done.returncode:
                raise DemoFailedError(
                    f"'{command}' ended with exit code {done.returncode}: {done.stdout}{done.stderr}"
                )

    def _print_found(self) -> None:
        report = json.loads((self._folder / "selftest-report.json").read_text())
        self._output.print_line(f"   {headline(report)}")

    def _conclude(self) -> int:
        report = json.loads((self._folder / "parity-report.json").read_text())
        proved = int(report["documents_equal"])
        if report["verdict"] != "PASS":
            raise DemoFailedError(f"The verdict is {report['verdict']}, see {self._folder}/parity-report.md.")
        names = ", ".join(f"parity-report.{suffix}" for suffix in FORMATS)
        self._output.print_line(f"   The reports are in {self._folder}: {names}.")
        return proved


def remove_earlier_demo(folder: Path) -> None:
    """Remove the servers and reports of an earlier demo, so that every demo shows the same."""
    # There may be none. If something cannot be removed, the start of the servers, which uses it, reports it.
    shutil.rmtree(folder / "servers", ignore_errors=True)
    for module in OTHERS:
        shutil.rmtree(folder / module.name, ignore_errors=True)
    for old in (*folder.glob("*.json"), *folder.glob("*.ndjson"), *folder.glob("*-report.*")):
        old.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def read_twice(scheduler: SchedulerStorage) -> tuple[dict[str, RunPage], dict[str, RunPage]]:
    """Return the first and the second page of runs of each tenant."""
    firsts = {tenant: read_page(scheduler, tenant, None) for tenant in TENANTS}
    return firsts, {tenant: read_page(scheduler, tenant, token) for tenant, (_, token) in firsts.items()}


def read_page(scheduler: SchedulerStorage, tenant: str, token: str | None) -> RunPage:
    """Return the ids on one page of runs and the token of the next."""
    page = scheduler.runs.list(tenant, RunQueryOptions(limit=PAGE_SIZE, page_token=token))
    return tuple(run.id for run in page), page.next_page_token


def check_same_pages(
    scheduler: SchedulerStorage, firsts: dict[str, RunPage], seconds: dict[str, RunPage]
) -> None:
    """Continue each list with the token the other store issued, and compare."""
    for tenant, first in firsts.items():
        if read_page(scheduler, tenant, None) != first:
            raise DemoFailedError(f"The first page of {tenant} differs.")
        if read_page(scheduler, tenant, first[1]) != seconds[tenant]:
            raise DemoFailedError(f"The page of {tenant} behind MongoDB's token differs.")


# Each is shown as done where it ends.
STEPS: Final = 15
MIN_BAR_WIDTH: Final = 60


class DemoOutput:
    """Reports on stdout what happens; on a terminal, a progress bar moves below it."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, markup=False, emoji=False)
        self._bar: Progress | None = None
        self._shown = ExitStack()

    def __enter__(self) -> Self:
        is_interactive = (
            sys.stdout.isatty() and not self.console.is_dumb_terminal and not message_settings().quiet
        )
        if is_interactive:
            columns: list[ProgressColumn] = [SpinnerColumn(), MofNCompleteColumn()]
            if self.console.width >= MIN_BAR_WIDTH:
                columns.insert(1, BarColumn(40))
            self._bar = self._shown.enter_context(Progress(*columns, console=self.console, transient=True))
            self._bar.add_task("", total=STEPS)
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def print_line(self, text: str, style: str = "", *, whole: bool = False) -> None:
        """Print a line, unless only the result is wanted; one to be copied is not broken by us."""
        if not message_settings().quiet:
            self.console.print(text, style=style, soft_wrap=whole or not self.console.is_terminal)

    @contextmanager
    def step(self, title: str) -> Generator[None]:
        """Report which step begins, so that a long one does not seem to hang, and then how long it took."""
        self.print_line(f".. {title}", "dim")
        started = time.monotonic()
        yield
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])
        self.print_line(f"-- {title} ({time.monotonic() - started:.1f} s)")


SEPARATOR: Final = "__"
FILE: Final = "TWINSTORE_CONFIG"


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without settings of twinstore.

    They win over the file of the demo: ``Scheduler__Storage__Postgres__ConnectionString`` would send its copy
    to a server of the user.
    """
    return {key: value for key, value in environ.items() if SEPARATOR not in key and key.upper() != FILE}


class DemoFailedError(TwinstoreError):
    """The demo did not reach its proof."""

    code = "demo_failed"


# The sample service over HTTP, before and after the switch: the same program, the same data.


LIBRARIES: Final = ("fastapi", "httpx", "prometheus_client", "uvicorn")
TENANT: Final = "over-http"
# Of this run alone.
TOKEN: Final = token_urlsafe()
# The values that are compared before and after the cut-over.
LISTS: Final = ("schedules", "triggers", "runs", "run-summaries", "policy-runs", "audit")
TIMEOUT_SECONDS: Final = 60.0  # seconds for a worker to execute a job


def missing_libraries() -> list[str]:
    """Return what the service needs and is not installed."""
    return [name for name in LIBRARIES if find_spec(name) is None]


@contextmanager
def serving(settings: Path, backend: str) -> Generator[str]:
    """Run the service and a worker on a store that one variable chooses; yield the address.

    Raises:
        DemoFailedError: it does not start; its output is in ``service.log`` next to the settings.
    """
    log = settings.parent / "service.log"
    with log.open("ab") as log_file:
        tokens = settings.parent / "tokens.json"
        tokens.write_text(json.dumps({TOKEN: {"tenantId": TENANT, "actor": "demo"}}), "utf-8")
        options = ("--port", "0", "--config", str(settings), "--tokens", str(tokens))
        service = _started(backend, log_file, "scheduler_service", *options)
        worker: subprocess.Popen[bytes] | None = None
        try:
            url = b"" if service.stdout is None else service.stdout.readline().strip()
            if not url:
                raise DemoFailedError(f"The sample service did not start; {log} says why.")
            options = ("--url", url.decode(), "--tenant", TENANT, "--pause", "0.1")
            worker = _started(backend, log_file, "scheduler_service.worker", *options)
            yield url.decode()
        finally:
            for process in filter(None, (worker, service)):
                process.terminate()
                process.communicate(timeout=TIMEOUT_SECONDS)


def _started(backend: str, log_file: BinaryIO, module: str, *options: str) -> subprocess.Popen[bytes]:
    folder = str(shipped_folder("service"))
    return subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-m", module, *options],
        env={
            **without_settings(os.environ),
            "PYTHONPATH": folder,
            "Persistence__Scheduler": backend,
            "SCHEDULER_SERVICE_TOKEN": TOKEN,
        },
        stdout=subprocess.PIPE,
        stderr=log_file,
    )


def work_over_http(url: str, name: str) -> None:
    """Store a schedule that is due, fire it, and wait until the worker has executed its job.

    Raises:
        DemoFailedError: the job was not executed in time, or a call was refused.
    """
    before = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
    schedule = {
        "id": f"{TENANT}-{name}",
        "tenantId": TENANT,
        "name": name,
        "whenCron": "0 * * * *",
        "selection": {"scope": "all-images"},
        "createdAt": before.isoformat(),
        "createdBy": "demo",
    }
    path = f"schedules/{TENANT}-{name}"
    _call(url, path, "PUT", schedule)
    run = json.loads(_call(url, f"{path}/trigger/fire", "POST"))
    end = time.monotonic() + TIMEOUT_SECONDS
    # A worker ends the run first and then its job; what is read in between would change afterwards.
    job = f"policy-runs/{quote(run['id'], safe='')}"
    while json.loads(_call(url, job))["status"] != "succeeded":
        if time.monotonic() > end:
            raise DemoFailedError(f"No worker has executed {run['id']} within {TIMEOUT_SECONDS:.0f} s.")
        time.sleep(0.05)


def read_over_http(url: str) -> dict[str, bytes]:
    """Return what the service answers for each list."""
    return {name: _call(url, name) for name in LISTS}


def _call(url: str, path: str, method: str = "GET", body: object = None) -> bytes:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    request = Request(f"{url}/tenants/{TENANT}/{path}", content, headers, method=method)  # noqa: S310  # our own
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310  # our own
            found: bytes = answer.read()
    except OSError as error:
        raise DemoFailedError(f"{method} {path} of the sample service ended with {error}.") from error
    return found
