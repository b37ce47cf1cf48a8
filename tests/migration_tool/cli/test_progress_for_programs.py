"""A running command reports its progress to programs: lines of JSON, and metrics on request."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from io import StringIO
from pathlib import Path
from signal import SIGINT
from struct import pack
from threading import Event, Semaphore, Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

from tests.support.copies import AS_OF, MemoryPair, Pair, invoke
from tests.support.servers import kept_port
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.models.fields import parse_timestamp
from twinstore_backfill.cli.options import OutputOptions, ProgressForm
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit, InterruptedRunError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.prometheus import MAX_REQUESTS, MetricsHandler, MetricsServer
from twinstore_backfill.progress.record import (
    FORMAT,
    CombinedProgress,
    JsonProgress,
    Progress,
    RecordedProgress,
)
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.options import VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIELDS: Final = {
    "format",
    "time",
    "command",
    "part",
    "state",
    "done",
    "total",
    "estimated",
    "rate",
    "eta_seconds",
    "elapsed_seconds",
    "outcomes",
}
RUNS: Final = 14
PREFIX: Final = "twinstore_backfill_"


class Clock:
    """A clock of seconds that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Asking(Progress):
    """Asks something each time rows are counted."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        """Do nothing."""

    @override
    def advance(self, name: str, count: int) -> None:
        """Ask."""
        self._ask()

    @override
    def finish(self, name: str) -> None:
        """Do nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


