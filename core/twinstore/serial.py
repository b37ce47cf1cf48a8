"""Calls of a session, a unit of work or a joined handle: one at a time, whichever thread makes them.

What they are bound to is one connection or client session, which takes one call after the other. A second
thread waits for the call of the first one, and so does whoever leaves the block: nothing goes back to a pool
while somebody uses it.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from threading import local
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from typing_extensions import override

from twinstore.access import Access
from twinstore.canonical import CanonicalModel
from twinstore.errors import Outcome, TimeoutExceededError
from twinstore.forks import ForkSafeLock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager

    from twinstore.access import Binding, Moment, Ref, Row, Rows, Rule, Sets, UniqueKey, Values
    from twinstore.catalog import Entity, Key
    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore.tenancy import Tenants

__all__ = ["SerialAccess", "one_at_a_time", "turn_of"]

M = TypeVar("M", bound=CanonicalModel)
P = ParamSpec("P")
T = TypeVar("T")

_turns: Final[WeakKeyDictionary[object, ForkSafeLock]] = WeakKeyDictionary()
_turns_lock: Final = ForkSafeLock()
# As long as a call waits for a connection by default.
WAIT_SECONDS: Final = 10.0


class Rules(local):
    """How many rules this thread is in, each in a turn."""

    running = 0


_rules: Final = Rules()


class Limited:
    """A turn that is not waited for without end."""

    __slots__ = ("_turn",)

    def __init__(self, turn: ForkSafeLock) -> None:
        """Take the turn."""
        self._turn = turn

    def __enter__(self) -> None:
        """Take it.

        Raises:
            TimeoutExceededError: another thread has kept it.
        """
        if not self._turn.acquire(timeout=WAIT_SECONDS):
            raise TimeoutExceededError(
                f"Another thread has used the session for {WAIT_SECONDS:g} s that a rule calls; perhaps it "
                "waits for the one that runs the rule. Call inside a rule only what called it.",
                outcome=Outcome.NOT_APPLIED,
            )

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._turn.release()


def noted(rule: Rule) -> Rule:
    """Return a rule during which this thread is known to have a turn."""

    def running(rows: Rows, now: Moment) -> Rows:
        _rules.running += 1
        try:
            return rule(rows, now)
        finally:
            _rules.running -= 1

    return running


class SerialAccess(Access):
    """Implements :class:`~twinstore.access.Access` over another one, which meets one call at a time.

    The turn is re-entrant: a rule, and the steps of a unit, may call what called them. A rule that calls
    something else, which another thread has, waits for it only so long: that one may wait for this one.
    """

    __slots__ = ("_state", "_turn", "inner")

    def __init__(self, inner: Access, turn: ForkSafeLock) -> None:
        """Take the access, and the turn of what it is bound to."""
        self.inner = inner
        self._turn = turn
        # Asked under the turn: who waited for it may find that the block was left, or that the unit failed.
        self._state = inner.binding.state

    def _taken(self) -> AbstractContextManager[object]:
        """Return the turn; a block that limits the wait for it where a rule has another one."""
        turn = self._turn
        return turn if not _rules.running or turn.is_mine else Limited(turn)

    @property
    @override
    def binding(self) -> Binding:
        return self.inner.binding

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        with self._taken():
            self._state.check()
            return self.inner.find(entity, scope, keys)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        with self._taken():
            self._state.check()
            return self.inner.page(entity, query)

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        with self._taken():
            self._state.check()
            return self.inner.count(entity, query, by)

    @override
    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        with self._taken():
            self._state.check()
            return self.inner.keys(entity, query)

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        with self._taken():
            self._state.check()
            return self.inner.insert(entity, scope, row)

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        with self._taken():
            self._state.check()
            return self.inner.put(entity, scope, row)

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        with self._taken():
            self._state.check()
            return self.inner.change(refs, noted(rule))

    @override
    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        with self._taken():
            self._state.check()
            return self.inner.mark(entity, query, sets)

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        with self._taken():
            self._state.check()
            return self.inner.amend(entity, query, sets)

    @override
    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        with self._taken():
            self._state.check()
            return self.inner.append(entity, parent, rows)

    @override
    def next_number(self, entity: Entity) -> int:
        with self._taken():
            self._state.check()
            return self.inner.next_number(entity)

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        with self._taken():
            self._state.check()
            return self.inner.remove(entity, query)

    @contextmanager
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Generator[Access]:
        """Open a transaction or go on in one, without a call of another thread in between."""
        with self._taken():
            self._state.check()
            with self.inner.unit(scope, atomic=atomic) as access:
                yield SerialAccess(access, self._turn)

    @override
    def special(self, operation: str) -> Callable[..., object] | None:
        statement = self.inner.special(operation)
        return None if statement is None else self._serial(statement)

    def _serial(self, statement: Callable[P, T]) -> Callable[P, T]:
        @wraps(statement)
        def serial(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._taken():
                self._state.check()
                return statement(*args, **kwargs)

        return serial


@contextmanager
def one_at_a_time(opening: AbstractContextManager[T]) -> Generator[tuple[T, ForkSafeLock]]:
    """Enter and leave what is bound to one connection; give it, and the turn that its calls take.

    It is left when the call that another thread makes has ended, and later ones find it closed.
    """
    turn = ForkSafeLock()
    try:
        with opening as bound:
            try:
                yield bound, turn
            finally:
                wait_for(turn)
    finally:
        if turn.is_mine:
            turn.release()


def wait_for(turn: ForkSafeLock) -> None:
    """Take the turn, and only then let out what the handler of a signal raised meanwhile.

    The connection would otherwise go back to the pool in the middle of the call of another thread. That call
    is bounded by the limit of a statement.
    """
    interruption: BaseException | None = None
    while not turn.is_mine:
        try:
            turn.acquire()
        except BaseException as error:  # noqa: BLE001  # raised again below
            interruption = error
    if interruption is not None:
        raise interruption


def turn_of(handle: object) -> ForkSafeLock:
    """Return the turn of a caller's connection or client session, the same for all that join it."""
    with _turns_lock:
        try:
            return _turns.setdefault(handle, ForkSafeLock())
        except TypeError:
            # A connection that nothing can refer to weakly, such as that of sqlite3: each join has its own.
            return ForkSafeLock()
