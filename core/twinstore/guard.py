"""What every driver would otherwise check for itself around its access, one check after the other.

A call is refused while another thread calls through the same session or unit, in a unit that has failed or
only reads, and where it would write outside of the unit that its caller has open. What a rule returns is
refused before it is written when it is another row than the one that was asked for; an error of the store
makes a unit unusable, an error that a rule decided does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from typing_extensions import override

from twinstore.access import Access, Moment, Ref, Row, Rows, Rule, UniqueKey, WritingOperation
from twinstore.backend import SESSION_OR_UNIT, write_refused
from twinstore.canonical import CanonicalModel
from twinstore.catalog import TenancyKind
from twinstore.catalog_checks import is_present
from twinstore.errors import (
    ConcurrencyError,
    DuplicateError,
    NotFoundError,
    TwinstoreError,
    UnavailableError,
    ValidationError,
)
from twinstore.failures import duplicate
from twinstore.forks import OwnProcess
from twinstore.paging import Page
from twinstore.query import Equals, assigned_marker
from twinstore.shapes import Kind
from twinstore.sizes import check_batch, check_replacement, check_size
from twinstore.tenancy import ALL_TENANTS, NO_TENANT, Tenant, Tenants, admits

if TYPE_CHECKING:
    from twinstore.access import Binding, Sets, Values
    from twinstore.backend import Lifetime
    from twinstore.catalog import Entity, Key
    from twinstore.query import Query
    from twinstore.units import OpenUnits

__all__ = ["GuardedAccess", "OneCallAtATime", "check_row"]

M = TypeVar("M", bound=CanonicalModel)
P = ParamSpec("P")
T = TypeVar("T")
Errors = tuple[type[TwinstoreError], ...]

STORE_ERRORS: Final[Errors] = (DuplicateError, ConcurrencyError, UnavailableError)
# A row without its parent is found out while rows are written, so that some may be written already.
WRITE_ERRORS: Final[Errors] = (*STORE_ERRORS, NotFoundError)
AT_ONCE: Final = nullcontext()


class OneCallAtATime:
    """Refuses a second call of what is bound to one connection or client session, while one is running.

    Re-entrant: the rule of a call, and the steps of a unit, may call what called them.
    """

    __slots__ = ("__weakref__", "_lock", "_process")

    def __init__(self) -> None:
        """Start free."""
        self._lock = RLock()
        self._process = OwnProcess()

    def __enter__(self) -> None:
        """Begin a call.

        Raises:
            ValidationError: another thread is in one.
        """
        if not self._lock.acquire(blocking=False):
            # A lock that another thread held when the process was forked stays held in the child.
            self._process.check(SESSION_OR_UNIT)
            raise ValidationError(
                "Another thread is using this session or unit of work, which accepts one call at a time; "
                "make the calls one after the other, or open a session or unit for each thread."
            )

    def __exit__(self, *_: object) -> None:
        """End the call."""
        self._lock.release()

    @contextmanager
    def during(self, opening: AbstractContextManager[T]) -> Generator[T]:
        """Enter and leave what the calls are bound to; a call that is still running ends before.

        Its connection would otherwise go back to the pool in the middle of the call. That call is bounded by
        the limit of a statement.
        """
        ended = False
        try:
            with opening as bound:
                try:
                    yield bound
                finally:
                    # In a forked child nothing is left that a thread of the parent could be in.
                    ended = not self._process.forked and self._lock.acquire()
        finally:
            if ended:
                self._lock.release()


@dataclass(frozen=True, slots=True)
class GuardedAccess(Access):
    """Implements :class:`~twinstore.access.Access` over that of a driver.

    Attributes:
        inner: the access of the driver.
        lifetime: whether the storage is open.
        calls: is entered by each call; refuses a second one where calls share a connection.
        units: the open units, outside of which their callers must not write; ``None`` in such a unit.
    """

    inner: Access
    lifetime: Lifetime | None = None
    calls: AbstractContextManager[object] = AT_ONCE
    units: OpenUnits | None = None

    @property
    @override
    def binding(self) -> Binding:
        """What the calls are bound to; raises ``ConfigurationError`` once the storage is closed."""
        # Asked here, because every call passes: on a closed storage a driver would connect again.
        if self.lifetime is not None and self.lifetime.closed:
            self.lifetime.check()
        return self.inner.binding

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        with self.calls:
            self.binding.state.check()
            return self.inner.find(entity, scope, keys) if keys else ()

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        """Return a page of a list; a query that matches nothing asks no server."""
        with self.calls:
            self.binding.state.check()
            check_query(entity, query)
            return Page(()) if query.matches_nothing else self.inner.page(entity, query)

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        with self.calls:
            self.binding.state.check()
            check_query(entity, query, by)
            return {} if query.matches_nothing else self.inner.count(entity, query, by)

    @override
    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        with self.calls:
            self.binding.state.check()
            check_query(entity, query)
            return () if query.matches_nothing else self.inner.keys(entity, query)

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        with self.calls:
            self._check_writable()
            check_row(entity, scope, row)
            check_size(entity, row)
            return self._write(WRITE_ERRORS, self.inner.insert, entity, scope, row)

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        with self.calls:
            self._check_writable()
            check_row(entity, scope, row)
            check_replacement(self.inner, entity, scope, row)
            return self._write(WRITE_ERRORS, self.inner.put, entity, scope, row)

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        with self.calls:
            # Wrapped before the driver sees it: a driver writes whatever the rule returns.
            checked = CheckedRule(refs, rule, self._check_writable().driver)
            try:
                return self.inner.change(refs, checked)
            except WRITE_ERRORS as error:
                if error is not checked.error:  # an error that the rule decided leaves the unit usable
                    self._abort()
                raise

    @override
    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        with self.calls:
            check_query(entity, query)
            self._check_writable()
            if query.matches_nothing:
                return ()
            # Whatever the error: rows before the one that failed are marked already.
            return self._write((TwinstoreError,), self.inner.mark, entity, query, sets)

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        with self.calls:
            check_query(entity, query)
            self._check_writable()
            if query.matches_nothing:
                return 0
            # Whatever the error: rows before the one that failed are changed already.
            return self._write((TwinstoreError,), self.inner.amend, entity, query, sets)

    @override
    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        with self.calls:
            self._check_writable()
            for row in rows:
                check_row(entity, parent.scope, row)
                check_parent(entity, parent, row)
            check_batch(entity, rows)
            return self._write(STORE_ERRORS, self.inner.append, entity, parent, rows) if rows else ()

    @override
    def next_number(self, entity: Entity) -> int:
        with self.calls:
            assigned_marker(entity)
            self._check_writable()
            return self.inner.next_number(entity)

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        with self.calls:
            check_query(entity, query)
            self._check_writable()
            if query.matches_nothing:
                return 0
            return self._write(STORE_ERRORS, self.inner.remove, entity, query)

    @contextmanager
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Generator[Access]:
        """Open a transaction or go on in one; see the Protocol."""
        with self.calls:
            self._check_writable()
            try:
                with self.inner.unit(scope, atomic=atomic) as access:
                    yield GuardedAccess(access, self.lifetime, self.calls, self.units)
            except BaseException:
                # What the block has written to the unit of somebody else cannot be taken back alone.
                self._abort()
                raise

    @override
    def special(self, operation: str) -> Callable[..., object] | None:
        statement = self.inner.special(operation)
        if statement is None:
            return None
        return self._guarded(statement, writes=isinstance(operation, WritingOperation))

    def _guarded(self, statement: Callable[P, T], *, writes: bool) -> Callable[P, T]:
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            with self.calls:
                if writes:
                    self._check_writable()
                else:
                    self.binding.state.check()
                return self._write(STORE_ERRORS, statement, *args, **kwargs)

        return guarded

    def _check_writable(self) -> Binding:
        binding = self.binding
        binding.state.check()
        if binding.read_only:
            raise write_refused(binding.driver)
        if self.units is not None:
            self.units.refuse_outside(binding.driver)
        return binding

    def _write(self, fatal: Errors, write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a call of the driver returns; some errors make the unit unusable."""
        try:
            return write(*args, **kwargs)
        except fatal:
            self._abort()
            raise

    # Outside a unit there is nothing to abort: the next call begins a transaction of its own.
    def _abort(self) -> None:
        binding = self.binding
        if binding.in_unit:
            binding.state.abort()


