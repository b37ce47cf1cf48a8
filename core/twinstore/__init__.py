"""Repositories stored in MongoDB or PostgreSQL, chosen by one configuration switch.

Start with :func:`open_storage`; the models and contracts of a module live in its package, for
example :mod:`twinstore.scheduler`.
"""

from __future__ import annotations

from twinstore.backend import Capabilities
from twinstore.canonical import CanonicalJsonSerializer
from twinstore.clock import Clock, ManualClock, SystemClock
from twinstore.config import Settings, load_settings
from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    ConflictError,
    ConsentRequiredError,
    DocumentDecodeError,
    DuplicateError,
    InvalidTransitionError,
    LeaseLostError,
    LockTimeoutError,
    MigrationChecksumError,
    MigrationError,
    MigrationMissingError,
    NotFoundError,
    Outcome,
    TenantScopeError,
    TimeoutExceededError,
    TransactionAbortedError,
    TwinstoreError,
    UnavailableError,
    UnsupportedCapabilityError,
    ValidationError,
)
from twinstore.paging import Page
from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore.storage import (
    Storage,
    add_scheduler_memory_storage,
    add_scheduler_mongo_storage,
    add_scheduler_postgres_storage,
    add_scheduler_storage,
    open_storage,
)

__all__ = [
    "CanonicalJsonSerializer",
    "Capabilities",
    "Clock",
    "ConcurrencyError",
    "ConfigurationError",
    "ConflictError",
    "ConsentRequiredError",
    "DocumentDecodeError",
    "DuplicateError",
    "InvalidTransitionError",
    "LeaseLostError",
    "LockTimeoutError",
    "ManualClock",
    "MigrationChecksumError",
    "MigrationError",
    "MigrationMissingError",
    "NotFoundError",
    "Outcome",
    "Page",
    "SchedulerSession",
    "SchedulerStorage",
    "Settings",
    "Storage",
    "SystemClock",
    "TenantScopeError",
    "TimeoutExceededError",
    "TransactionAbortedError",
    "TwinstoreError",
    "UnavailableError",
    "UnsupportedCapabilityError",
    "ValidationError",
    "add_scheduler_memory_storage",
    "add_scheduler_mongo_storage",
    "add_scheduler_postgres_storage",
    "add_scheduler_storage",
    "load_settings",
    "open_storage",
]
