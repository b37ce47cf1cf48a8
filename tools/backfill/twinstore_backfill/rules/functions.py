"""The functions of a module that change documents before the rules, for a copy and a verification alike.

A document is shown to its function with values of Python. What comes back is stored again; a value that is
the same keeps its stored object.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from twinstore.bulk.changes import (
    ChangeRefusedError,
    StoredObjectId,
    StoredReference,
)
from twinstore.catalog.tenancy import TenancyKind
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.models.fields import INT64_MAX, INT64_MIN
from twinstore.plugins.modules import module_spec
from twinstore_backfill.rules.model import REFUSED, FunctionRule, JobRules, KeyRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.bulk.changes import StoredValues
    from twinstore.catalog.entity import Entity
    from twinstore.plugins.module_spec import Normalise

    Members = dict[str, object]

__all__ = ["FunctionStep", "UnrepeatableError", "with_functions"]

ABSENT: Final = object()
# Of so many documents each is given twice, to find functions whose result depends on something else.
TRIED: Final = 100
WRITABLE: Final = frozenset(
    {type(None), str, bool, int, float, bytes, datetime, Decimal, UUID, StoredObjectId}
)


class ResultError(ValueError):
    """A function returns what no store holds; the text says what, without values."""


class UnrepeatableError(ValidationError):
    """A function gives different results for one document."""


def with_functions(rules: JobRules, module: str, entities: Iterable[Entity]) -> JobRules:
    """Return the rules of a job with the functions of its module, which apply first.

    Raises:
        ConfigurationError: a function has no source file.
    """
    functions = module_spec(module).normalise
    found = [entity for entity in entities if entity.name in functions]
    first = max((rule.number for rule in rules), default=0) + 1
    added = (
        _rule(rules, entity, functions[entity.name], number) for number, entity in enumerate(found, first)
    )
    return JobRules((*rules, *added), rules.file)


def _rule(rules: JobRules, entity: Entity, function: Normalise, number: int) -> FunctionRule:
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    digest = source_digest(function, name)
    return FunctionRule(
        number=number,
        line=0,
        entity=entity.name,
        path=(),
        reason=f"{name}, SHA-256 {digest} of its file",
        module=entity.module,
        sha256=digest,
        kept=kept_names(rules, entity),
    )


def source_digest(function: object, name: str) -> str:
    """Return the SHA-256 of the file that defines a function, as 64 hexadecimal digits.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        file = inspect.getsourcefile(inspect.unwrap(cast("Normalise", function)))
        return sha256(Path(file or "").read_bytes()).hexdigest()
    except (TypeError, OSError):
        raise ConfigurationError(
            f"The source file of {name}, which changes documents before they are copied, cannot be read; "
            "define it with def in a file of its module."
        ) from None


def kept_names(rules: JobRules, entity: Entity) -> tuple[str, ...]:
    """Return the stored names that no function may change: those by which stores find and select rows."""
    names = {*entity.key, entity.document_id, entity.own_id, entity.tenant_field, "_id"}
    names.update(rule.path[0] for rule in rules.of(entity, KeyRule))
    if entity.parent is not None and entity.tenancy.kind is TenancyKind.PARENT:
        names.add(entity.parent.field)
    names.update(f"_{name}" for name in entity.markers if name in names)
    return tuple(sorted(name for name in names if name is not None))


