"""Fixtures for real servers. A server that does not answer fails its tests; nothing is skipped.

Choose the cheapest isolation that the promise allows:

    tenant                       a tenant no other test uses; enough for most tests, costs nothing
    module_mongo_database        one migrated database for the tests of a file
    module_postgres_database     the same
    mongo_database               a migrated database without a row, for one test after the other, about 20 ms
    postgres_database            a migrated clone for one test, about 20 ms
    empty_mongo_database         a fresh name, nothing in it, for tests of migrations
    empty_postgres_database      the roles and nothing else, for tests of migrations

The database of ``mongo_database`` keeps rows for ever (``RunRetentionDays`` 0), because what samples finish
lies in the past. It also has the ledger of copies. A test may change anything in it.

``make test`` runs on every push, ``make test-long`` (``--long``) runs everything:

    @pytest.mark.long            a full form: runs with --long only; a bounded test next to it promises less
    long_form                    whether to do more, for a test whose name promises no amount
    pytestmark = pytest.mark.long    a file about a tool or a page rather than the product: runs with --long,
                                 and where --long-file names it, as ``make test-changed`` does if it changed
    @pytest.mark.smoke           the test of such a file that ``make test`` runs all the same
    is_left_to_the_full_form     a function of a file: which tests of its kits only run then

Tests through a transaction pooler need a program that no wheel contains. If it is not installed, these tests
are skipped, and the summary of the run says so:

    @pytest.mark.pgbouncer       a test that starts one; see tests/support/pgbouncer.py

The same holds for tests of pages in a browser:

    @pytest.mark.chromium        a test that needs a browser; see tests/support/chromium.py

For tests on a second PostgreSQL, older than that of the wheel:

    older_postgres_server        that server, started for the tests of a file; see
                                 tests/support/older_postgres.py
    @pytest.mark.older_postgres  a test that needs it

For tests through a router of a sharded cluster, which no wheel has either:

    @pytest.mark.mongos          a test that reads through one; see tests/support/mongos.py

And for tests in containers:

    @pytest.mark.podman          a test that starts a container engine; see tests/support/servers.py

All tests run with the fast path if it is compiled; the first lines of a run say whether it is on:

    both_paths                   lets a test run without it, too
    native_first, exact_first    the same, the second way in the long run only
    @pytest.mark.native          a test that needs it; skipped without it, which the summary of the run says
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import hypothesis
import pytest

import twinstore
from tests.support import changed, chromium, executed, forked, mongos, older_postgres, pgbouncer
from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
from tests.support.distributions import Installed, installed_once
from tests.support.forked import log_as_before
from tests.support.server_supervisor import servers_of, shared_run
from tests.support.servers import PODMAN, WITHOUT_PODMAN, ServerUrls, Source, choose_source
from twinstore.fast.library import SWITCH, fast_path

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

RUN_DIRECTORY = pytest.StashKey[Path]()
SKIP_NOTE = pytest.StashKey[str]()
EXACT = "exact"
# Where no library is compiled there is one path.
PATHS = ("native", EXACT) if fast_path().is_on else (EXACT,)

# A database shared with the other worker may take its time, as may a busy machine, which says nothing about
# the code; nor does it how many of the drawn models a search by chance throws away.
hypothesis.settings.register_profile(
    "real-servers",
    deadline=None,
    # What is drawn follows from the text of a test, so that a run says something about what was changed. The
    # full forms draw by chance.
    derandomize=True,
    max_examples=60,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.filter_too_much,
        hypothesis.HealthCheck.data_too_large,
    ],
)
hypothesis.settings.register_profile(
    "by-chance", hypothesis.settings.get_profile("real-servers"), derandomize=False, max_examples=400
)
hypothesis.settings.load_profile("real-servers")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run ask for the full forms."""
    parser.addoption("--long", action="store_true", help="run the full form of tests that have a bounded one")
    parser.addoption(
        "--long-file", action="append", default=[], help="run all of a file that only --long runs as a whole"
    )
    parser.addoption("--note-passed", action="store_true", help="note the commit if the run passes")
    parser.addoption("--write-map", type=Path, help="write which files each test file executes")
    parser.addoption("--write-statements", action="store_true", help="write the recorded statements again")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the full forms unless the run asks for them, and what needs a program that is not there."""
    mark_long(items)
    if not is_long(config):
        whole = {config.rootpath / name for name in config.getoption("--long-file") or ()}
        leave_out(
            config,
            items,
            lambda item: is_long_form(item) or (is_of_long_file(item) and item.path not in whole),
        )
    missing = {
        "pgbouncer": (pgbouncer.PROGRAM, pgbouncer.SKIP_NOTE),
        "chromium": (chromium.PROGRAM, chromium.SKIP_NOTE),
        "mongos": (mongos.URL, mongos.SKIP_NOTE),
        "podman": (PODMAN, WITHOUT_PODMAN),
        "older_postgres": (older_postgres.PROGRAMS, older_postgres.SKIP_NOTE),
        "native": (fast_path().library, f"fast path: {fast_path()}; what needs it was left out."),
    }
    said = [
        words
        for marker, (program, words) in missing.items()
        if program is None and leave_out(config, items, partial(pytest.Item.get_closest_marker, name=marker))
    ]
    if said:
        config.stash[SKIP_NOTE] = "\n".join(said)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable the garbage collector while tests are collected, and exclude them from it afterwards.

    They are millions of objects that stay alive; each full collection would traverse all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Undo what commands do to the log: which tests come after one depends on how fast the workers are."""
    with log_as_before():
        return (yield)


