"""The rows of every entity in one SQL table, each as JSON: its statements, and its schema from descriptions.

A table ``rows`` has the columns ``entity``, ``key`` (a JSON array), ``document``, ``markers``, ``derived``
(JSON objects) and ``version``. Fields are expressions over them, so that a new field changes no column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Final, Self, assert_never

from typing_extensions import override

from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
)
from twinstore.catalog.conditions import Condition as QueryCondition
from twinstore.catalog.indexes import StoreKind
from twinstore.catalog.tenancy import ALL_TENANTS, TenancyKind, Tenant
from twinstore.errors import MigrationError
from twinstore.migrations.applied import check_history, statuses
from twinstore.migrations.migration import Initializer, MigrationReport, MigrationState, MigrationStatus
from twinstore.models import json_text
from twinstore.models.shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from twinstore.access.paging import SortKey, SortValue
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity, Module
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.catalog.tenancy import Tenants
    from twinstore.documents.rows import DocumentRow
    from twinstore.errors import Effect
    from twinstore.migrations.migration import Consent

READ_KEYS: Final = "SELECT key FROM {source} WHERE {where} ORDER BY {order}"
READ: Final = "SELECT document, markers, derived FROM {source} WHERE {where} ORDER BY {order}"


@dataclass(frozen=True, slots=True)
class OneTable:
    """The statements of such a table in the SQL of one server.

    Attributes:
        create: the statement that makes the table; it does nothing where it is.
        field: the expression of a field, with ``{column}`` and ``{name}``. It gives text that compares by
            code point, or a number; absent fields are NULL and sort before every value.
    """

    create: str
    field: str = "json_extract({column}, '$.{name}')"

    def title(self, entity: Entity) -> str:
        """Return what the column ``entity`` holds."""
        return f"{entity.module}.{entity.name}"

    def place(self, entity: Entity, key: Key) -> tuple[str, str]:
        """Return the values of the columns ``entity`` and ``key``."""
        return self.title(entity), dumps(key)

    def values(self, row: DocumentRow) -> tuple[str, str, str]:
        """Return the values of the columns ``document``, ``markers`` and ``derived``."""
        derived = {**row.derived, **sort_texts(row)} if row.entity.typed_queried else row.derived
        parts = (row.document, row.markers, derived)
        document, markers, beside = (json_text.dumps(part).decode() for part in parts)
        return document, markers, beside

    def expression(self, entity: Entity, name: str) -> str:
        """Return the expression of a field, marker or derived field."""
        column = "markers" if name in entity.markers else "document" if name in entity.shapes else "derived"
        if entity.typed_queried.get(name) is Kind.DECIMAL:
            column, name = "derived", name + SORT
        return self.field.format(column=column, name=name)

    def select(self, entity: Entity, query: Query, source: str = "rows") -> SqlText:
        """Return the statement of a list: the first ``limit + 1`` rows of a table or view."""
        # One row more than requested shows whether there is a next page.
        return self._listed(READ, entity, query, source, query.limit + 1)

    def select_keys(self, entity: Entity, query: Query, source: str = "rows") -> SqlText:
        """Return the statement of the keys of a list, as JSON arrays: of the first ``limit`` rows."""
        return self._listed(READ_KEYS, entity, query, source, query.limit)

    def _listed(self, template: str, entity: Entity, query: Query, source: str, limit: int) -> SqlText:
        by_name = partial(self.expression, entity)
        if entity.typed_queried:
            query = replace(query, where=tuple(as_decimal(entity, item) for item in query.where))
        where = [self.visible(entity, query.scope, source), SqlText.conditions(query, by_name, as_text)]
        order = f"{SqlText.order(query, by_name)} LIMIT {limit}"
        return select_rows(source, SqlText.joined(where, " AND "), order, template)

    def scan(self, entity: Entity, within: KeyRange, scope: Tenants, source: str = "rows") -> SqlText:
        """Return the statement of a whole range, in the order of the key."""
        fields = self.key_fields(entity)
        marks = ", ".join("?" for _ in entity.key)
        bounds = [(">=", within.lower), ("<", within.upper)]
        where = [SqlText(f"({fields}) {sign} ({marks})", key) for sign, key in bounds if key is not None]
        return select_rows(
            source, SqlText.joined([self.visible(entity, scope, source), *where], " AND "), fields
        )

    def visible(self, entity: Entity, scope: Tenants, source: str = "rows") -> SqlText:
        """Return the condition of the rows of an entity that are seen in a scope."""
        parts = [SqlText(f"entity = '{self.title(entity)}'")]
        if scope is ALL_TENANTS:
            pass
        elif entity.tenancy.kind is TenancyKind.PARENT and entity.parent is not None:
            parent = entity.parent.entity
            seen = self.visible(parent, scope, source)
            keys = f"SELECT {self.key_fields(parent)} FROM {source} WHERE {seen.text}"  # noqa: S608  # names of descriptions
            parts.append(SqlText(f"{self.expression(entity, entity.parent.field)} IN ({keys})", seen.values))
        elif entity.tenant_field is not None:
            tenant = self.expression(entity, entity.tenant_field)
            named = SqlText(f"{tenant} = ?", (scope.id,)) if isinstance(scope, Tenant) else None
            parts.append(named or SqlText(f"{tenant} IS NULL"))
        return SqlText.joined(parts, " AND ")

    def scripts(self, module: Module) -> Iterator[Script]:
        """Yield the migrations of a module: the table, and the key and the indexes of each entity."""
        yield Script("rows", self.create)
        for entity in module.entities:
            yield self._index(entity, "key", "UNIQUE INDEX", self.key_fields(entity), [])
            for index in entity.indexes:
                # No query looks inside of a field.
                if StoreKind.TABLES in index.stores and not entity.is_inner(index):
                    yield self._described(entity, index)

    def key_fields(self, entity: Entity) -> str:
        """Return the expressions of the key, in order."""
        return ", ".join(self.expression(entity, name) for name in entity.key)

    def _described(self, entity: Entity, index: Index) -> Script:
        directions = ((name, " DESC" if descending else "") for name, descending in index.directions)
        fields = ", ".join(f"{self.expression(entity, name)}{direction}" for name, direction in directions)
        where = [
            SqlText.condition(item, self.expression(entity, item.field), as_text) for item in index.where
        ]
        kind = "UNIQUE INDEX" if index.unique else "INDEX"
        return self._index(entity, index.name, kind, fields, where)

    def _index(self, entity: Entity, name: str, kind: str, fields: str, where: list[SqlText]) -> Script:
        rows = SqlText.joined([self.visible(entity, ALL_TENANTS), *where], " AND ").literal
        # Partial, because all entities share the table: each index holds the rows of one.
        text = f'CREATE {kind} "{self.title(entity)}.{name}" ON rows ({fields}) WHERE {rows}'
        return Script(f"{entity.name}.{name}", text)


def select_rows(source: str, where: SqlText, order: str, template: str = READ) -> SqlText:
    """Return the statement that reads the rows of a table or view."""
    return SqlText(template.format(source=source, where=where.text, order=order), where.values)


def as_text(value: object) -> object:
    """Return a value as the expression of its field gives it: instants are text that sorts like them."""
    # The offset is always the same, and the "+" before it sorts before the "." of a fraction.
    if isinstance(value, Decimal):
        return sort_text(value)
    return json_text.format_timestamp(value) if isinstance(value, datetime) else value


# Decimals as texts that sort like them: SQL on JSON compares texts, or doubles, which have fewer digits.


# Behind the name of a decimal, among what is derived.
SORT: Final = "__sort"
# More than the exponent of any decimal.
EXPONENTS: Final = 10_000
COMPLEMENT: Final = str.maketrans("0123456789", "9876543210")


def sort_texts(row: DocumentRow) -> dict[str, str]:
    """Return what a row has in addition, for its decimals that lists compare."""
    kinds = row.entity.typed_queried.items()
    decimals = ((name, row.value(name)) for name, kind in kinds if kind is Kind.DECIMAL)
    return {name + SORT: sort_text(value) for name, value in decimals if isinstance(value, Decimal)}


def sort_text(value: Decimal) -> str:
    """Return a text that compares with others as the finite decimals do; 1.0 and 1.00 have the same."""
    if value.is_zero():
        return "1"
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    text = f"{value.adjusted() + EXPONENTS:05}{digits}"
    # The longer of two negative ones that begin alike is the lesser.
    return f"0{text.translate(COMPLEMENT)}~" if value.is_signed() else f"2{text}"


def as_decimal(entity: Entity, item: QueryCondition) -> QueryCondition:
    """Return a condition in which an integer that a decimal is compared with is a decimal."""
    if isinstance(item, OneOf | IsNull | IsPresent) or type(item.value) is not int:
        return item
    decimal = entity.typed_queried.get(item.field) is Kind.DECIMAL
    return replace(item, value=Decimal(item.value)) if decimal else item


# A :class:`~twinstore.access.query.Query` as the text of SQL, for any server that has ``?`` and expressions.


COMPARISONS: Final = {
    After: "{0} > ?",
    Before: "{0} < ?",
    AtMost: "{0} <= ?",
    AtLeast: "{0} >= ?",
    NotAfter: "({0} IS NULL OR {0} <= ?)",
}
# Not TRUE and FALSE, which some servers do not have.
ALWAYS_TRUE: Final = "1 = 1"
ALWAYS_FALSE: Final = "1 = 0"


@dataclass(frozen=True, slots=True)
class SqlText:
    """A piece of SQL with the values of its ``?``, in order.

    The server must compare text by code point and sort an absent value before every other.
    """

    text: str
    values: tuple[object, ...] = field(default=())

    @classmethod
    def joined(cls, parts: list[Self], between: str) -> Self:
        """Return the parts as one; without any: a condition that is always true."""
        text = between.join(part.text for part in parts) or ALWAYS_TRUE
        return cls(text, tuple(value for part in parts for value in part.values))

    @classmethod
    def conditions(
        cls, query: Query, column: Callable[[str], str], value: Callable[[object], object]
    ) -> Self:
        """Return which rows a list wants: its conditions, and that they follow its starting point.

        The scope is not in it, because only the driver knows how a row finds its parent.

        Args:
            query: the list.
            column: the expression of a field by its name.
            value: a value as the server compares it with such an expression.
        """
        parts = [cls.condition(item, column(item.field), value) for item in query.where]
        if query.after is not None:
            parts.append(cls.follows(query.order, query.after, column, value))
        return cls.joined(parts, " AND ")

    @classmethod
    def condition(cls, item: QueryCondition, expression: str, value: Callable[[object], object]) -> Self:
        """Return one condition."""
        match item:
            case Equals():
                return cls(f"{expression} = ?", (value(item.value),))
            # An empty list of IN is an error in most SQL.
            case OneOf(_, ()):
                return cls(ALWAYS_FALSE)
            case OneOf():
                marks = ", ".join("?" for _ in item.values)
                return cls(f"{expression} IN ({marks})", tuple(map(value, item.values)))
            case IsNull():
                return cls(f"{expression} IS NULL")
            case IsPresent():
                return cls(f"{expression} IS NOT NULL")
            case After() | Before() | AtMost() | AtLeast() | NotAfter():
                return cls(COMPARISONS[type(item)].format(expression), (value(item.value),))
            case _:
                assert_never(item)

    @classmethod
    def follows(
        cls,
        order: tuple[SortKey, ...],
        after: tuple[SortValue, ...],
        column: Callable[[str], str],
        value: Callable[[object], object],
    ) -> Self:
        """Return which rows come strictly after a sort key: beyond it in one part, equal in those before."""
        # Not one comparison of rows: directions differ from part to part, and nothing compares with NULL.
        equal: list[Self] = []
        alternatives: list[Self] = []
        for key, bound in zip(order, after, strict=True):
            name = column(key.field)
            beyond = cls._beyond(name, bound, value, descending=key.descending)
            alternatives.append(cls.joined([*equal, beyond], " AND "))
            equal.append(cls(f"{name} IS NULL") if bound is None else cls(f"{name} = ?", (value(bound),)))
        either = cls.joined(alternatives, " OR ")
        return cls(f"({either.text})", either.values)

    @classmethod
    def _beyond(
        cls, name: str, bound: SortValue, value: Callable[[object], object], *, descending: bool
    ) -> Self:
        """Return what lies beyond one value; absent values come first, so last when descending."""
        if bound is None:
            return cls(ALWAYS_FALSE) if descending else cls(f"{name} IS NOT NULL")
        if descending:
            return cls(f"({name} < ? OR {name} IS NULL)", (value(bound),))
        return cls(f"{name} > ?", (value(bound),))

    @property
    def literal(self) -> str:
        """The text with its values written out, for statements that take none: texts and whole numbers."""
        # Safe for descriptions only, whose names and values are ours; data always goes as a parameter.
        return self.text.replace("?", "{}").format(*map(_literal, self.values))

    @staticmethod
    def order(query: Query, column: Callable[[str], str]) -> str:
        """Return the order of a list, for ``ORDER BY``."""
        return ", ".join(f"{column(key.field)} {'DESC' if key.descending else 'ASC'}" for key in query.order)


def _literal(value: object) -> str:
    quoted = str(value).replace("'", "''")
    return str(int(value)) if isinstance(value, int) else f"'{quoted}'"


@dataclass(frozen=True, slots=True)
class Script:
    """A part of a schema: what it is recorded as, and the statement that makes it."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the text."""
        return sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class AppliedScript:
    """A script as the store has recorded it."""

    checksum: str
    applied_at: datetime | None = None


