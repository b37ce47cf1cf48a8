"""What OpenTelemetry and Prometheus are shown, by their own in-memory exporter, reader and registry."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.instrumentation.pymongo import PymongoInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

import twinstore
from twinstore import aio
from twinstore.errors import ConfigurationError, DuplicateError
from twinstore.observing import Counters
from twinstore.observing.counters import LOCK_WAIT_BUCKETS, METRICS, OPERATION_BUCKETS
from twinstore.observing.otel import OpenTelemetryObserver, system_of
from twinstore.observing.prometheus import CountersCollector
from twinstore.plugins.drivers import installed_backend_names, load_backend
from twinstore.testing.scheduler.builders import make_run
from twinstore.testing.workspace import unique

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.servers import Settings
    from twinstore.scheduler import RunSummary
    from twinstore.scheduler.storage import SchedulerStorage

NAMES: Final = {metric.name for metric in METRICS}


def settings() -> dict[str, object]:
    return {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": unique("export")}}}


@dataclass(frozen=True)
class Telemetry:
    """A process with a separate OpenTelemetry."""

    spans: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracer: Tracer
    observer: OpenTelemetryObserver

    def named(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (found,) = (span for span in self.spans.get_finished_spans() if span.name == name)
        return found

    def parent(self, name: str) -> str | None:
        """Return the name of the span that a span is a child of."""
        above = self.named(name).parent
        ids = {span.context.span_id: span.name for span in self.spans.get_finished_spans() if span.context}
        return None if above is None else ids[above.span_id]

    def points(self) -> dict[str, list[NumberDataPoint | HistogramDataPoint]]:
        """Return what was measured, by the name of the metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: [
                point
                for point in metric.data.data_points
                if isinstance(point, NumberDataPoint | HistogramDataPoint)
            ]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    observer = OpenTelemetryObserver(tracer_provider=tracers, meter_provider=meters)
    yield Telemetry(spans, reader, tracers.get_tracer("a host"), observer)
    tracers.shutdown()
    meters.shutdown()


def use(storage: SchedulerStorage) -> None:
    """Make calls of which each of the five metrics has something to say."""
    run = make_run("tenant-secret", "run-secret")
    storage.runs.create(run)
    with pytest.raises(DuplicateError):
        storage.runs.create(run)
    storage.workers.list()
    with storage.locks.acquire("export", timedelta(0)):
        assert storage.locks.try_acquire("export", timedelta(0)) is None


# OpenTelemetry
def test_spans_lie_between_those_of_the_host_and_those_of_client_libraries(telemetry: Telemetry) -> None:
    def rule(stored: RunSummary | None) -> None:
        """Run where a client library would send a statement."""
        del stored
        with telemetry.tracer.start_as_current_span("UPDATE"):
            pass

    with (
        twinstore.add_scheduler_storage(settings(), observers=[telemetry.observer]) as storage,
        telemetry.tracer.start_as_current_span("POST /runs"),
        storage.transaction("t") as unit,
    ):
        unit.run_summaries.modify("t", "s", rule)
    assert telemetry.parent("UPDATE") == "twinstore.scheduler.run_summaries.modify"
    assert telemetry.parent("twinstore.scheduler.run_summaries.modify") == (
        "twinstore.scheduler.storage.transaction"
    )
    assert telemetry.parent("twinstore.scheduler.storage.transaction") == "POST /runs"


def test_spans_of_a_task_have_that_of_the_task_as_parent(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(storage: aio.AsyncStorage, number: int) -> None:
        with telemetry.tracer.start_as_current_span(f"request {number}"):
            async with storage.scheduler.transaction("t") as unit:
                await unit.runs.create(make_run("t", f"r{number}"))

    async def work() -> None:
        async with aio.open_storage(settings(), observers=[telemetry.observer]) as storage:
            await asyncio.gather(*(serve(storage, number) for number in range(4)))

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(work(), timeout=100))
    spans = telemetry.spans.get_finished_spans()
    above = {span.context.span_id: span for span in spans if span.context}
    chains = [
        [span.name, above[span.parent.span_id].name, above[above[span.parent.span_id].parent.span_id].name]  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]  # a missing parent is what fails
        for span in spans
        if span.name == "twinstore.scheduler.runs.create" and span.parent
    ]
    inside = ["twinstore.scheduler.runs.create", "twinstore.scheduler.storage.transaction"]
    assert sorted(chains) == [[*inside, f"request {number}"] for number in range(4)]
    # OpenTelemetry says so when a context is left that is not the present one.
    assert not caplog.records


