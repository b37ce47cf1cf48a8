"""`backfill serve` shows jobs to any number of browsers for one query a second, and nothing of a row."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from tests.migration_tool.cli.test_report_layout import SCRIPT, SMALLEST_TEXT
from tests.migration_tool.cli.test_reports import report
from tests.support import forked
from tests.support.chromium import Browser, Tab
from tests.support.copies import MemoryPair, invoke, memory_pair, open_store
from tests.support.databases import PASSWORD, fresh_settings
from tests.support.outages import eventually
from tests.support.proxies import through_proxy
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore.ledger import Lease, QuarantineLine, RangeTally
from twinstore.scheduler.catalog import AUDIT, RUNS
from twinstore.testing.copying import ranges_at, started, taken
from twinstore_backfill.outcome import Exit
from twinstore_backfill.report.writing import ReportFormat, render
from twinstore_backfill.serve.app import COOKIE, HEADERS, Board, serving
from twinstore_backfill.stores import prepare_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import Settings
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.stores import Store

TENANT: Final = "tenant-of-nobody-else"
VALUE: Final = "value-of-a-document"
REASON: Final = "Run state: Input should be 'planning'"
TOKEN: Final = "t0ken-of-thirty-two-characters-__"
# The clock, the jobs, their ranges, and the quarantine of one entity.
ROTATION: Final = 4
BROWSERS: Final = 200
SCRIPT_OF_LAYOUT: Final = (
    SCRIPT.replace("SMALLEST", str(SMALLEST_TEXT)).replace("CONTRAST", "4.5").replace("TARGET", "24")
)
COMMITTED: Final = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
# A folded part that has the focus.
OPEN: Final = "document.activeElement.matches('details[open] > summary')"
CONNECTED: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
GRANTS: Final = """
    CREATE ROLE {name} LOGIN PASSWORD '{password}';
    GRANT USAGE ON SCHEMA twinstore TO {name};
    GRANT SELECT ON twinstore.jobs, twinstore.ranges, twinstore.quarantine TO {name};
"""


def finish(store: Store, lease: Lease, entity: Entity = RUNS, rows: int = 30) -> None:
    """Finish the next range of a job, with one document in quarantine if it has any."""
    ledger = store.ledger
    claim = taken(ledger, lease.job_id, entity.name)
    values = {"job_id": claim.job_id, "number": claim.number, "line": 1, "entity": entity.name}
    texts = {"tenant": TENANT, "key": f'["{VALUE}"]', "reason": REASON, "raw": VALUE}
    lines = [QuarantineLine.model_validate({**values, **texts})] if rows else []
    tally = RangeTally(read={TENANT: rows}, quarantined={TENANT: len(lines)})
    with store.bulk.writer(entity) as writer:
        writer.flush()
        ledger.store_lines(writer.access, claim, lines, ())
        ledger.finish(writer.access, claim, tally)
        writer.commit()


def looked(board: Board, times: int = ROTATION) -> dict[str, Any]:
    """Return what the page knows after some looks."""
    for _ in range(times):
        assert board.look() >= 1
    document: dict[str, Any] = json.loads(board.snapshot.progress)
    return document


def told(board: Board) -> tuple[object, ...]:
    """Return what the page says of its only job after a rotation."""
    (job,) = looked(board)["jobs"]
    (runs,) = job["entities"]
    causes = [(cause["cause"], cause["documents"]) for cause in job["causes"]]
    return job["said"], runs["ranges_done"], runs["ranges"], runs["read"], causes


@contextmanager
def counted(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Callable[[], int]]:
    """Yield what counts the queries that the server of a store has met."""
    section: Any = settings["Persistence"]
    if "Postgres" in section:
        admin = request.getfixturevalue("postgres_server").admin
        name = [urlsplit(section["Postgres"]["ConnectionString"]).path.strip("/")]
        # A session adds what it has done when it ends.
        ended = partial(eventually, lambda: admin.execute(CONNECTED, name).fetchone() == (0,))
        yield lambda: ended() and admin.execute(COMMITTED, name).fetchone()[0]
        return
    database = request.getfixturevalue("mongo_server").client[section["Mongo"]["Database"]]
    database.command("profile", 2)
    ours = {"op": {"$in": ["query", "getmore", "command"]}, "ns": {"$not": {"$regex": "profile"}}}
    yield lambda: database["system.profile"].count_documents({**ours, "command.hello": {"$exists": False}})
    database.command("profile", 0)
    database.drop_collection("system.profile")


@contextmanager
def as_reader(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Settings]:
    """Yield the settings of a role that may read the ledger and nothing else, where any role has rights."""
    section: Any = settings["Persistence"]
    if "Mongo" in section:
        changed = {"ServerSelectionTimeoutMs": 200}
        yield {"Persistence": {**section, "Mongo": {**section["Mongo"], **changed}}}
        return
    server, name = request.getfixturevalue("postgres_server"), f"page_{uuid4().hex[:8]}"
    url = section["Postgres"]["ConnectionString"]
    with psycopg.connect(postgres_url(server.url, dbname=urlsplit(url).path[1:]), autocommit=True) as admin:
        admin.execute(GRANTS.format(name=name, password=PASSWORD).encode())
        read = {"ConnectionString": postgres_url(url, user=name, password=PASSWORD)}
        yield {"Persistence": {"Scheduler": "Postgres", "Postgres": read}}
        admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


@pytest.fixture(params=["mongo", "postgres"])
def settings(request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Give the settings of a target on a real server."""
    with fresh_settings(request.param, request) as found:
        yield found


