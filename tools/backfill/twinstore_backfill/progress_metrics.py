"""The progress of a running command for Prometheus. Needs ``twinstore[metrics]``.

Served by this process alone and for as long as the command runs. No label is a tenant or a key.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.errors import ConfigurationError

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.metrics_core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigurationError(
        "--metrics-port needs prometheus-client, which is not installed. Run: "
        "pip install 'twinstore[metrics]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from twinstore_backfill.progress_record import PartState, RecordedProgress

__all__ = ["ProgressCollector", "metrics_served"]

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


class ProgressCollector(Collector):
    """Shows the progress of one command to a registry, as it is at each scrape."""

    def __init__(self, command: str, recorded: RecordedProgress) -> None:
        """Take the command and its progress."""
        self._command, self._recorded = command, recorded

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
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


@contextmanager
def metrics_served(host: str, port: int, collector: Collector) -> Iterator[None]:
    """Answer ``GET /metrics`` for as long as the block lasts.

    Raises:
        ConfigurationError: nobody can listen there.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigurationError(
            f"--metrics-port: nothing can listen on {host}:{port}: {error.strerror}. Name another port."
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