def test_a_span_says_what_was_called_and_how_it_failed_without_a_payload(telemetry: Telemetry) -> None:
    with twinstore.add_scheduler_storage(settings(), observers=[telemetry.observer]) as storage:
        use(storage)
    spans = telemetry.spans.get_finished_spans()
    good, bad = (span for span in spans if span.name == "twinstore.scheduler.runs.create")
    called = {
        "db.system.name": "memory",
        "db.operation.name": "create",
        "twinstore.module": "scheduler",
        "twinstore.entity": "runs",
        "twinstore.driver": "Memory",
    }
    assert (dict(good.attributes or {}), good.status.status_code, good.kind, len(good.events)) == (
        called,
        StatusCode.UNSET,
        SpanKind.INTERNAL,
        0,
    )
    error = "twinstore.errors.DuplicateError"
    assert bad.attributes == {**called, "error.type": error, "twinstore.outcome": "duplicate"}
    assert (bad.status.status_code, bad.status.description) == (StatusCode.ERROR, "duplicate")
    assert [(event.name, dict(event.attributes or {})) for event in bad.events] == [
        ("exception", {"exception.type": error})
    ]
    assert "secret" not in "".join(span.to_json() for span in telemetry.spans.get_finished_spans())


def test_open_telemetry_has_the_five_metrics(telemetry: Telemetry) -> None:
    with twinstore.add_scheduler_storage(settings(), observers=[telemetry.observer]) as storage:
        use(storage)
    points = telemetry.points()
    assert set(points) == NAMES
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    assert all(set(point.attributes or {}) == labels[name] for name in points for point in points[name])
    assert {
        (dict(point.attributes or {})["operation"], dict(point.attributes or {})["outcome"], point.value)
        for point in points["twinstore_operations_total"]
        if isinstance(point, NumberDataPoint)
    } >= {("create", "ok", 1), ("create", "duplicate", 1), ("try_acquire", "ok", 1), ("release", "ok", 1)}
    (waits,) = points["twinstore_lock_wait_seconds"]
    assert isinstance(waits, HistogramDataPoint)
    assert (waits.count, tuple(waits.explicit_bounds)) == (2, LOCK_WAIT_BUCKETS)
    seconds = points["twinstore_operation_seconds"][0]
    assert isinstance(seconds, HistogramDataPoint)
    assert tuple(seconds.explicit_bounds) == OPERATION_BUCKETS


@pytest.mark.parametrize(
    ("driver", "system"),
    [("Mongo", "mongodb"), ("Postgres", "postgresql"), ("Memory", "memory"), ("Cask", "cask")],
)
def test_a_system_has_its_name_of_the_semantic_conventions(driver: str, system: str) -> None:
    if driver in installed_backend_names():
        load_backend(driver)
    assert system_of(driver) == system


# Prometheus
def test_prometheus_has_the_five_metrics_with_the_numbers_of_the_counters() -> None:
    counters, registry = Counters(), CollectorRegistry()
    registry.register(CountersCollector(counters))
    with twinstore.add_scheduler_storage(settings(), observers=[counters]) as storage:
        use(storage)
    text = generate_latest(registry).decode()
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    snapshot, (operations, seconds, _, contention, scope) = counters.snapshot(), METRICS
    for metric, numbers in (
        (operations, snapshot.operations),
        (contention, snapshot.lock_contention),
        (scope, snapshot.system_scope),
    ):
        assert numbers
        for labels, number in numbers.items():
            key = tuple(sorted(zip(metric.labels, labels, strict=True)))
            assert samples[metric.name, key] == number
    for labels, found in snapshot.operation_seconds.items():
        pairs = list(zip(seconds.labels, labels, strict=True))
        assert samples[f"{seconds.name}_count", tuple(sorted(pairs))] == found.count
        for bound, number in zip((*OPERATION_BUCKETS, "+Inf"), (*found.buckets, found.count), strict=True):
            assert samples[f"{seconds.name}_bucket", tuple(sorted([*pairs, ("le", str(bound))]))] == number
    assert "secret" not in text


