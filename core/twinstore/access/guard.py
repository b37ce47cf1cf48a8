"""What every driver would otherwise check for itself around its access, one check after the other.

A call is refused while another thread calls through the same session or unit, in a unit that has failed or
only reads, and where it would write outside of the unit that its caller has open. What a rule returns is
refused before it is written when it is another row than the one that was asked for; an error of the store
makes a unit unusable, an error that a rule decided does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from itertools import zip_longest
from threading import RLock
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Final, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import override

from twinstore.access.comparable import check_values
from twinstore.access.errors import duplicate
from twinstore.access.paging import Page
from twinstore.access.protocol import Access, Ref, Rows, Rule, ServerClock, UniqueKey, WritingOperation
from twinstore.access.query import assigned_marker
from twinstore.access.unit_state import SESSION_OR_UNIT, write_refused
from twinstore.catalog.conditions import Equals
from twinstore.catalog.entity import is_present
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, TenancyKind, Tenant, Tenants, admits
from twinstore.errors import (
    ConcurrencyError,
    DocumentDecodeError,
    DuplicateError,
    NotFoundError,
    TwinstoreError,
    UnavailableError,
    ValidationError,
)
from twinstore.models.canonical import CanonicalModel
from twinstore.models.shapes import Kind
from twinstore.runtime.forks import ProcessGuard

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.access.nested_units import OpenUnits
    from twinstore.access.protocol import Binding, FieldUpdates, Values
    from twinstore.access.query import Query
    from twinstore.access.unit_state import Lifetime
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

M = TypeVar("M", bound=CanonicalModel)
P = ParamSpec("P")
T = TypeVar("T")
Errors = tuple[type[TwinstoreError], ...]

STORE_ERRORS: Final[Errors] = (DuplicateError, ConcurrencyError, UnavailableError)
# A row without its parent is found out while rows are written, so that some may be written already.
WRITE_ERRORS: Final[Errors] = (*STORE_ERRORS, NotFoundError)
NO_LOCK: Final = nullcontext()


class OneCallAtATime:
    """Refuses a second call of what is bound to one connection or client session, while one is running.

    Re-entrant: the rule of a call, and the steps of a unit, may call what called them.
    """

    __slots__ = ("__weakref__", "_lock", "_process")

    def __init__(self) -> None:
        self._lock = RLock()
        self._process = ProcessGuard()

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
    """Implements :class:`~twinstore.access.protocol.Access` over that of a driver.

    Attributes:
        inner: the access of the driver.
        lifetime: whether the storage is open.
        calls: is entered by each call; refuses a second one where calls share a connection.
        units: the open units, outside of which their callers must not write; ``None`` in such a unit.
    """

    inner: Access
    lifetime: Lifetime | None = None
    calls: AbstractContextManager[object] = NO_LOCK
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
            # Whole lists are counted, also if options hold the token of a page.
            return {} if query.matches_nothing else self.inner.count(entity, replace(query, after=None), by)

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
    def insert_all(self, entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> None:
        with self.calls:
            self._check_writable()
            for row in rows:
                check_row(entity, scope, row)
            check_batch(entity, rows)
            if rows:
                self._write(WRITE_ERRORS, self.inner.insert_all, entity, scope, rows)

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
    def mark(self, entity: Entity[M], query: Query, sets: FieldUpdates) -> tuple[Row[M], ...]:
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
                # What the block wrote to an outer unit cannot be rolled back separately.
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

    # Outside a unit there is nothing to abort: the next call begins a separate transaction.
    def _abort(self) -> None:
        binding = self.binding
        if binding.in_unit:
            binding.state.abort()


class CheckedRule:
    """A rule whose answer is checked before a driver writes it; remembers the error that it raised itself."""

    __slots__ = ("_driver", "_refs", "_rule", "error")

    def __init__(self, refs: Sequence[Ref], rule: Rule, driver: str) -> None:
        self.error: Exception | None = None
        self._refs = refs
        self._rule = rule
        self._driver = driver

    def __call__(self, rows: Rows, now: ServerClock) -> Rows:
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
    if entity.typed_queried:
        check_values(entity, query, by)
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
        decimal = kind is Kind.DECIMAL
        if (key.time, key.number, key.nullable, key.decimal) != (time, number, nullable, decimal):
            also = ", decimal=True" if decimal else ""
            raise ValueError(
                f"a list of {entity.name} sorts by {key.field!r}, which is {kind.value!r}; "
                f"write SortKey({key.field!r}, {time=}, {number=}, {nullable=}{also})"
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
    if (problem := entity.extra_problem(model)) is not None:
        raise ValidationError(f"The {entity.singular} to be stored: {problem}.", entity=entity.name)
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


# How large a row may be: the same on every driver, so that what one store takes the other takes too.
#
# MongoDB stores no document above 16 MiB; the other stores would take more, and a copy of it could not be
# made. So the size is counted as MongoDB counts it, whatever the store, before anything is written.


# The rest is for what a store adds, such as a second form of the key, a version, or a lease.
MAX_BYTES: Final = 16 * 1024 * 1024 - 64 * 1024
# A row above the limit that an older version has stored may still change its state, which adds a few fields.
SIZE_ALLOWANCE: Final = 64 * 1024
# The most bytes that a field, an item of a list or a member of a map has in addition to its texts.
MEMBER_OVERHEAD: Final = 64
MAX_CHAR_BYTES: Final = 4
# So many times its JSON a document has at most. What gains most is a list of digits: two bytes each, and in
# BSON a type, the place in up to seven digits, its end, and 64 bits.
JSON_EXPANSION: Final = 10
# What a value is to a measurement.
OTHER, TEXT, MODEL, LIST, MAP = range(5)
FORMS: Final[dict[object, int]] = {}
FIXED: Final = (int, float, datetime, timedelta, Enum, type(None))
MAX_KEY_TEXT: Final = 300
MEGABYTE: Final = 1_000_000


def check_size(entity: Entity, row: Row, stored: Row | None = None) -> None:
    """Refuse a row that is too large for one of the stores.

    Args:
        entity: what it is.
        row: what is to be written.
        stored: the row of the same key that it replaces. One that is above the limit already may stay so.

    Raises:
        ValidationError: it is; names the size and the limit.
    """
    if may_be_large(entity, (row,)) and (size := exact_size(row)) > size_limit((stored,)):
        key = shortened(entity.key_text(entity.key_of(row.model, row.storage)))
        raise ValidationError(
            f"The {entity.singular} {key!r} has {megabytes(size)}, and a row may have "
            f"{megabytes(MAX_BYTES)} (counted as MongoDB does, on every store); nothing was written. Make "
            "its texts or lists shorter, or keep large content elsewhere and store where it is.",
            **entity.located(key),
        )


def check_replacement(access: Access, entity: Entity, scope: Tenants, row: Row) -> None:
    """Refuse a row that is too large, unless the stored one is so already; the store is asked for large ones.

    Raises:
        ValidationError: it is; names the size and the limit.
    """
    if may_be_large(entity, (row,)) and exact_size(row) > MAX_BYTES:
        stored = None
        with suppress(DocumentDecodeError):
            (stored,) = access.find(entity, scope, [entity.key_of(row.model, row.storage)])
        check_size(entity, row, stored)


def check_batch(entity: Entity, rows: Iterable[Row], stored: Iterable[Row | None] = ()) -> None:
    """Refuse rows of one call, all of which are written or none, that are too large together.

    Args:
        entity: what they are.
        rows: what is to be written.
        stored: the rows that they replace, in the same order; nothing where all of them are new.

    Raises:
        ValidationError: they are, or one of them is; names the size and the limit.
    """
    rows = tuple(rows)
    # Nearly always, and then each of them fits alone too.
    if not may_be_large(entity, rows):
        return
    before = tuple(stored)
    if len(rows) > 1:
        size = sum(map(exact_size, rows))
        if size > size_limit(before) and max(map(exact_size, rows)) <= MAX_BYTES:
            raise ValidationError(
                f"The {len(rows)} rows of {entity.name} in this call have {megabytes(size)} together, and "
                f"one call may write {megabytes(MAX_BYTES)}, because it is all or nothing; nothing was "
                "written. Split them over several calls.",
                **entity.located(),
            )
    for row, replaced in zip_longest(rows, before):
        check_size(entity, row, replaced)


def size_limit(stored: Iterable[Row | None]) -> int:
    """Return how many bytes rows may have that replace these."""
    size = sum(exact_size(row) for row in stored if row is not None)
    return size + SIZE_ALLOWANCE if size > MAX_BYTES else MAX_BYTES


def may_be_large(entity: Entity, rows: Sequence[Row]) -> bool:
    """Whether rows may be above the limit together."""
    # If a store makes their JSON anyway, its length suffices: nearly all rows are far below the limit.
    by_json = any(item.of_content is not None for item in entity.derived)
    if by_json and sum(map(max_row_size_by_json, rows)) <= MAX_BYTES:
        return False
    return sum(map(max_row_size, rows)) > MAX_BYTES


def max_row_size_by_json(row: Row) -> int:
    """Return an upper bound of the bytes of a row, computed from its JSON; too many if it has none."""
    markers = row.storage.values()
    try:
        content = row.content
    except (TypeError, ValueError):
        return MAX_BYTES + 1
    stored = MEMBER_OVERHEAD * len(markers) + MAX_CHAR_BYTES * sum(
        len(value) for value in markers if isinstance(value, str)
    )
    return JSON_EXPANSION * len(content) + stored


def max_row_size(row: Row) -> int:
    """Return how many bytes a row has at most; nearly every row is far below the limit by this alone."""
    total = MEMBER_OVERHEAD * len(row.storage)
    waiting: list[object] = [row.model, *row.storage.values()]
    # By type and not by isinstance, because every row that is written passes here.
    while waiting:
        value = waiting.pop()
        kind = type(value)
        form = FORMS.get(kind)
        if form is None:
            form = FORMS[kind] = form_of(kind)
        if form == TEXT:
            text = cast("str", value)
            total += len(text) if text.isascii() else MAX_CHAR_BYTES * len(text)
        elif form == MODEL:
            names, parts = fields_of(cast("type[BaseModel]", kind))
            total += parts * MEMBER_OVERHEAD
            values = vars(value)
            for name in names:
                part = values.get(name)
                # Most of what a model has, and here for a third of the time.
                if type(part) is str:
                    total += len(part) if part.isascii() else MAX_CHAR_BYTES * len(part)
                elif part is not None:
                    waiting.append(part)
        elif form == LIST:
            items = cast("list[object]", value)
            total += MEMBER_OVERHEAD * len(items)
            waiting += items
        elif form == MAP:
            members = cast("Mapping[str, object]", value)
            total += MEMBER_OVERHEAD * len(members)
            waiting += members
            waiting += members.values()
    return total


def form_of(kind: type) -> int:
    """Return what the values of a type are."""
    if issubclass(kind, FIXED):
        return OTHER
    for base, form in ((str, TEXT), (BaseModel, MODEL), ((list, tuple), LIST)):
        if issubclass(kind, base):
            return form
    return MAP if issubclass(kind, Mapping) else OTHER


@cache
def fields_of(model: type[BaseModel]) -> tuple[tuple[str, ...], int]:
    """Return the fields of a model whose size depends on their value, and how many fields it has."""
    fields = model.model_fields
    return tuple(name for name, field in fields.items() if not is_fixed(field.annotation)), len(fields)


def is_fixed(annotation: object) -> bool:
    """Whether every value of a type takes about the same."""
    if get_origin(annotation) is Annotated:
        return is_fixed(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return all(map(is_fixed, get_args(annotation)))
    return isinstance(annotation, type) and issubclass(annotation, FIXED)


def exact_size(row: Row) -> int:
    """Return the bytes of a row as a document."""
    return size_of(row.model.wire()) + size_of(row.storage)


def size_of(document: Mapping[str, object]) -> int:
    """Return how many bytes a document has in BSON, every integer in 64 bits."""
    total = 0
    # A list and no recursion: free JSON may be nested as deep as a parser allows.
    waiting: list[object] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            members = cast("Mapping[str, object]", value)
            # The type and the end of the name of each member; the length and the end of the whole.
            total += 5 + 2 * len(members) + sum(map(text_size, members))
            waiting += members.values()
        elif isinstance(value, list | tuple):
            items = cast("list[object]", value)
            total += 5 + 2 * len(items) + index_digits_size(len(items))
            waiting += items
        elif isinstance(value, str):
            total += 5 + text_size(value)
        elif isinstance(value, bool):
            total += 1
        elif value is not None:
            total += 8
    return total


def text_size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def index_digits_size(count: int) -> int:
    """Return how many digits the numbers from 0 to below ``count`` have together."""
    digits, total, least = 1, 0, 0
    while least < count:
        beyond = 10**digits
        total += digits * (min(beyond, count) - least)
        digits, least = digits + 1, beyond
    return total


def megabytes(size: int) -> str:
    """Return a number of bytes as messages show it."""
    return f"{size / MEGABYTE:.2f} MB"


def shortened(text: str) -> str:
    """Return the beginning of a text that a message names."""
    return text if len(text) <= MAX_KEY_TEXT else text[:MAX_KEY_TEXT] + "…"
