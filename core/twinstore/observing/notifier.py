"""Who tells the observers of one entity what becomes of the calls to it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from twinstore.observing.events import LockWait, Operation, SystemScopeOpening, call_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from twinstore.observing.observer import Ending, Observer, Observers

__all__ = ["PRESENT", "STORAGE", "Notifier", "note_lock_wait"]

P = ParamSpec("P")
T = TypeVar("T")

STORAGE: Final = "storage"
"""The entity of what concerns a storage as a whole."""


class Notifier:
    """Tells the observers of a storage of the calls to one of its entities. Thread-safe."""

    def __init__(self, observers: Observers, module: str, driver: str, entity: str = STORAGE) -> None:
        """Take who is told, and the names that do not change from call to call."""
        self._observers = observers
        self._module = module
        self._driver = driver
        self._entity = entity
        # No lock: two threads that meet here make the same twice, and one of them stays.
        self._operations: dict[str, Operation] = {}
        self._entities: dict[str, Notifier] = {}

    def of(self, entity: str) -> Notifier:
        """Return who tells the same observers of another entity."""
        found = self._entities.get(entity)
        if found is None:
            found = self._entities[entity] = Notifier(self._observers, self._module, self._driver, entity)
        return found

    def run(self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call to the operation of this name and return its answer."""
        operation = self._operation(name)
        endings = self._observers.started(operation)
        token = PRESENT.set(self)
        start = perf_counter()
        try:
            answer = call(*args, **kwargs)
        except BaseException as error:
            self._ended(operation, endings, perf_counter() - start, error)
            raise
        else:
            self._ended(operation, endings, perf_counter() - start, None)
            return answer
        finally:
            PRESENT.reset(token)

    @contextmanager
    def block(self, name: str, block: AbstractContextManager[T]) -> Generator[T]:
        """Enter and leave a block, which is one call to the operation of this name."""
        operation = self._operation(name)
        endings = self._observers.started(operation)
        start = perf_counter()
        try:
            with block as value:
                yield value
        except BaseException as error:
            self._ended(operation, endings, perf_counter() - start, error)
            raise
        self._ended(operation, endings, perf_counter() - start, None)

    def lock_waited(self, seconds: float, *, contended: bool, acquired: bool) -> None:
        """Tell how an attempt to acquire a lock of this entity ended; see :class:`LockWait`."""
        self._observers.lock_waited(
            LockWait(self._module, self._entity, self._driver, seconds, contended, acquired)
        )

    def system_scope_opened(self, purpose: str) -> None:
        """Tell that system scope was opened; see :class:`SystemScopeOpening`."""
        self._observers.system_scope_opened(SystemScopeOpening(self._module, self._driver, purpose))

    def _operation(self, name: str) -> Operation:
        found = self._operations.get(name)
        if found is None:
            found = self._operations[name] = Operation(self._module, self._entity, name, self._driver)
        return found

    def _ended(
        self,
        operation: Operation,
        endings: list[tuple[Observer, Ending]],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        self._observers.ended(endings, call_of(operation, seconds, error))


PRESENT: Final[ContextVar[Notifier | None]] = ContextVar("twinstore_notifier", default=None)
"""Who tells of the call that runs here; ``None`` outside of calls and where nobody observes.

What lies below a repository learns by it whom to tell of locks and system scope, so that no signature between
them has to name it.
"""


def note_lock_wait(entity: str, seconds: float, *, contended: bool, acquired: bool) -> None:
    """Tell the observers of the present call, if there are any, how an attempt to acquire a lock ended.

    Args:
        entity: the name under which locks are observed.
        seconds: from the call until the caller had the lock or gave up.
        contended: somebody else had it at the first question.
        acquired: the caller has it.
    """
    notifier = PRESENT.get()
    if notifier is not None:
        notifier.of(entity).lock_waited(seconds, contended=contended, acquired=acquired)
