"""What the instrumentations of OpenTelemetry see of our calls, on real servers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.instrumentation.pymongo import PymongoInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

import twinstore
from twinstore.observing import Counters
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase, PostgresDatabase
    from tests.servers import Settings

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
