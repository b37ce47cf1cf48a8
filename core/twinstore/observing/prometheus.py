"""The bundled counters for ``prometheus_client``. Needs ``twinstore[metrics]``.

REGISTRY.register(CountersCollector(counters))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.observing.counters import METRICS, Snapshot

try:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigurationError(
        "twinstore.observing.prometheus needs prometheus-client, which is not installed. "
        "Run: pip install 'twinstore[metrics]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric as MetricFamily

    from twinstore.observing.counters import Counters, Distribution, Metric

__all__ = ["CountersCollector"]

INFINITE: Final = "+Inf"


class CountersCollector(Collector):
    """Shows counters to a registry of ``prometheus_client``, as they are at each scrape. Thread-safe."""

    def __init__(self, counters: Counters) -> None:
        """Take the counters, which go on to belong to the host."""
        self._counters = counters

    def describe(self) -> Iterator[MetricFamily]:
        """Yield the metrics without numbers, by which a registry knows their names."""
        return families(Snapshot({}, {}, {}, {}, {}))

    @override
    def collect(self) -> Iterator[MetricFamily]:
        """Yield the metrics with their numbers."""
        return families(self._counters.snapshot())


def families(snapshot: Snapshot) -> Iterator[MetricFamily]:
    """Yield all metrics as ``prometheus_client`` has them."""
    operations, seconds, waits, contention, scope = METRICS
    yield counter(operations, snapshot.operations)
    yield histogram(seconds, snapshot.operation_seconds)
    yield histogram(waits, snapshot.lock_wait_seconds)
    yield counter(contention, snapshot.lock_contention)
    yield counter(scope, snapshot.system_scope)


def counter(metric: Metric, numbers: Mapping[tuple[str, ...], int]) -> MetricFamily:
    """Return a counter."""
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, number in numbers.items():
        family.add_metric(labels, number)
    return family


def histogram(metric: Metric, numbers: Mapping[tuple[str, ...], Distribution]) -> MetricFamily:
    """Return a histogram."""
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(str, metric.buckets or ()), INFINITE]
    for labels, number in numbers.items():
        counts = (*number.buckets, number.count)
        family.add_metric(labels, list(zip(bounds, counts, strict=True)), number.total)
    return family