def test_a_registry_refuses_the_same_metrics_twice() -> None:
    registry = CollectorRegistry()
    registry.register(CountersCollector(Counters()))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(CountersCollector(Counters()))


# Without the extras
@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("otel", "opentelemetry", "otel"), ("prometheus", "prometheus_client", "metrics")],
)
def test_without_its_library_a_module_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, library: str, extra: str
) -> None:
    name = f"twinstore.observing.{module}"
    monkeypatch.delitem(sys.modules, name)
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == library]:
        monkeypatch.setitem(sys.modules, loaded, None)  # as Python notes that there is none
    with pytest.raises(ConfigurationError, match=rf"twinstore\[{extra}\]"):
        __import__(name)


def test_who_asks_for_no_extra_imports_none() -> None:
    code = (
        "import sys, twinstore; from twinstore.observing import Counters; "
        "twinstore.add_scheduler_memory_storage({}, observers=[Counters()]).runs.get('t', 'r'); "
        "print({name.split('.')[0] for name in sys.modules} & {'opentelemetry', 'prometheus_client'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


CALLS = 20


@contextmanager
def instrumented(instrumentor: PsycopgInstrumentor | PymongoInstrumentor) -> Iterator[InMemorySpanExporter]:
    """Instrument a client library for the length of the block, which opens its own connections."""
    spans, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    instrumentor.instrument(tracer_provider=tracers)
    try:
        yield spans
    finally:
        instrumentor.uninstrument()
        tracers.shutdown()


def seen(spans: InMemorySpanExporter, config: Settings, tenant: str, word: str) -> tuple[int, int]:
    """Make calls; return in how many spans a word of their statements is, and how many our observer saw."""
    counters = Counters()
    with twinstore.open_storage(config, observers=[counters]) as storage:
        runs = storage.scheduler.runs
        runs.create(make_run(tenant, tenant))
        spans.clear()
        for _ in range(CALLS):
            assert runs.get(tenant, tenant) is not None
    statements = [str((span.attributes or {}).get("db.statement")) for span in spans.get_finished_spans()]
    observed = sum(number for labels, number in counters.snapshot().operations.items() if "get" in labels)
    return sum(word in statement for statement in statements), observed


@contextmanager
def host_pool(database: PostgresDatabase, **options: Any) -> Iterator[Settings]:  # noqa: ANN401  # as psycopg
    """Open the pool of an application, with its own options for each connection."""
    with ConnectionPool(database.app_url, kwargs=options, min_size=1) as pool:
        yield {"Persistence": {"Scheduler": "Postgres", "Postgres": {"Pool": pool}}}


def test_on_mongodb_each_call_is_seen(mongo_database: MongoDatabase, tenant: str) -> None:
    with instrumented(PymongoInstrumentor()) as spans:
        assert seen(spans, mongo_database.config, tenant, "find") == (CALLS, CALLS)


@pytest.mark.parametrize(("pipeline", "number"), [(True, 0), (False, CALLS)], ids=["on", "off"])
def test_on_postgres_each_call_is_seen_without_the_pipeline(
    module_postgres_database: PostgresDatabase, tenant: str, *, pipeline: bool, number: int
) -> None:
    own = {"ConnectionString": module_postgres_database.app_url, "Pipeline": pipeline}
    config: Settings = {"Persistence": {"Scheduler": "Postgres", "Postgres": own}}
    with instrumented(PsycopgInstrumentor()) as spans:
        assert seen(spans, config, tenant, "runs") == (number, CALLS)


@pytest.mark.parametrize(
    ("options", "number"),
    [({}, CALLS), ({"row_factory": dict_row}, CALLS), ({"cursor_factory": psycopg.RawCursor}, 0)],
    ids=["as it is", "dict_row", "RawCursor"],
)
def test_on_a_pool_of_the_application_its_cursors_are_used_if_they_fit(
    module_postgres_database: PostgresDatabase, tenant: str, options: dict[str, Any], number: int
) -> None:
    with (
        instrumented(PsycopgInstrumentor()) as spans,
        host_pool(module_postgres_database, **options) as config,
    ):
        assert seen(spans, config, tenant, "runs") == (number, CALLS)