class CheckedRule:
    """A rule whose answer is checked before a driver writes it; remembers the error that it raised itself."""

    __slots__ = ("_driver", "_refs", "_rule", "error")

    def __init__(self, refs: Sequence[Ref], rule: Rule, driver: str) -> None:
        """Take the refs, the rule, and the name of the driver for messages."""
        self.error: Exception | None = None
        self._refs = refs
        self._rule = rule
        self._driver = driver

    def __call__(self, rows: Rows, now: Moment) -> Rows:
        """Return what the rule returns.

        Raises:
            ValidationError: it is another row than the one that was asked for, or none of its kind.
            DuplicateError: it is a stored row of an append-only entity with other content.
        """
        try:
            changed = self._rule(rows, now)
            written = tuple(
                None if row is None else self._checked(ref, given, row)
                for ref, given, row in zip(self._refs, rows, changed, strict=True)
            )
            self._check_sizes(rows, written)
        except Exception as error:
            self.error = error
            raise
        return written

    def _check_sizes(self, stored: Rows, written: Rows) -> None:
        together: dict[Entity, list[tuple[Row, Row | None]]] = {}
        for ref, given, row in zip(self._refs, stored, written, strict=True):
            if row is not None:
                together.setdefault(ref.entity, []).append((row, given))
        for entity, pairs in together.items():
            check_batch(entity, [row for row, _ in pairs], [given for _, given in pairs])

    def _checked(self, ref: Ref, given: Row | None, row: Row) -> Row | None:
        check_row(ref.entity, ref.scope, row)
        check_same(ref, given, row)
        if given is None or not ref.entity.append_only:
            return row
        if row != given:
            raise duplicate(ref.entity, ref.entity.key_of(row.model, row.storage), self._driver)
        return None


