"""The contract kit: what every driver must do, as tests that a driver's own test module inherits.

A test module subclasses :class:`SchedulerContract` and provides the fixture ``backend_factory``. Builders
and strategies of valid models serve other tests too. Needs the extra ``twinstore[testing]``.
"""

from __future__ import annotations

from twinstore.testing.base import Contract
from twinstore.testing.contracts.scheduler import SchedulerContract
from twinstore.testing.probe import BackendFactory, Deployment, RawProbe, StoredRow

__all__ = [
    "BackendFactory",
    "Contract",
    "Deployment",
    "RawProbe",
    "SchedulerContract",
    "StoredRow",
]
