"""A :class:`~twinstore.query.Query` as the text of SQL, for any server that has ``?`` and expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, assert_never

from twinstore.query import After, AtLeast, AtMost, Before, Equals, IsNull, IsPresent, OneOf
from twinstore.query import Condition as QueryCondition

if TYPE_CHECKING:
    from twinstore.paging import SortKey, SortValue
    from twinstore.query import Query

__all__ = ["SqlText"]

OPERATORS: Final = {After: ">", Before: "<", AtMost: "<=", AtLeast: ">="}
# Not TRUE and FALSE, which some servers do not have.
EVERYTHING: Final = "1 = 1"
NOTHING: Final = "1 = 0"


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
        text = between.join(part.text for part in parts) or EVERYTHING
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
                return cls(NOTHING)
            case OneOf():
                marks = ", ".join("?" for _ in item.values)
                return cls(f"{expression} IN ({marks})", tuple(map(value, item.values)))
            case IsNull():
                return cls(f"{expression} IS NULL")
            case IsPresent():
                return cls(f"{expression} IS NOT NULL")
            case After() | Before() | AtMost() | AtLeast():
                return cls(f"{expression} {OPERATORS[type(item)]} ?", (value(item.value),))
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
        ways: list[Self] = []
        for key, bound in zip(order, after, strict=True):
            name = column(key.field)
            beyond = cls._beyond(name, bound, value, descending=key.descending)
            ways.append(cls.joined([*equal, beyond], " AND "))
            equal.append(cls(f"{name} IS NULL") if bound is None else cls(f"{name} = ?", (value(bound),)))
        either = cls.joined(ways, " OR ")
        return cls(f"({either.text})", either.values)

    @classmethod
    def _beyond(
        cls, name: str, bound: SortValue, value: Callable[[object], object], *, descending: bool
    ) -> Self:
        """Return what lies beyond one value; absent values come first, so last when descending."""
        if bound is None:
            return cls(NOTHING) if descending else cls(f"{name} IS NOT NULL")
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