def pytest_report_header() -> str:
    """Say whether the fast path is on."""
    return f"fast path: {fast_path()}"


@pytest.fixture(params=PATHS)
def both_paths(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test run with the fast path and without it, also in the processes that it starts."""
    choose_path(request.param, monkeypatch)


@pytest.fixture(params=[PATHS[0], *(pytest.param(path, marks=pytest.mark.long) for path in PATHS[1:])])
def native_first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the same, without the fast path in the long run only."""
    choose_path(request.param, monkeypatch)


@pytest.fixture(params=[EXACT, *(pytest.param(path, marks=pytest.mark.long) for path in PATHS[:-1])])
def exact_first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the same, with the fast path in the long run only."""
    choose_path(request.param, monkeypatch)


def choose_path(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn the fast path off, unless it is the one to take."""
    if path == EXACT:
        monkeypatch.setenv(SWITCH, "off")


def is_long_form(item: pytest.Item) -> bool:
    """Return whether a test is marked itself as the full form of a bounded one."""
    return any(mark.name == "long" for mark in item.own_markers)


def mark_long(items: list[pytest.Item]) -> None:
    """Mark as long what a file leaves to the full form."""
    for item in items:
        if isinstance(item, pytest.Function) and item.cls is not None:
            is_left = getattr(item.module, "is_left_to_the_full_form", None)
            case = item.callspec.id if hasattr(item, "callspec") else ""
            if is_left is not None and is_left(item.cls, item.originalname, case):
                item.add_marker(pytest.mark.long)


def is_of_long_file(item: pytest.Item) -> bool:
    """Return whether a test belongs to a file that only --long runs, and is not its smoke test."""
    return item.get_closest_marker("long") is not None and item.get_closest_marker("smoke") is None


def leave_out(
    config: pytest.Config, items: list[pytest.Item], is_meant: Callable[[pytest.Item], object]
) -> bool:
    """Remove the tests that are meant from a run; return whether there was one."""
    marked = {item for item in items if is_meant(item)}
    if marked:
        config.hook.pytest_deselected(items=list(marked))
        items[:] = [item for item in items if item not in marked]
    return bool(marked)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker report to the controller which tests it skipped."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(SKIP_NOTE, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerNode) -> None:
    """Record in the controller which tests a worker skipped."""
    # A worker that died has reported nothing.
    told = getattr(node, "workeroutput", {}).get("left_out")
    if told:
        node.config.stash[SKIP_NOTE] = told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was skipped."""
    left_out = config.stash.get(SKIP_NOTE, "")
    if left_out:
        terminalreporter.section("left out", yellow=True)
        for line in left_out.splitlines():
            terminalreporter.line(line)


def is_long(config: pytest.Config) -> bool:
    """Return whether a run asks for the full forms."""
    return bool(config.getoption("--long"))


class WorkerNode(Protocol):
    """What pytest-xdist hands to the controller for each worker."""

    config: pytest.Config
    workerinput: dict[str, str]


def pytest_configure(config: pytest.Config) -> None:
    """Make the shared directory in the controller; learn it in a worker."""
    if is_long(config):
        hypothesis.settings.load_profile("by-chance")
        record_calls(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A run in the background of a shell ignores it, and so would every process that a test interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.add_cleanup(forked.end)
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        config.stash[RUN_DIRECTORY] = Path(workerinput["twinstore_run"])
        use_for_files(config.stash[RUN_DIRECTORY])
        record_map(config)
        return
    source = choose_source(os.environ)
    stack = ExitStack()
    config.add_cleanup(stack.close)
    config.stash[RUN_DIRECTORY] = stack.enter_context(shared_run())
    use_for_files(config.stash[RUN_DIRECTORY])
    if config.getoption("--write-map"):
        executed.prepare(config.stash[RUN_DIRECTORY])
        record_map(config)
        target = Path(str(config.getoption("--write-map")))
        config.add_cleanup(partial(executed.write_map, config.stash[RUN_DIRECTORY], target))
    if config.getoption("--note-passed"):
        config.pluginmanager.register(changed.PassedCommitPlugin(), "passed-commit")
    if source is Source.URLS:
        stack.callback(_drop_leftovers, config.stash[RUN_DIRECTORY])


def use_for_files(directory: Path) -> None:
    """Let the files of tests and of their servers lie in the directory of the run, and go with it.

    It is in memory where there is room. ``PYTEST_DEBUG_TEMPROOT`` names another place for ``tmp_path``, whose
    files stay.
    """
    os.environ["TMPDIR"] = str(directory)
    # What was looked up before holds no longer.
    tempfile.tempdir = None


def record_calls(config: pytest.Config) -> None:
    """Record in the JUnit file what the kit calls; docs/capabilities.md is made from it."""
    # Imported here because it loads all modules.
    from twinstore.testing.matrix import Recorder  # noqa: PLC0415

    config.pluginmanager.register(Recorder(config), "method-recorder")


def record_map(config: pytest.Config) -> None:
    """Record which files each test file executes, if the run writes that map."""
    if config.getoption("--write-map"):
        config.pluginmanager.register(executed.Recorder(config.stash[RUN_DIRECTORY]), "executed-files")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerNode) -> None:
    """Pass the directory of the run to a worker of pytest-xdist."""
    node.workerinput["twinstore_run"] = str(node.config.stash[RUN_DIRECTORY])


def _drop_leftovers(directory: Path) -> None:
    urls = servers_of(directory)
    if urls.postgres:
        with closing(PostgresServer(urls.postgres, directory)) as postgres:
            postgres.drop_leftovers()
    if urls.mongo:
        with closing(MongoServer(urls.mongo, directory)) as mongo:
            mongo.drop_leftovers()


@pytest.fixture(scope="session")
def long_form(pytestconfig: pytest.Config) -> bool:
    """Return whether to take the full form of what has a bounded one."""
    return is_long(pytestconfig)


@pytest.fixture(scope="session")
def run_directory(pytestconfig: pytest.Config) -> Path:
    """Return the directory that the workers of this run share."""
    return pytestconfig.stash[RUN_DIRECTORY]


@pytest.fixture(scope="session")
def installed(run_directory: Path) -> Installed:
    """Return the built wheel, installed away from the checkout; the workers of a run share it."""
    return installed_once(run_directory)


@pytest.fixture(scope="session")
def servers(run_directory: Path) -> ServerUrls:
    """Return the URLs of the real servers; start them on the first request."""
    return servers_of(run_directory)


def url_of(servers: ServerUrls, kind: str) -> str:
    """Return the URL of a server; a test of one that ``TWINSTORE_TEST_ONLY`` excludes is skipped."""
    try:
        return servers[kind]
    except LookupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mongo_server(servers: ServerUrls, run_directory: Path) -> Iterator[MongoServer]:
    """Return the MongoDB of this run with an open client."""
    with closing(MongoServer(url_of(servers, "mongo"), run_directory)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server(servers: ServerUrls, run_directory: Path) -> Iterator[PostgresServer]:
    """Return the PostgreSQL of this run with an open superuser connection."""
    with closing(PostgresServer(url_of(servers, "postgres"), run_directory)) as server:
        yield server


@pytest.fixture(scope="module")
def older_postgres_server(run_directory: Path) -> Iterator[PostgresServer]:
    """Run a second PostgreSQL, older than that of the wheel, for the tests of a file."""
    directory = run_directory / f"older-{uuid4().hex[:8]}"
    directory.mkdir(mode=0o711)
    with older_postgres.running_older_postgres(directory) as server:
        yield server


@pytest.fixture
def mongo_database(mongo_server: MongoServer) -> Iterator[MongoDatabase]:
    """Give a migrated database without a row to this test."""
    with mongo_server.migrated_database() as database:
        yield database


@pytest.fixture
def empty_mongo_database(mongo_server: MongoServer) -> Iterator[MongoDatabase]:
    """Name a fresh database for this test."""
    with mongo_server.database() as database:
        yield database


@pytest.fixture(scope="module")
def module_mongo_database(mongo_server: MongoServer) -> Iterator[MongoDatabase]:
    """Make one migrated database for the tests of a file; each test takes its own tenant."""
    with mongo_server.database() as database:
        with twinstore.open_storage(database.config) as storage:
            storage.scheduler.initializer.ensure_migrations()
        yield database


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """Clone a migrated database for this test."""
    with postgres_server.migrated_database() as database:
        yield database


@pytest.fixture(scope="module")
def module_postgres_database(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """Clone one migrated database for the tests of a file; each test takes its own tenant."""
    with postgres_server.migrated_database() as database:
        yield database


@pytest.fixture
def empty_postgres_database(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """Create a database without any schema for this test."""
    with postgres_server.empty_database() as database:
        yield database


@pytest.fixture
def tenant() -> str:
    """Return a tenant that no other test uses."""
    return f"tenant-{uuid4().hex[:12]}"
