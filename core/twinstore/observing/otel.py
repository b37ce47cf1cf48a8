"""Spans and metrics of OpenTelemetry. Needs ``twinstore[otel]``; who exports them is the host's choice.

A span lies around each call in the context of the caller, so that it is a child of the caller's span, and the
spans of instrumented client libraries are children of it. It is of the kind ``INTERNAL``: those of the client
libraries are the calls of a server, and none is counted twice.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.observing.counters import METRICS
from twinstore.observing.observer import DB_SYSTEM_NAMES, CallOutcome, Ending, Observer

try:
    from opentelemetry.context import attach, detach
    from opentelemetry.metrics import get_meter
    from opentelemetry.trace import Span, SpanKind, StatusCode, get_tracer, set_span_in_context
except ImportError as error:
    raise ConfigurationError(
        "twinstore.observing.otel needs the API of OpenTelemetry, which is not installed. "
        "Run: pip install 'twinstore[otel]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from twinstore.observing.observer import Call, LockWait, Operation, SystemScopeOpening

__all__ = ["OpenTelemetryObserver"]

SCOPE: Final = "twinstore"
SECONDS: Final = "s"


class OpenTelemetryObserver(Observer):
    """Makes a span of each call, and the metrics of :class:`~twinstore.observing.Counters`. Thread-safe.

    A span has the attributes of the semantic conventions (``db.system.name``, ``db.operation.name``, and
    ``error.type`` after an error) and what was called as ``twinstore.module``, ``twinstore.entity`` and
    ``twinstore.driver``. After an error its status is ``ERROR``, and the event ``exception`` names the class
    of the error. Neither holds a message, which could name a key.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        """Take the providers; ``None`` for those that the process has set."""
        release = version(SCOPE)
        meter = get_meter(SCOPE, release, meter_provider)
        operations, seconds, waits, contention, scope = METRICS
        self._tracer = get_tracer(SCOPE, release, tracer_provider)
        self._operations = meter.create_counter(operations.name, description=operations.help)
        self._contention = meter.create_counter(contention.name, description=contention.help)
        self._openings = meter.create_counter(scope.name, description=scope.help)
        self._seconds, self._waits = (
            meter.create_histogram(
                metric.name,
                unit=SECONDS,
                description=metric.help,
                explicit_bucket_boundaries_advisory=metric.buckets,
            )
            for metric in (seconds, waits)
        )

    @override
    def started(self, operation: Operation) -> Ending:
        span = self._tracer.start_span(
            f"twinstore.{operation.module}.{operation.entity}.{operation.operation}",
            kind=SpanKind.INTERNAL,
            attributes={
                "db.system.name": system_of(operation.driver),
                "db.operation.name": operation.operation,
                "twinstore.module": operation.module,
                "twinstore.entity": operation.entity,
                "twinstore.driver": operation.driver,
            },
        )
        return partial(self._ended, span, attach(set_span_in_context(span)))

    @override
    def lock_waited(self, wait: LockWait) -> None:
        labels = {"module": wait.module, "entity": wait.entity, "driver": wait.driver}
        self._waits.record(wait.seconds, labels)
        if wait.contended:
            self._contention.add(1, labels)

    @override
    def system_scope_opened(self, opening: SystemScopeOpening) -> None:
        self._openings.add(
            1, {"module": opening.module, "driver": opening.driver, "purpose": opening.purpose}
        )

    def _ended(self, span: Span, token: Token[Context], call: Call) -> None:
        try:
            # While the span is the present one, so that an example of a bucket leads to it.
            self._measure(call)
            if call.outcome is not CallOutcome.OK:
                record_error(span, call)
        finally:
            span.end()
            detach(token)

    def _measure(self, call: Call) -> None:
        labels: Mapping[str, str] = {
            "module": call.module,
            "entity": call.entity,
            "operation": call.operation,
            "driver": call.driver,
        }
        self._seconds.record(call.seconds, labels)
        self._operations.add(1, {**labels, "outcome": call.outcome.value})


def record_error(span: Span, call: Call) -> None:
    """Record on a span how its call failed, by names from code and without a message."""
    span.set_attribute("error.type", call.error or call.outcome.value)
    span.set_attribute("twinstore.outcome", call.outcome.value)
    span.add_event("exception", {"exception.type": call.error or call.outcome.value})
    span.set_status(StatusCode.ERROR, call.outcome.value)


def system_of(driver: str) -> str:
    """Return the name of a database system by the semantic conventions, such as ``postgresql``.

    It is the scheme of the URLs that lead to such a system.
    """
    return DB_SYSTEM_NAMES.get(driver.casefold(), driver.casefold())