def opened(stack: ExitStack, settings: Settings, *, read_only: bool = True) -> Store:
    """Open the target that settings name; one that is written to has a ledger then."""
    section: Any = settings["Persistence"]
    loaded = load_settings(settings, environ={})
    opening = open_store("scheduler", section["Scheduler"], loaded, read_only=read_only)
    store = stack.enter_context(opening)
    if not read_only:
        prepare_target(store)
    return store


def test_a_job_is_followed_to_its_end_through_an_outage_by_a_role_that_only_reads(
    settings: Settings, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        target = opened(stack, settings, read_only=False)
        proxy, through = through_proxy(stack.enter_context(as_reader(request, settings)))
        stack.enter_context(proxy)
        board = Board(opened(stack, through), ())
        lease = started(target.ledger, RUNS, ranges_at("gm"))
        assert looked(board, 1)["jobs"] == []
        finish(target, lease)
        assert told(board) == ("running", 1, 3, 30, [("model:state", 1)])
        with proxy.unavailable():
            before = json.loads(board.snapshot.progress)
            gone = looked(board, 2)
            assert (gone["answers"], board.snapshot.answers) == (False, False)
            assert {**gone, "answers": True, "error": None} == before
            assert b"The ledger cannot be read (" in board.snapshot.page
        finish(target, lease)
        finish(target, lease)
        target.ledger.complete(lease)
        looked(board, 1)
        assert told(board) == ("complete", 3, 3, 90, [("model:state", 3)])
        shown = board.snapshot.page + board.snapshot.event + board.snapshot.progress
        assert not [text for text in (TENANT, VALUE, "sql://", "mongodb://") if text.encode() in shown]


def test_any_number_of_browsers_costs_one_query_at_each_look(
    settings: Settings, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        started(opened(stack, settings, read_only=False).ledger, RUNS)
    costs: list[int] = []
    for looks, browsers in ((ROTATION, 1), (3 * ROTATION, BROWSERS)):
        with counted(request, settings) as count:
            before = count()
            with ExitStack() as stack:
                board = Board(opened(stack, settings), ())
                port = urlsplit(stack.enter_context(serving(board))).port
                for _ in range(browsers):
                    stack.enter_context(stream(port))
                    assert asked(port, "/progress")[0] == 200
                looked(board, looks)
            costs.append(count() - before)
    # A server that tidies up meanwhile counts a few of its own.
    assert 0 <= costs[1] - costs[0] - 2 * ROTATION < BROWSERS, costs


def stream(port: int | None) -> socket.socket:
    """Return a browser that follows the page."""
    assert port is not None
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
    return client


def asked(
    port: int | None, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body of an answer."""
    assert port is not None
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": "localhost", **headers})
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    body = "" if found.get("content-type", "").startswith("text/event") else answer.read().decode()
    connection.close()
    return answer.status, found, body


@pytest.fixture
def board() -> Iterator[Board]:
    """Return the board of a ledger in memory."""
    with memory_pair(Path()) as pair:
        started(pair.target.ledger, RUNS, ranges_at("gm"))
        board = Board(pair.target, ())
        looked(board)
        yield board


ANSWERED: Final = ("/", "/progress", "/report", "/events", "/style.css", "/script.js", "/?token=wrong")
PATHS: Final = (*ANSWERED, "/missing")


def test_only_who_has_the_token_sees_anything(board: Board) -> None:
    with serving(board, "0.0.0.0", token=TOKEN) as address:  # noqa: S104  # what the token is for
        port = urlsplit(address).port
        wrong = ("", "Bearer", "Bearer x", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xe9")
        for path in PATHS:
            refused = [asked(port, path, Authorization=text) for text in wrong]
            refused.append(asked(port, path, Cookie=f"{COOKIE}={TOKEN}"))
            assert {(status, body) for status, _, body in refused} == {(401, "Unauthorized\n")}, path
        statuses = [asked(port, path, Authorization=f"Bearer {TOKEN}")[0] for path in PATHS]
        assert statuses == [200] * 7 + [404]
        assert asked(port, "/health")[0] == 200
        assert asked(port, f"/progress?token={TOKEN}")[0] == 401
        # Once in the address, then in a cookie that shows no token and no script reads.
        status, headers, _ = asked(port, f"/?token={TOKEN}")
        cookie, *attributes = headers["set-cookie"].lower().split("; ")
        assert (status, headers["location"], TOKEN in str(headers)) == (303, "./", False)
        assert {"httponly", "samesite=strict"} <= {*attributes}
        assert asked(port, "/", Cookie=cookie)[0] == 200


def test_without_one_it_answers_readers_of_this_machine_with_the_headers_of_a_page(board: Board) -> None:
    with serving(board) as address:
        port = urlsplit(address).port
        names = ("localhost", "127.0.0.1", "[::1]", "127.0.0.1:80", "evil.example", "localhost.evil", "", "[")
        assert [asked(port, "/progress", Host=name)[0] for name in names] == [200] * 4 + [421] * 4
        for path in (*PATHS, "/health"):
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
                status, headers, _ = asked(port, path, method)
                expected = 404 if path == "/missing" else 200 if method in {"GET", "HEAD"} else 405
                assert status == expected, (path, method)
                assert {name: headers[name.lower()] for name in HEADERS} == HEADERS
        assert not [text for text in ("style=", "<style>", "<script>") if text in asked(port, "/")[2]]


@pytest.mark.parametrize(
    ("arguments", "token", "said"),
    [
        (("--host", "0.0.0.0"), "", "others could read the page"),  # noqa: S104  # it is refused
        (("--host", "example.invalid"), "", "others could read the page"),
        ((), "short", "at least 16"),
        ((), f"{TOKEN} {TOKEN}", "at least 16"),
        (("--token-file", "missing"), "", "cannot be read"),
        (("--port", "{busy}"), "", "Name another port"),
    ],
)
def test_what_it_cannot_serve_safely_is_refused(
    *,
    arguments: tuple[str, ...],
    token: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if token:
        monkeypatch.setenv("TWINSTORE_SERVE_TOKEN", token)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        given = [item.format(busy=busy.getsockname()[1]) for item in arguments]
        command = ("backfill", "serve", "--to", "memory", "--module", "scheduler", *given)
        answer = invoke(capsys, *command)
    assert (answer.code, said in answer.err) == (Exit.USAGE, True), answer.err
    assert not token or token not in answer.err


def test_the_command_serves_until_a_signal() -> None:
    words = ("backfill", "serve", "--to", "memory", "--module", "scheduler", "--port", "0")
    command = ["-m", "twinstore_backfill", *words]
    process = forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    port = urlsplit(process.stdout.readline().split()[1]).port
    # A browser that stays connected does not keep it.
    with stream(port):
        assert json.loads(asked(port, "/progress")[2])["jobs"] == []
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_reports_show_numbers_and_leave_their_directory_never(tmp_path: Path) -> None:
    all_of = tmp_path / "all"
    good, broken, foreign, outside = all_of / "good", all_of / "broken", all_of / "foreign", tmp_path / "out"
    evil = render(report(evil=VALUE), ReportFormat.JSON)
    for directory, content in ((good, evil), (broken, evil[:-100]), (outside, evil)):
        directory.mkdir(parents=True)
        (directory / "parity-report.json").write_bytes(content)
    foreign.symlink_to(outside)
    pipe = all_of / "pipe\rretry: 9"
    pipe.mkdir()
    os.mkfifo(pipe / "parity-report.json")
    with memory_pair(tmp_path) as pair:
        board = Board(pair.target, [all_of])
    found = json.loads(board.snapshot.report)
    (shown,) = found["reports"]
    assert (shown["report"], shown["verdict"], shown["documents"]["open"]) == (str(good), "FAIL", 3)
    assert [item["report"] for item in found["unreadable"]] == [str(broken), str(foreign), str(pipe)]
    assert b"\r" not in board.snapshot.event
    assert VALUE not in board.snapshot.report.decode() + board.snapshot.page.decode()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser."""
    with closing(Browser(tmp_path_factory.mktemp("chromium"))) as browser:
        yield browser


@pytest.mark.chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_a_desktop_by_day_and_by_night(
    scheme: str, browser: Browser, pair: MemoryPair, tmp_path: Path
) -> None:
    lease = started(pair.target.ledger, RUNS, ranges_at("gm"))
    finish(pair.target, lease)
    (tmp_path / "parity-report.json").write_bytes(render(report(evil="x"), ReportFormat.JSON))
    board = Board(pair.target, [tmp_path])
    looked(board)
    with serving(board) as address:
        for width in (500, 1600):
            tab = Tab(browser, address, width, scheme)
            found = tab.ask(f"((view) => {{ {SCRIPT_OF_LAYOUT} }})(window)")
            faults = {name: found[name] for name in ("sticking", "small", "pale", "targets") if found[name]}
            assert (found["width"], found["content"], faults) == (width, width, {})
            assert (found["ground"] > 0.5) == (scheme == "light")


@pytest.mark.chromium
def test_an_open_page_follows_the_job_the_ledger_and_the_server(
    request: pytest.FixtureRequest, browser: Browser
) -> None:
    with ExitStack() as stack:
        settings = stack.enter_context(fresh_settings("postgres", request))
        target = opened(stack, settings, read_only=False)
        lease = started(target.ledger, RUNS, ranges_at("gm"))
        target.ledger.plan(lease, AUDIT.name, ranges_at(""))
        finish(target, lease, AUDIT, 0)
        proxy, through = through_proxy(settings)
        stack.enter_context(proxy)
        board = Board(opened(stack, through), ())
        finish(target, lease)
        looked(board)
        with serving(board) as address:
            tab = Tab(browser, address, 500, "light")
            tab.until(shows("1 of 3 ranges"))
            # From the keyboard, and it outlives what follows.
            tab.press("Tab")
            tab.press("Enter")
            tab.until(OPEN)
            finish(target, lease)
            looked(board)
            tab.until(shows("2 of 3 ranges"))
            assert tab.ask(OPEN)
            with proxy.unavailable():
                looked(board, 1)
                tab.until(shows("NO ANSWER", "2 of 3 ranges"))
            finish(target, lease)
            target.ledger.complete(lease)
            looked(board)
            tab.until(shows("IDLE", "scheduler: complete", "3 of 3 ranges"))
            assert tab.ask("document.getElementById('link').hidden")
        tab.until("!document.getElementById('link').hidden")
        with serving(board, port=urlsplit(address).port or 0):
            tab.until("document.getElementById('link').hidden")


def shows(*texts: str) -> str:
    """Return what is true of a page that shows some texts."""
    return f"{json.dumps(texts)}.every((text) => document.body.innerText.includes(text))"
