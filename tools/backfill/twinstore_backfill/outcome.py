"""How a command ends: exit codes, and the errors that only tools know."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Final

from twinstore.errors import (
    ConfigurationError,
    ConsentRequiredError,
    DocumentDecodeError,
    LeaseLostError,
    NotFoundError,
    TwinstoreError,
    UnsupportedCapabilityError,
    ValidationError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.migrations import Effect

__all__ = [
    "Exit",
    "InterruptedRunError",
    "PreflightError",
    "UnknownJobError",
    "effect_document",
    "effects_of",
    "exit_code",
]


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    DIFFERENT = 1
    USAGE = 2
    INCONCLUSIVE = 3
    FAILED = 4
    GATE_REFUSED = 5
    PREFLIGHT_REFUSED = 6
    LEASE_HELD = 7
    INTERRUPTED = 130
    TERMINATED = 143


class PreflightError(TwinstoreError):
    """A store is not ready for this command; nothing was changed."""

    code: ClassVar[str] = "preflight_refused"


class UnknownJobError(NotFoundError):
    """The ledger has no job of that name; nothing was changed."""


class InterruptedRunError(TwinstoreError):
    """The command was interrupted at a safe point."""

    code: ClassVar[str] = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        """Take the message and the signal that asked for it."""
        super().__init__(message)
        self.signal_number = signal_number


# The first match wins, so children stand before their parents.
CODES: Final[Mapping[type[TwinstoreError], Exit]] = {
    PreflightError: Exit.PREFLIGHT_REFUSED,
    ConsentRequiredError: Exit.PREFLIGHT_REFUSED,
    UnsupportedCapabilityError: Exit.PREFLIGHT_REFUSED,
    LeaseLostError: Exit.LEASE_HELD,
    ConfigurationError: Exit.USAGE,
    UnknownJobError: Exit.USAGE,
    DocumentDecodeError: Exit.FAILED,
    ValidationError: Exit.USAGE,
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, InterruptedRunError):
        return 128 + error.signal_number
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), Exit.FAILED)


def effect_document(effect: Effect) -> dict[str, object]:
    """Return what a program reads of something that needs consent."""
    return {
        "kind": effect.kind.value,
        "name": effect.name,
        "rows": effect.rows,
        "more": effect.more,
        "text": effect.text,
        "option": effect.option,
    }


def effects_of(error: BaseException | None) -> tuple[Effect, ...]:
    """Return what an error, or its cause, asks consent for."""
    # The preflight says it in its own words; what asks for consent is its cause.
    if isinstance(error, PreflightError):
        error = error.__cause__
    return error.effects if isinstance(error, ConsentRequiredError) else ()
