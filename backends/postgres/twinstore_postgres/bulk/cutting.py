"""Looking for the keys at which an entity is cut into ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.keys import LONGEST_TEXT
from twinstore_postgres.bulk.exporting import tenant_condition
from twinstore_postgres.bulk.finding import without_key
from twinstore_postgres.codec import Unprepared
from twinstore_postgres.errors import Subject

if TYPE_CHECKING:
    from twinstore.bulk import Key
    from twinstore_postgres.derive import Table
    from twinstore_postgres.transactions import Transaction

__all__ = ["Walk"]

SHORT: Final = "char_length({}) <= {}"
KEY_AT: Final = "SELECT {key} FROM {table} WHERE {where} ORDER BY {order} OFFSET %s LIMIT 1"


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk along the keys of a table, or of one tenant in it, that passes over rows without a key."""

    transaction: Transaction
    table: Table
    tenant: str | None
    nullable: bool

    def key_at(
        self, lower: Key | None, skip: int, *, beyond: bool = False, short: bool = False
    ) -> Key | None:
        """Return the key ``skip`` rows after the first at, or ``beyond``, a key; ``None`` past the end.

        With ``short`` only those count that can be a key of the entity.
        """
        owner, values = tenant_condition(self.table, self.tenant)
        conditions = [owner]
        if self.nullable:
            conditions.append(sql.SQL("NOT ({})").format(without_key(self.table)))
        if short:
            conditions += short_texts(self.table)
        if lower is not None:
            bound = sql.SQL(", ").join([sql.Placeholder()] * len(lower))
            operator = sql.SQL(">" if beyond else ">=")
            conditions.append(sql.SQL("({}) {} ({})").format(self.table.key_order, operator, bound))
        where = sql.SQL(" AND ").join(conditions)
        statement = self.table.statement(KEY_AT, where=where, order=self.table.key_order)
        step = (Unprepared(statement), [*values, *(lower or ()), skip])
        (found,) = self.transaction.run(step, subject=Subject(self.table.entity))
        return found.first


def short_texts(table: Table) -> list[sql.Composable]:
    """Return the conditions of keys whose texts are not too long."""
    columns = [table.column(field) for field in table.entity.key]
    texts = [column.term() for column in columns if column.sql_type == "text"]
    return [sql.SQL(SHORT).format(name, sql.Literal(LONGEST_TEXT)) for name in texts]
