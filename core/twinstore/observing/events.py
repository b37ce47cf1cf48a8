"""What observers are told: each call, each wait for a lock, each opening of system scope.

No record holds a tenant, a key or a payload. What a record says comes from code: names of modules, entities,
operations and drivers, codes of errors and names of their classes. So a metric over any of them stays small.

They are named tuples and not data classes, because one is made in every call: that takes a third of the time,
and the names of an operation are the key of its numbers as they are.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from twinstore.errors import TwinstoreError

__all__ = [
    "Call",
    "CallOutcome",
    "LockWait",
    "Operation",
    "SystemScopeOpening",
    "call_of",
    "outcome_of",
]


class CallOutcome(StrEnum):
    """How a call ended: well, with one of our errors, whose code it is then, or with an error of others.

    An answer is a good end, whatever it says: also ``None``, ``False`` and an empty page.
    """

    OK = "ok"
    ABORTED = "aborted"
    CAPABILITY_NOT_SUPPORTED = "capability_not_supported"
    CONCURRENCY = "concurrency"
    CONFIGURATION_ERROR = "configuration_error"
    CONFLICT = "conflict"
    CONNECTION_ERROR = "connection_error"
    CONSENT_REQUIRED = "consent_required"
    DUPLICATE = "duplicate"
    INVALID_TRANSITION = "invalid_transition"
    LEASE_LOST = "lease_lost"
    LOCK_TIMEOUT = "lock_timeout"
    MIGRATION_ERROR = "migration_error"
    NOT_FOUND = "not_found"
    TENANT_SCOPE = "tenant_scope"
    TIMEOUT = "timeout"
    UNDECODABLE = "undecodable"
    VALIDATION_ERROR = "validation_error"
    ERROR = "error"


FAILURES: Final = {outcome.value: outcome for outcome in CallOutcome if outcome is not CallOutcome.OK}


class Operation(NamedTuple):
    """What is called.

    Attributes:
        module: the name of the module, such as ``library``.
        entity: the attribute of the storage on which it is called, such as ``books`` or ``loan_service``;
            ``storage`` for what concerns the storage as a whole.
        operation: the method, such as ``update``.
        driver: the name of the driver.
    """

    module: str
    entity: str
    operation: str
    driver: str


class Call(NamedTuple):
    """One call that has ended.

    Attributes:
        module, entity, operation, driver: what was called; see :class:`Operation`.
        outcome: how it ended.
        seconds: how long it took, by a clock that only goes forward.
        error: the class of what it raised with its module, such as ``twinstore.errors.DuplicateError``;
            ``None`` after a good end.
    """

    module: str
    entity: str
    operation: str
    driver: str
    outcome: CallOutcome
    seconds: float
    error: str | None


class LockWait(NamedTuple):
    """One attempt to acquire a lock that has ended without an error of the store.

    Attributes:
        module, entity, driver: where the lock is; see :class:`Operation`.
        seconds: how long it took until the caller had the lock or gave up.
        contended: somebody else had the lock at the first question.
        acquired: the caller has the lock.
    """

    module: str
    entity: str
    driver: str
    seconds: float
    contended: bool
    acquired: bool


class SystemScopeOpening(NamedTuple):
    """System scope was opened, in which one sees all tenants.

    Attributes:
        module: the module it was opened for.
        driver: the name of the driver.
        purpose: what for; one of at most a hundred texts in a process, ``other`` for all further ones.
    """

    module: str
    driver: str
    purpose: str


def outcome_of(error: BaseException | None) -> CallOutcome:
    """Return how a call ended that raised this error, or none."""
    if error is None:
        return CallOutcome.OK
    code = error.code if isinstance(error, TwinstoreError) else ""
    # A class of somebody else may have a code of its own.
    return FAILURES.get(code, CallOutcome.ERROR)


def call_of(operation: Operation, seconds: float, error: BaseException | None) -> Call:
    """Return the record of a call that has ended, well or with an error."""
    kind = None if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
    return Call(*operation, outcome_of(error), seconds, kind)