def check_query(entity: Entity, query: Query, *by: str) -> None:
    """Refuse a list that no index could serve on every driver, whatever the one at hand could do.

    Raises:
        ValidationError: it names a field that has no column; names those that have.
        LookupError: it leaves open whose rows it is about; those of a parent are found through it.
        ValueError: its order says something else of a field than the description; a programmer's mistake.
    """
    # Checked on every driver, although a document store could answer: a list that one of them refuses would
    # only fail after the switch.
    named = (*(item.field for item in query.where), *(key.field for key in query.order), *by)
    for field in named:
        if field not in entity.queried:
            known = ", ".join(sorted(entity.queried))
            raise ValidationError(f"{entity.name} has no field {field!r}; it has {known}.")
    check_order(entity, query)
    if entity.parent is None or entity.tenancy.kind is not TenancyKind.PARENT or query.scope is ALL_TENANTS:
        return
    field = entity.parent.field
    if not any(isinstance(item, Equals) and item.field == field for item in query.where):
        raise LookupError(f"a list of {entity.name} must name the {field} that it is about")


def check_order(entity: Entity, query: Query) -> None:
    """Refuse an order whose flags are not those of its fields: some drivers would sort 1000 before 9.

    Raises:
        ValueError: a flag is missing or wrong; names the field and what it should be.
    """
    for key in query.order:
        kind = entity.known[key.field]
        time, number = kind is Kind.INSTANT, kind is Kind.INTEGER
        # Any field may be called nullable; one that may be absent must be, unless a condition excludes that.
        # Keys and assigned numbers are there in every stored row, also where a model may lack them.
        stored = key.field in entity.key or key.field == entity.sequence
        nullable = key.nullable or not (stored or is_present(entity, key.field, query.where))
        if (key.time, key.number, key.nullable) != (time, number, nullable):
            raise ValueError(
                f"a list of {entity.name} sorts by {key.field!r}, which is {kind.value!r}; "
                f"write SortKey({key.field!r}, {time=}, {number=}, {nullable=})"
            )


def check_row(entity: Entity, scope: Tenants, row: Row) -> None:
    """Refuse a row that is of another entity or tenant than the call is about.

    Raises:
        ValidationError: it is.
    """
    model = row.model
    if not isinstance(model, entity.model):
        raise ValidationError(
            f"The {entity.singular} to be stored is a {type(model).__name__}, not a {entity.model.__name__}.",
            entity=entity.name,
        )
    if entity.tenant_field is None:
        return
    if isinstance(scope, Tenant) and entity.tenant_of(model, row.storage) == scope.id:
        return  # as nearly all
    owner = entity.owner_of(model, row.storage)
    if owner is NO_TENANT and entity.tenancy.kind is TenancyKind.REQUIRED:
        raise ValidationError(
            f"The {entity.singular} to be stored has no tenant; set {entity.tenant_field}.",
            entity=entity.name,
        )
    if not admits(scope, owner):
        raise _other_tenant(entity)


def check_same(ref: Ref, given: Row | None, row: Row) -> None:
    """Refuse a row that is another one than a ref names.

    Raises:
        ValidationError: its key, its tenant or, where none was given, the unique value is another one.
    """
    entity = ref.entity
    if given is not None:
        if entity.is_same(row, given):  # as nearly all
            return
        if entity.tenant_of(row.model, row.storage) != entity.tenant_of(given.model, given.storage):
            raise _other_tenant(entity)
        _check_values(entity, "key", entity.key, entity.key_of(given.model, given.storage), row)
    elif isinstance(ref.key, UniqueKey):
        _check_values(entity, ref.key.index.names[-1], ref.key.index.names, ref.key.values, row)
    else:
        _check_values(entity, "key", entity.key, ref.key, row)


def check_parent(entity: Entity, parent: Ref, row: Row) -> None:
    """Refuse a row that belongs to another parent than the one it is appended to.

    Raises:
        ValidationError: it does.
        LookupError: the entity has no parent, or the parent is not named by its key; programmers' mistakes.
    """
    if entity.parent is None or isinstance(parent.key, UniqueKey):
        raise LookupError(f"{entity.name} is appended to a parent, which must be named by its key")
    _check_values(entity, entity.parent.field, (entity.parent.field,), parent.key, row)


def _check_values(entity: Entity, what: str, names: Sequence[str], wanted: Key, row: Row) -> None:
    if [entity.value(row.model, row.storage, name) for name in names] != [*wanted]:
        raise ValidationError(
            f"The {entity.singular} to be stored has another {what} than "
            f"{entity.key_text(wanted)!r}; return the row that was given, changed in other fields.",
            entity=entity.name,
            key=entity.key_text(wanted),
        )


def _other_tenant(entity: Entity) -> ValidationError:
    return ValidationError(
        f"The {entity.singular} to be stored belongs to another tenant than the call; "
        "return the row that was given, changed in other fields.",
        entity=entity.name,
    )
