"""A state machine that drives the access of several drivers with one sequence of operations.

The sides are parameters: two ways through one driver, or several drivers. Their modules hold the entities of
:mod:`twinstore.testing.entities`; see :class:`AccessSide` for what a side needs.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from tests.differential.access_generators import EVERYTHING, OURS, THEIRS
from tests.differential.access_operations import (
    FIRST,
    a_read,
    access_histories,
    access_operation,
    access_seeds,
)
from tests.differential.outcomes import comparable, observe
from tests.differential.sides import RollBackError
from twinstore.access.query import Query, key_order
from twinstore.access.scope import Scope
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, Tenant
from twinstore.testing.entities import KIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis import settings

    from tests.differential.access_operations import AccessOperation
    from twinstore.access.protocol import Access
    from twinstore.catalog.tenancy import Tenants
    from twinstore.plugins.backend import ModuleBackend

# Bound to a tenant, or in system scope.
BINDINGS: Final = st.sampled_from((OURS, OURS, OURS, THEIRS, ALL_TENANTS))
SCOPES: Final = st.sampled_from((OURS, OURS, OURS, THEIRS, NO_TENANT, ALL_TENANTS))
# An error ends the unit, so more would hardly ever be reached.
MOST_IN_ONE: Final = 4


class AccessDivergenceError(AssertionError):
    """Two sides answered differently, or store different rows."""


@dataclass(slots=True)
class AccessSide:
    """One side of a comparison.

    Attributes:
        name: name in reports.
        backend: the module of the kit on a driver.
        wipe: empties the store; every example starts with it.
        opened: the access of the unit of work that is open.
    """

    name: str
    backend: ModuleBackend[Access]
    wipe: Callable[[], object]
    opened: Access | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    @property
    def outside(self) -> Access:
        """The access past an open unit."""
        return self.backend.repositories

    @property
    def access(self) -> Access:
        """Where the next call goes."""
        return self.opened or self.outside

    def enter(self, scope: Tenants, *, read_only: bool) -> None:
        """Open a unit of work."""
        bound = Scope(scope.id) if isinstance(scope, Tenant) else Scope(purpose="test")
        self.opened = self._open.enter_context(self.backend.transaction(bound, read_only=read_only))

    def leave(self, *, commit: bool = True) -> None:
        """Commit it or roll it back."""
        opened, self._open, self.opened = self._open, ExitStack(), None
        if commit:
            opened.close()
            return
        with suppress(RollBackError), opened:
            raise RollBackError

    def stored(self) -> list[tuple[str, object]]:
        """Return all rows of all entities in order, past an open unit."""
        return [
            (entity.name, comparable(row))
            for entity in KIT.entities
            for row in self.outside.page(
                entity,
                Query(
                    entity=entity.name, scope=ALL_TENANTS, where=(), order=key_order(entity), limit=EVERYTHING
                ),
            )
        ]


class AccessesAgree(RuleBasedStateMachine):
    """Performs each operation on every side; each difference is a failure."""

    def __init__(self, sides: Sequence[AccessSide]) -> None:
        super().__init__()
        self.sides = sides
        self.home: Tenants = ALL_TENANTS

    @initialize(history=access_histories)
    def start(self, history: list[int]) -> None:
        for side in self.sides:
            side.wipe()
        for operation in FIRST:
            self.perform(operation)
        self.perform_all(history)

    @rule(history=access_histories)
    def perform_all(self, history: list[int]) -> None:
        """Perform some operations where calls go now, and look at what is stored at the end."""
        for seed in history:
            self.perform(access_operation(seed, self.home))
        self.compare_stored("these operations")

    def perform(self, operation: AccessOperation) -> None:
        note(operation)
        self.compare(operation, lambda side: operation(side.access))

    @property
    def is_open(self) -> bool:
        """Whether a unit of work is open."""
        return self.sides[0].opened is not None

    @precondition(lambda self: not self.is_open)
    @rule(scope=BINDINGS, read_only=st.sampled_from((False, False, False, True)))
    def begin(self, scope: Tenants, *, read_only: bool) -> None:
        self.compare(("begin", scope), lambda side: side.enter(scope, read_only=read_only))
        self.home = scope

    @precondition(lambda self: self.is_open)
    @rule(commit=st.sampled_from((True, True, False)))
    def end(self, *, commit: bool) -> None:
        """Commit or roll back a unit, also one that failed."""
        self.home = ALL_TENANTS
        self.compare(("end", commit), lambda side: side.leave(commit=commit))
        self.compare_stored("the end")

    @precondition(lambda self: self.is_open)
    @rule(seed=access_seeds)
    def look_from_outside(self, seed: int) -> None:
        """Read past the open unit: what it wrote must not be seen yet."""
        operation = a_read(seed, self.home)
        self.compare(operation, lambda side: operation(side.outside))

    @rule(scope=SCOPES, history=access_histories, commit=st.sampled_from((True, True, False)))
    def together(self, scope: Tenants, history: list[int], *, commit: bool) -> None:
        """Perform some operations in a unit as a repository opens it, within the open one if there is one."""
        home = scope if self.home is ALL_TENANTS else self.home
        steps = [access_operation(seed, home) for seed in history][:MOST_IN_ONE]
        note(("together", home, steps, commit))

        def act(side: AccessSide) -> object:
            with suppress(RollBackError), side.access.unit(home) as unit:
                results = tuple(step(unit) for step in steps)
                if not commit:
                    raise RollBackError
                return results
            return "rolled back"

        self.compare(("together", steps), act)
        self.compare_stored(steps)

    def compare(self, what: object, act: Callable[[AccessSide], object]) -> None:
        """Do something on every side and compare what a caller observes."""
        outcomes = [observe(partial(act, side)) for side in self.sides]
        for side, outcome in zip(self.sides[1:], outcomes[1:], strict=True):
            if outcome != outcomes[0]:
                self.fail(what, outcomes[0], side, outcome)

    def compare_stored(self, what: object) -> None:
        """Compare what is really stored, past an open unit of work."""
        rows = [side.stored() for side in self.sides]
        for side, found in zip(self.sides[1:], rows[1:], strict=True):
            if found != rows[0]:
                mine = [row for row in rows[0] if row not in found]
                other = [row for row in found if row not in rows[0]]
                self.fail(f"rows after {what}", mine or "the same in another order", side, other)

    def fail(self, what: object, mine: object, side: AccessSide, other: object) -> NoReturn:
        raise AccessDivergenceError(f"{what}\n{self.sides[0].name}: {mine!r}\n{side.name}: {other!r}")

    @override
    def teardown(self) -> None:
        for side in self.sides:
            side.leave(commit=False)


def run_access_machine(sides: Sequence[AccessSide], profile: settings) -> None:
    """Search for a sequence of operations after which the sides differ."""
    run_state_machine_as_test(cast("Any", partial(AccessesAgree, sides)), settings=profile)