class FunctionStep:
    """Applies a function of a module to documents."""

    def __init__(self, rule: FunctionRule) -> None:
        """Take the rule.

        Raises:
            ConfigurationError: the source file is another one than that of the rule.
        """
        self._rule, self._tried = rule, 0
        self._function = module_spec(rule.module).normalise[rule.entity]
        if source_digest(self._function, rule.entity) != rule.sha256:
            raise ConfigurationError(
                f"The file of the function that changes {rule.entity} was changed meanwhile; run the command "
                "again."
            )

    def __call__(self, document: Members, values: StoredValues) -> bool:
        """Change a document in place; return whether anything changed.

        Raises:
            ChangeRefusedError: the row goes to quarantine.
            UnrepeatableError: two calls with the same document have different results.
        """
        found = self._result(document, values)
        if self._tried < TRIED:
            self._tried += 1
            if repr(self._result(document, values)) != repr(found):
                raise UnrepeatableError(
                    f"The function that changes {self._rule.entity} gives different results for the same "
                    "document, so that no verification could repeat them; make it depend on nothing else."
                )
        if isinstance(found, ChangeRefusedError):
            raise found
        if found is document:
            return False
        document.clear()
        document.update(found)
        return True

    def _result(self, document: Members, values: StoredValues) -> Members | ChangeRefusedError:
        """Return the document after the function, the same one if nothing changes, or why it is left out."""
        try:
            given = cast("Members", readable(document, values))
            found = _document(self._function(given), document, values)
        except ResultError as error:
            return ChangeRefusedError(f"{REFUSED}{error}")
        # SystemExit too, which would end the thread of a range. The text may hold values, the type does not.
        except (Exception, SystemExit) as error:  # noqa: BLE001  # of any code
            return ChangeRefusedError(f"{REFUSED}raises {type(error).__name__}")
        for name in self._rule.kept:
            if found.get(name, ABSENT) is not document.get(name, ABSENT):
                return ChangeRefusedError(f"{REFUSED}changes {name}, by which stores find or select the row")
        return found


def readable(value: object, values: StoredValues) -> object:
    """Return a stored value as Python has it, with everything in it; containers are new."""
    found = values.read(value)
    if type(found) is dict:
        return {name: readable(item, values) for name, item in cast("Members", found).items()}
    if type(found) is list:
        return [readable(item, values) for item in cast("list[object]", found)]
    return replace(found, id=readable(found.id, values)) if type(found) is StoredReference else found


def stored(value: object, before: object, values: StoredValues) -> object:
    """Return a value as a store holds it: the value before if it is the same, with its stored type.

    Raises:
        ResultError: no store holds such a value.
    """
    if type(value) is dict:
        return _members(cast("Members", value), before, values)
    if type(value) is list:
        return _items(cast("list[object]", value), before, values)
    known = readable(before, values)
    if value is known or (type(value) is type(known) and value == known and repr(value) == repr(known)):
        return before
    return _written(value, values)


def _document(made: object, before: Members, values: StoredValues) -> Members:
    if type(made) is not dict:
        raise ResultError(f"returns {type(made).__name__} instead of a document")
    return cast("Members", _members(cast("Members", made), before, values))


def _members(new: Members, before: object, values: StoredValues) -> object:
    inner = cast("Members", before) if type(before) is dict else {}
    if not all(type(name) is str and name.encode() is not None for name in new):
        raise ResultError("returns an object with a name that is not a text")
    made = {name: stored(item, inner.get(name, ABSENT), values) for name, item in new.items()}
    is_same = type(before) is dict and made.keys() == inner.keys()
    return before if is_same and all(made[name] is inner[name] for name in made) else made


def _items(new: list[object], before: object, values: StoredValues) -> object:
    inner = cast("list[object]", before) if type(before) is list else []
    missing = [ABSENT] * (len(new) - len(inner))
    made = [stored(item, old, values) for item, old in zip(new, [*inner, *missing], strict=False)]
    is_same = type(before) is list and len(made) == len(inner)
    return before if is_same and all(map(_is, made, inner)) else made


def _is(one: object, other: object) -> bool:
    return one is other


def _written(value: object, values: StoredValues) -> object:
    if type(value) not in WRITABLE:
        raise ResultError(f"returns a value of the type {type(value).__name__}, which no store holds")
    if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
        raise ResultError("returns an integer that does not fit 64 bits")
    if type(value) is str:
        # Refuses halves of pairs, which are no characters.
        value.encode()
    if type(value) is datetime:
        if value.utcoffset() is None:
            raise ResultError("returns an instant without an offset")
        # As stores keep it.
        value = value.replace(microsecond=value.microsecond // 1000 * 1000)
    return values.write(value)
