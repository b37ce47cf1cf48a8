"""An observer that keeps what it is told, for tests."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.observing import Observer

if TYPE_CHECKING:
    from twinstore.observing import Call, Ending, LockWait, Operation, SystemScopeOpening

__all__ = ["REQUEST", "Watch"]

REQUEST: Final[ContextVar[str]] = ContextVar("request", default="")


class Watch(Observer):
    """Keeps everything in the order in which it is told, and the request in whose context a call began."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.calls: list[Call] = []
        self.waits: list[LockWait] = []
        self.openings: list[SystemScopeOpening] = []

    @override
    def started(self, operation: Operation) -> Ending:
        self.requests.append((operation.operation, REQUEST.get()))
        return self.calls.append

    @override
    def lock_waited(self, wait: LockWait) -> None:
        self.waits.append(wait)

    @override
    def system_scope_opened(self, opening: SystemScopeOpening) -> None:
        self.openings.append(opening)

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]  # the state is what it starts with

    @property
    def names(self) -> list[str]:
        """The ended calls by entity and operation."""
        return [f"{call.entity}.{call.operation}" for call in self.calls]

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """The ended calls by operation and outcome."""
        return [(call.operation, call.outcome.value) for call in self.calls]
