"""Observers: one hook that is called for every call, from which counters, spans and metrics follow.

    open_storage(observers=[...]) -> Notifier between a session and its parts -> Observer of the host

Bundled are :class:`SlowCalls`, for the log, and :class:`Counters`; :mod:`twinstore.observing.prometheus`
hands these to ``prometheus_client``, and :mod:`twinstore.observing.otel` makes spans and metrics of
OpenTelemetry. The last two each need an extra, so applications import them explicitly.
"""

from __future__ import annotations

from twinstore.observing.counters import Counters
from twinstore.observing.observer import (
    Call,
    CallOutcome,
    Ending,
    LockWait,
    Observer,
    Operation,
    SystemScopeOpening,
    report_lock_wait,
)
from twinstore.observing.slow import SlowCalls
from twinstore.runtime.moved_modules import renamed_getattr

__all__ = [
    "Call",
    "CallOutcome",
    "Counters",
    "Ending",
    "LockWait",
    "Observer",
    "Operation",
    "SlowCalls",
    "SystemScopeOpening",
    "report_lock_wait",
]

__getattr__ = renamed_getattr(__name__)
