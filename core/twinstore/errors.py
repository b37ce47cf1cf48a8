"""The error tree. Every exception that leaves twinstore inherits :class:`TwinstoreError`.

    TwinstoreError
    ├── NotFoundError                 not_found (404)
    ├── ConflictError                 conflict (409)
    │   ├── DuplicateError            duplicate (409)
    │   ├── ConcurrencyError          concurrency (409), retryable
    │   └── TransactionAbortedError   aborted (409)
    ├── InvalidTransitionError        invalid_transition (409)
    ├── ValidationError               validation_error (400)
    │   ├── DocumentDecodeError       undecodable (500)
    │   └── TenantScopeError          tenant_scope (403)
    ├── LeaseLostError                lease_lost (409)
    ├── LockTimeoutError              lock_timeout (504), retryable
    ├── UnsupportedCapabilityError    capability_not_supported (501)
    ├── ConfigurationError            configuration_error (500)
    ├── UnavailableError              connection_error (503), retryable
    │   └── TimeoutExceededError      timeout (504), retryable
    └── MigrationError                migration_error (500)
        ├── ConsentRequiredError      consent_required (500)
        ├── MigrationChecksumError    migration_error (500)
        └── MigrationMissingError     migration_error (500)

A message says what was wrong and what to do. It never contains a payload or a secret.
The driver's own exception, where there is one, is ``__cause__``.

Each of them can be pickled and copied with all its attributes, so it crosses the border of a process. Its
cause and its traceback stay behind, as those of any exception do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, TypeVar, cast

from typing_extensions import override

__all__ = [
    "ConcurrencyError",
    "ConfigurationError",
    "ConflictError",
    "ConsentRequiredError",
    "DocumentDecodeError",
    "DuplicateError",
    "Effect",
    "EffectKind",
    "InvalidTransitionError",
    "LeaseLostError",
    "LockTimeoutError",
    "MigrationChecksumError",
    "MigrationError",
    "MigrationMissingError",
    "NotFoundError",
    "Outcome",
    "TenantScopeError",
    "TimeoutExceededError",
    "TransactionAbortedError",
    "TwinstoreError",
    "UnavailableError",
    "UnsupportedCapabilityError",
    "ValidationError",
]


E = TypeVar("E", bound="TwinstoreError")

# From this status on the request is not the cause.
SERVER_ERROR: Final = 500


class Outcome(StrEnum):
    """What is known about a write whose answer was lost."""

    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"


class TwinstoreError(Exception):
    """Something went wrong in twinstore.

    Attributes:
        code: stable machine-readable name of the failure.
        http_status: the status a web host would answer with.
        retryable: whether the same call may succeed later without a change.
        module, entity, key, driver: where it happened; ``None`` where unknown.
    """

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str | None = None,
        *,
        module: str | None = None,
        entity: str | None = None,
        key: str | None = None,
        driver: str | None = None,
    ) -> None:
        """Take the message (default: the docstring of the class) and where it happened."""
        super().__init__(message or first_line(type(self).__doc__))
        self.module = module
        self.entity = entity
        self.key = key
        self.driver = driver

    @property
    def message(self) -> str:
        """The message without the class name, for logs and operators: it may name hosts and settings."""
        return str(self.args[0])

    @property
    def public_message(self) -> str:
        """The message for a client of a service, without the names of hosts, databases, files and settings.

        If the request is the cause, it is :attr:`message`. If the store, the server or the settings are the
        cause (``http_status`` 500 and above), it says in general words what happened.
        """
        if self.http_status < SERVER_ERROR:
            return self.message
        # If Python drops docstrings (``-OO``), the name of the failure remains.
        return first_line(type(self).__doc__) or self.code

    @override
    def __reduce__(self) -> tuple[object, ...]:
        """Return what an equal error is made of; Python would call the class with the message alone."""
        # Without __init__, whose arguments only the class itself knows; this includes third-party classes.
        return bare, (type(self), self.args), self.__getstate__()

    @override
    def __setstate__(self, state: object) -> None:
        """Take the attributes of the error that was pickled or is copied."""
        # A class with slots has its attributes in two parts.
        parts = cast("tuple[object, ...]", state if isinstance(state, tuple) else (state,))
        for part in parts:
            for name, value in cast("dict[str, object]", part or {}).items():
                # Past the class, which may refuse to be changed.
                object.__setattr__(self, name, value)


class NotFoundError(TwinstoreError):
    """A required key, a parent of a new row, or a key of another tenant is missing."""

    code = "not_found"
    http_status = 404


class ConflictError(TwinstoreError):
    """The stored state is not what the caller expected."""

    code = "conflict"
    http_status = 409


class DuplicateError(ConflictError):
    """The key or a unique value already exists."""

    code = "duplicate"


class ConcurrencyError(ConflictError):
    """Another writer got in between; the same call may succeed when repeated."""

    code = "concurrency"
    retryable = True


class TransactionAbortedError(ConflictError):
    """The unit of work failed earlier and cannot be used or committed any more."""

    code = "aborted"


class InvalidTransitionError(TwinstoreError):
    """The state machine forbids this move."""

    code = "invalid_transition"
    http_status = 409

    def __init__(  # the location of an error plus both ends of the move
        self,
        message: str | None = None,
        *,
        from_state: str,
        to_state: str,
        module: str | None = None,
        entity: str | None = None,
        key: str | None = None,
        driver: str | None = None,
    ) -> None:
        super().__init__(message, module=module, entity=entity, key=key, driver=driver)
        self.from_state = from_state
        self.to_state = to_state


class ValidationError(TwinstoreError):
    """An argument, a model, a page token or an immutable field is not acceptable."""

    code = "validation_error"
    http_status = 400


class DocumentDecodeError(ValidationError):
    """A stored document does not form a model.

    Attributes:
        reason: which paths of it break which rules, without a value; empty where the store itself cannot
            read it.
    """

    code = "undecodable"
    http_status = 500
    reason: str = ""


class TenantScopeError(ValidationError):
    """The tenant of the call and the tenant of the session disagree."""

    code = "tenant_scope"
    http_status = 403


class LeaseLostError(TwinstoreError):
    """The lease is no longer owned by this holder."""

    code = "lease_lost"
    http_status = 409


class LockTimeoutError(TwinstoreError):
    """The lock was not acquired in time."""

    code = "lock_timeout"
    http_status = 504
    retryable = True


class UnsupportedCapabilityError(TwinstoreError):
    """The server or driver in use lacks a capability that this call needs."""

    code = "capability_not_supported"
    http_status = 501


class ConfigurationError(TwinstoreError):
    """The settings are wrong, contradictory or incomplete."""

    code = "configuration_error"


class UnavailableError(TwinstoreError):
    """The store cannot be reached, or the connection was lost."""

    code = "connection_error"
    http_status = 503
    retryable = True

    def __init__(  # the location of an error plus what is known of the write
        self,
        message: str | None = None,
        *,
        outcome: Outcome = Outcome.UNKNOWN,
        module: str | None = None,
        entity: str | None = None,
        key: str | None = None,
        driver: str | None = None,
    ) -> None:
        super().__init__(message, module=module, entity=entity, key=key, driver=driver)
        self.outcome = outcome
        # Whether the server has no connection left for this role, this database or anybody.
        self.full = False


class TimeoutExceededError(UnavailableError):
    """The statement or the selection of a server took too long."""

    code = "timeout"
    http_status = 504


class MigrationError(TwinstoreError):
    """A migration is pending, failed or blocked."""

    code = "migration_error"


class ConsentRequiredError(MigrationError):
    """A migration would let the server remove, refuse or hide rows, and nobody has agreed to that."""

    code = "consent_required"

    def __init__(  # the location of an error plus what asks for consent
        self,
        message: str | None = None,
        *,
        effects: tuple[Effect, ...] = (),
        module: str | None = None,
        entity: str | None = None,
        key: str | None = None,
        driver: str | None = None,
    ) -> None:
        super().__init__(message, module=module, entity=entity, key=key, driver=driver)
        self.effects = effects


class MigrationChecksumError(MigrationError):
    """An applied migration file was changed afterwards."""


class MigrationMissingError(MigrationError):
    """An applied migration is no longer shipped."""


def first_line(text: str | None) -> str:
    """Return the first line of a docstring, which is the default message of its class."""
    return (text or "").strip().partition("\n")[0]


def bare(kind: type[E], args: tuple[object, ...]) -> E:
    """Return an error with these arguments and without its attributes yet."""
    return kind.__new__(kind, *args)


class EffectKind(StrEnum):
    """What becomes of rows that are there already, once a part of the schema exists or is taken back."""

    TTL = "ttl"
    VALIDATOR = "validator"
    RLS = "rls"
    DROP = "drop"


EFFECT_TEXTS: Final = {
    EffectKind.TTL: "remove {rows} of {name} at once",
    EffectKind.VALIDATOR: "refuse the next write of {rows} of {name}",
    EffectKind.RLS: "hide {rows} of {name} from clients that do not set app.tenant_id",
    EffectKind.DROP: "drop {rows} of {name}, which may be nowhere else",
}
# Refused and hidden rows are still there; these are not.
DESTRUCTIVE_EFFECTS: Final = frozenset({EffectKind.TTL, EffectKind.DROP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a migration would let the server do to the rows of one collection or table.

    Attributes:
        name: the collection or table.
        rows: the rows concerned, at least 1. For a TTL index exact: those that no index removes today.
        more: there are more than ``rows``; counting ended there.
    """

    kind: EffectKind
    name: str
    rows: int
    more: bool = False

    @property
    def text(self) -> str:
        """What the server would do, as the end of a sentence."""
        number = f"more than {self.rows:,}" if self.more else f"{self.rows:,}"
        return EFFECT_TEXTS[self.kind].format(
            rows=f"{number} row{'' if self.rows == 1 else 's'}", name=self.name
        )

    @property
    def option(self) -> str:
        """The option of ``twinstore migrate run``, or ``migrate revert``, that agrees to it."""
        # A number never covers rows that were not counted to the end, so none is shown for them.
        number = "" if self.more else f"={self.rows}"
        return f"--accept-{self.kind} {self.name}{number}"
