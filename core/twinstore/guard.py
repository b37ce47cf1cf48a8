"""What every driver would otherwise check for itself around its access.

A call is refused in a unit that has failed or only reads; what a rule returns is refused before it is written
when it is another row than the one that was asked for; an error of the store makes a unit unusable, an error
that a rule decided does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.access import Moment, Ref, Row, Rows, Rule
from twinstore.backend import write_refused
from twinstore.canonical import CanonicalModel
from twinstore.errors import ConcurrencyError, DuplicateError, UnavailableError, ValidationError
from twinstore.paging import Page
from twinstore.tenancy import Tenants, admits

if TYPE_CHECKING:
    from twinstore.access import Access, Binding, Sets, UniqueKey
    from twinstore.catalog import Entity, Key
    from twinstore.query import Query

__all__ = ["GuardedAccess", "check_row"]

M = TypeVar("M", bound=CanonicalModel)
STORE_ERRORS: Final = (DuplicateError, ConcurrencyError, UnavailableError)


@dataclass(frozen=True, slots=True)
class GuardedAccess:
    """Implements :class:`~twinstore.access.Access` over that of a driver."""

    inner: Access

    @property
    def binding(self) -> Binding:
        """What the calls are bound to."""
        return self.inner.binding

    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        """Return the rows of some keys; see the Protocol."""
        self.inner.binding.state.check()
        return self.inner.find(entity, scope, keys) if keys else ()

    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        """Return a page of a list; a query that matches nothing asks no server."""
        self.inner.binding.state.check()
        return Page(()) if query.matches_nothing else self.inner.page(entity, query)

    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        """Count the rows of a list; see the Protocol."""
        self.inner.binding.state.check()
        return {} if query.matches_nothing else self.inner.count(entity, query, by)

    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        """Insert a row; see the Protocol."""
        check_row(entity, scope, None, row)
        with self._writing():
            return self.inner.insert(entity, scope, row)

    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        """Insert or replace a row; see the Protocol."""
        check_row(entity, scope, None, row)
        with self._writing():
            return self.inner.put(entity, scope, row)

    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        """Change some rows in one step; see the Protocol."""
        checked = CheckedRule(refs, rule)
        with self._writing(checked):
            return self.inner.change(refs, checked)

    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        """Set fields of the first rows of a list; see the Protocol."""
        with self._writing():
            return () if query.matches_nothing else self.inner.mark(entity, query, sets)

    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        """Append to an ordered log; see the Protocol."""
        with self._writing():
            return self.inner.append(entity, parent, rows) if rows else ()

    def remove(self, entity: Entity, query: Query) -> int:
        """Remove the first rows of a list; see the Protocol."""
        with self._writing():
            return 0 if query.matches_nothing else self.inner.remove(entity, query)

    @contextmanager
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Generator[Access]:
        """Open a transaction or go on in one; see the Protocol."""
        self._check_writable()
        with self.inner.unit(scope, atomic=atomic) as access:
            yield GuardedAccess(access)

    def special(self, operation: str) -> Callable[..., object] | None:
        """Return the driver's own statement; see the Protocol."""
        return self.inner.special(operation)

    def _check_writable(self) -> None:
        binding = self.inner.binding
        binding.state.check()
        if binding.read_only:
            raise write_refused(binding.driver)

    @contextmanager
    def _writing(self, rule: CheckedRule | None = None) -> Generator[None]:
        self._check_writable()
        try:
            yield
        except STORE_ERRORS as error:
            binding = self.inner.binding
            if binding.in_unit and (rule is None or error is not rule.error):
                binding.state.abort()
            raise


class CheckedRule:
    """A rule whose answer is checked before a driver writes it; remembers the error that it raised itself."""

    __slots__ = ("_refs", "_rule", "error")

    def __init__(self, refs: Sequence[Ref], rule: Rule) -> None:
        """Take the refs and the rule."""
        self.error: Exception | None = None
        self._refs = refs
        self._rule = rule

    def __call__(self, rows: Rows, now: Moment) -> Rows:
        """Return what the rule returns.

        Raises:
            ValidationError: it is another row than the one that was asked for, or none of its kind.
        """
        try:
            changed = self._rule(rows, now)
            for ref, row in zip(self._refs, changed, strict=True):
                if row is not None:
                    check_row(ref.entity, ref.scope, ref.key, row)
        except Exception as error:
            self.error = error
            raise
        return changed


def check_row(entity: Entity, scope: Tenants, key: Key | UniqueKey | None, row: Row) -> None:
    """Refuse a row that is of another entity, tenant or key than the call is about.

    Raises:
        ValidationError: it is.
    """
    model = row.model
    if not isinstance(model, entity.model):
        raise ValidationError(
            f"The {entity.singular} to be stored is a {type(model).__name__}, not a {entity.model.__name__}.",
            entity=entity.name,
        )
    if entity.tenant_field is not None and not admits(scope, entity.owner_of(model, row.storage)):
        raise ValidationError(
            f"The {entity.singular} to be stored belongs to another tenant than the call; "
            "return the row that was given, changed in other fields.",
            entity=entity.name,
        )
    if isinstance(key, tuple) and entity.key_of(model, row.storage) != key:
        raise ValidationError(
            f"The {entity.singular} to be stored has another key than {entity.key_text(key)!r}; "
            "return the row that was given, changed in other fields.",
            entity=entity.name,
            key=entity.key_text(key),
        )
