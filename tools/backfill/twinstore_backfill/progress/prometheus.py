"""The progress of a running command for Prometheus. Needs ``twinstore[metrics]``.

Served by this process alone and for as long as the command runs. No label is a tenant or a key.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from io import StringIO
from socket import AI_PASSIVE, SOCK_STREAM, getaddrinfo
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from typing_extensions import override

from twinstore.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import AddressFamily

    from prometheus_client.core import Metric

    from twinstore_backfill.progress.record import PartState, RecordedProgress

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigurationError(
        "--metrics-port needs prometheus-client, which is not installed. Run: "
        "pip install 'twinstore[metrics]'"
    ) from error

LABELS: Final = ("command", "part")
GAUGES: Final = {
    "rows_done": "Rows of the part that are read, those of an earlier run of the job included",
    "rows_total": "Rows of the part, as counted before it began",
    "rows_per_second": "Rate of this run",
    "seconds_left": "Seconds until the part is done, at this rate",
    "seconds_elapsed": "Seconds since the part began",
    "finished": "1 when the part is done",
}
PREFIX: Final = "twinstore_backfill_"
# Clients must not use up the threads and files that the work needs.
MAX_REQUESTS: Final = 16
SOCKET_TIMEOUT: Final = 10.0

log = logging.getLogger(__name__)


class ProgressCollector(Collector):
    """Shows the progress of one command to a registry, as it is at each scrape."""

    def __init__(self, command: str, recorded: RecordedProgress) -> None:
        self._command, self._recorded = command, recorded

    @override
    def collect(self) -> Iterator[Metric]:
        states = self._recorded.states()
        for name, text in GAUGES.items():
            family = GaugeMetricFamily(PREFIX + name, text, labels=LABELS)
            for state in states:
                number = _numbers(state)[name]
                if number is not None:
                    family.add_metric((self._command, state.part), number)
            yield family
        outcomes = GaugeMetricFamily(
            f"{PREFIX}outcomes",
            "What became of the rows of finished ranges; outcome ranges counts the ranges",
            labels=(*LABELS, "outcome"),
        )
        for state in states:
            for name, count in sorted(state.outcomes.items()):
                outcomes.add_metric((self._command, state.part, name), count)
        yield outcomes


def _numbers(state: PartState) -> dict[str, float | None]:
    return {
        "rows_done": state.done,
        "rows_total": state.total,
        "rows_per_second": state.rate,
        "seconds_left": state.eta,
        "seconds_elapsed": state.elapsed,
        "finished": float(state.finished),
    }


class MetricsHandler(WSGIRequestHandler):
    """Answers one request; writes nothing to stderr, which is for the lines of the command."""

    # Of the socket: a client that neither sends nor reads is dropped after this many seconds.
    timeout = SOCKET_TIMEOUT

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    @override
    def get_stderr(self) -> StringIO:
        return StringIO()


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Listens at one address, and answers a few at a time; it hangs up on all others."""

    daemon_threads = True

    def __init__(self, family: AddressFamily, address: Any) -> None:  # noqa: ANN401  # as the family has it
        self.address_family = family
        self._free = BoundedSemaphore(MAX_REQUESTS)
        super().__init__(address, MetricsHandler)

    @override
    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is a thread for it."""
        return self._free.acquire(blocking=False)

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log that a client disconnected."""
        log.debug("a request for metrics was not answered")


@contextmanager
def serve_metrics(host: str, port: int, collector: Collector) -> Iterator[None]:
    """Answer ``GET /metrics`` for as long as the block lasts.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        (family, _, _, _, address), *_ = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)
        server = MetricsServer(family, address)
    except OSError as error:
        raise ConfigurationError(
            f"--metrics-port: nothing can listen on {host}:{port}: {error.strerror}. Name another port."
        ) from None
    server.set_app(make_wsgi_app(registry))
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