def scraped(port: int) -> dict[tuple[str, str, str], float]:
    """Return the numbers by metric, part and outcome."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    samples = (item for family in text_string_to_metric_families(text) for item in family.samples)
    return {
        (item.name.removeprefix(PREFIX), item.labels["part"], item.labels.get("outcome", "")): item.value
        for item in samples
    }


def test_a_line_says_how_far_how_fast_and_how_long_still() -> None:
    stream, clock = StringIO(), Clock()
    progress = JsonProgress(stream, "copy", clock)
    progress.start("runs", 100, 20)
    progress.advance("runs", 10)  # too soon for another line
    clock.now += 2
    progress.advance("runs", 10)
    progress.count("runs", {"ranges": 1, "written": 20})
    clock.now += 2
    progress.finish("runs")
    first, second, last = map(json.loads, stream.getvalue().splitlines())
    assert all(set(line) == FIELDS for line in (first, second, last))
    assert all(parse_timestamp(line["time"]) for line in (first, second, last))
    names = ("command", "part", "state", "done", "total", "rate", "eta_seconds", "elapsed_seconds")
    assert [[line[name] for name in names] for line in (first, second, last)] == [
        ["copy", "runs", "running", 20, 100, None, None, 0.0],
        ["copy", "runs", "running", 40, 100, 10.0, 6.0, 2.0],
        ["copy", "runs", "finished", 40, 40, 5.0, 0.0, 4.0],
    ]
    assert (first["format"], first["outcomes"], last["outcomes"]) == (
        FORMAT,
        {},
        {"ranges": 1, "written": 20},
    )


def test_a_stream_that_is_full_or_closed_ends_no_copy(pair: Pair) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        closed = StringIO()
        closed.close()
        told = CombinedProgress(JsonProgress(full, "copy"), JsonProgress(closed, "copy"))
        options = CopyOptions(execute=True, out=pair.directory, as_of=AS_OF)
        assert run_copy(pair.source, pair.target, options, told, StopSwitch()).complete
        # Otherwise closing would try again to write the buffered rest.
        with suppress(OSError):
            full.close()


def test_the_numbers_of_a_copy_are_those_of_its_report_also_after_an_interruption(pair: Pair) -> None:
    stop = StopSwitch()
    options = CopyOptions(execute=True, out=pair.directory, as_of=AS_OF, range_size=2, jobs=1)
    first = RecordedProgress()

    def interrupt() -> None:
        if any(state.part == "runs" and state.done >= RUNS // 2 for state in first.states()):
            stop.request(SIGINT)

    with pytest.raises(InterruptedRunError):
        run_copy(pair.source, pair.target, options, CombinedProgress(first, Asking(interrupt)), stop)
    assert {state.part: state.finished for state in first.states()}["runs"] is False
    second = RecordedProgress()
    result = run_copy(pair.source, pair.target, options, second, StopSwitch())
    for state in second.states():
        counts = result.totals.of(state.part)
        assert (state.done, state.total, state.finished) == (counts["read"], counts["read"], True)
        assert {name: state.outcomes[name] for name in ("written", "quarantined")} == {
            name: counts[name] for name in ("written", "quarantined")
        }
        assert (state.outcomes["ranges"] > 0) is (counts["read"] > 0)
    compared = RecordedProgress()
    report = run_verify(pair.source, pair.target, VerifyOptions(as_of=AS_OF), compared, StopSwitch())
    documents, *after = compared.states()
    assert (documents.part, documents.outcomes["equal"]) == ("documents", report.documents_equal)
    assert [(state.part, state.finished) for state in after] == [("lists", True), ("checks", True)]


def test_a_running_copy_serves_its_progress(pair: Pair, port: int) -> None:
    seen: list[dict[tuple[str, str, str], float]] = []
    with OutputOptions(ProgressForm.NONE, str(port)).progress("copy") as progress:
        told = CombinedProgress(progress, Asking(lambda: seen.append(scraped(port))))
        options = CopyOptions(execute=True, out=pair.directory, as_of=AS_OF, range_size=2, jobs=1)
        run_copy(pair.source, pair.target, options, told, StopSwitch())
        last = scraped(port)
    halfway = next(numbers for numbers in seen if 0 < numbers.get(("rows_done", "runs", ""), 0) < RUNS)
    assert (halfway["rows_total", "runs", ""], halfway["finished", "runs", ""]) == (RUNS, 0)
    assert last["rows_done", "runs", ""] == last["outcomes", "runs", "written"] == RUNS
    assert (last["outcomes", "runs", "ranges"], last["finished", "runs", ""]) == (RUNS / 2, 1)
    assert last["outcomes", "runs", "quarantined"] == last["outcomes", "runs", "conflicts"] == 0
    # It ends with the command.
    with pytest.raises(URLError):
        scraped(port)


@pytest.mark.parametrize(
    "address", ["0", "65536", "http", "127.0.0.1", ":9464", "1:2:3", "-1", "1e3", "\u0669\u0664", ""]
)
def test_what_is_no_address_is_refused_before_a_store_is_opened(address: str) -> None:
    with pytest.raises(ValidationError, match="--metrics-port"):
        OutputOptions(ProgressForm.NONE, address)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(ConfigurationError, match=address),
            OutputOptions(metrics_port=address).progress("verify"),
        ):
            raise AssertionError("nobody can listen there")


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def hung_up(client: socket.socket) -> bool:
    """Wait until the server closes the connection."""
    with suppress(ConnectionResetError):
        return client.recv(1) == b""
    return True


def test_clients_that_are_silent_take_no_more_than_a_few_threads_and_files(port: int) -> None:
    with ExitStack() as stack:
        stack.enter_context(OutputOptions(ProgressForm.NONE, str(port)).progress("copy"))
        held = [stack.enter_context(connected(port)) for _ in range(MAX_REQUESTS)]
        late = [stack.enter_context(connected(port)) for _ in range(4)]
        assert all(map(hung_up, late))
        # Each of the few is answered when it asks after all, and then there is room again.
        for client in held:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert client.recv(1) == b"H"


def test_a_silent_client_is_left_and_one_that_goes_away_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], port: int
) -> None:
    answered = Semaphore(0)
    honest = MetricsServer.process_request_thread

    def answer(self: MetricsServer, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as it is called
        honest(self, request, client_address)
        answered.release()

    monkeypatch.setattr(MetricsServer, "process_request_thread", answer)
    with OutputOptions(ProgressForm.NONE, str(port)).progress("copy"):
        with connected(port) as client:
            client.sendall(b"G")
            # It is closed by a reset, in the middle of a request.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        monkeypatch.setattr(MetricsHandler, "timeout", 0.01)
        with connected(port) as client:
            assert hung_up(client)
        # Whatever either of them makes it write has been written.
        assert all(answered.acquire(timeout=60) for _ in range(2))
    assert capfd.readouterr() == ("", "")


@contextmanager
def polling(port: int, seen: list[dict[tuple[str, str, str], float]]) -> Iterator[None]:
    """Ask again and again for as long as the block lasts."""
    over = Event()

    def ask() -> None:
        while not over.wait(0.01):
            with suppress(OSError):
                seen.append(scraped(port))

    thread = Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_each_command_takes_both_options(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str], port: int
) -> None:
    def run(name: str, *more: object) -> tuple[int, list[dict[str, Any]]]:
        answer = invoke(capsys, "backfill", name, *pair.sides, "--progress", "json", *more)
        return answer.code, [json.loads(line) for line in answer.err.splitlines() if line.startswith("{")]

    out = tmp_path / "out"
    seen: list[dict[tuple[str, str, str], float]] = []
    with polling(port, seen):
        code, lines = run("copy", "--execute", "--out", out, "--max-rate", 200, "--metrics-port", port)
    assert (code, {line["command"] for line in lines}) == (Exit.OK, {"copy"})
    assert {line["part"]: line for line in lines}["runs"]["outcomes"]["read"] == RUNS
    assert any("rows_done" in {name for name, *_ in numbers} for numbers in seen)
    for name in ("verify", "recheck", "repair"):
        given = ("--execute",) if name == "repair" else ()
        where = ("--in", out / "verify") if name != "verify" else ()
        code, lines = run(name, "--out", out / name, *where, *given)
        assert (code, {line["command"] for line in lines}) == (Exit.OK, {name})
        assert lines[-1]["state"] == "finished"
        # Also after the last document: lists and checks take seconds of their own.
        parts = ["documents", "lists", "checks"] if name == "verify" else ["documents"]
        assert [line["part"] for line in lines if line["state"] == "running" and not line["done"]] == parts
        ended = [line for line in lines if line["state"] == "finished"]
        assert [line["part"] for line in ended] == parts
        assert all(line["done"] == line["total"] for line in ended)
    silent = invoke(capsys, "backfill", "verify", *pair.sides, "--progress", "none")
    assert (silent.code, silent.err) == (Exit.OK, "")


def test_the_extra_is_named_where_it_is_missing() -> None:
    program = (
        "import sys\n"
        "sys.modules['prometheus_client'] = None\n"
        "from twinstore_backfill.cli.options import OutputOptions\n"
        "from twinstore.errors import ConfigurationError\n"
        "try:\n"
        "    with OutputOptions(metrics_port='9464').progress('copy'):\n"
        "        raise AssertionError\n"
        "except ConfigurationError as error:\n"
        "    print(error.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'twinstore[metrics]'" in done.stdout