class ScriptInitializer(Initializer, ABC):
    """Implements :class:`~twinstore.migrations.migration.Initializer`.

    A driver says what is recorded, and applies one.

    Its server acts on no row by itself, so nothing needs consent.
    """

    def __init__(self, module: str, driver: str, scripts: Iterable[Script] = ()) -> None:
        """Take the names of the module and of the driver, and what makes the schema, in order.

        Released scripts never change; new ones are added.
        """
        self._module = module
        self._driver = driver
        self._scripts = tuple(scripts)

    @abstractmethod
    def recorded(self) -> Mapping[str, AppliedScript]:
        """Return what is applied, by name; empty where there is no schema. Writes nothing."""

    @abstractmethod
    def apply(self, script: Script) -> bool:
        """Apply and record a script in one transaction, unless it is recorded by now; return whether."""

    @override
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        del release, accept
        # Before anything is applied: a schema that is newer than this library must not be touched.
        self._check()
        done = {script.name: self.apply(script) for script in self._scripts}
        return MigrationReport(
            module=self._module,
            backend=self._driver,
            applied=tuple(name for name, applied in done.items() if applied),
            already_applied=tuple(sorted(name for name, applied in done.items() if not applied)),
        )

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        del release
        return ()

    @override
    def status(self) -> tuple[MigrationStatus, ...]:
        return statuses(*self._known())

    @override
    def verify(self, *, additions: bool = True) -> tuple[str, ...]:
        """Return what is not applied as it is shipped; additions are not checked."""
        del additions
        return tuple(
            f"The migration {status.name} of {self._module} is {status.state}."
            for status in self.status()
            if status.state is not MigrationState.APPLIED
        )

    @override
    def export(self, names: Collection[str] | None = None) -> str:
        chosen = (script for script in self._scripts if names is None or script.name in names)
        return "\n".join(f"-- {script.name}\n{script.text};\n" for script in chosen)

    def check_applied(self) -> None:
        """Do nothing when the schema is as it is shipped.

        Raises:
            MigrationError: a script is pending, or was changed after it was applied, or is not shipped.
        """
        self._check()
        pending = [item.name for item in self.status() if item.state is MigrationState.PENDING]
        if pending:
            raise MigrationError(
                f"Migrations of {self._module} are pending: {', '.join(pending)}. Run: twinstore migrate run "
                f"--module {self._module}",
                module=self._module,
                driver=self._driver,
            )

    def _check(self) -> None:
        check_history(*self._known(), module=self._module, driver=self._driver)

    def _known(self) -> tuple[list[MigrationStatus], list[MigrationStatus]]:
        """Return what is shipped, and what is recorded."""
        shipped = [(item.name, item.checksum, None) for item in self._scripts]
        recorded = [(name, item.checksum, item.applied_at) for name, item in self.recorded().items()]
        return _listed(shipped, MigrationState.PENDING), _listed(recorded, MigrationState.MISSING)


def _listed(
    found: Iterable[tuple[str, str, datetime | None]], state: MigrationState
) -> list[MigrationStatus]:
    return [
        MigrationStatus(name=name, category="schema", checksum=checksum, state=state, applied_at=at)
        for name, checksum, at in found
    ]
