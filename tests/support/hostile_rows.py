"""Broken rows that a PostgreSQL stores: good ones with one to three columns changed.

Every value is given as the text of its column and is valid for the type. Constraints and indexes that would
refuse it are dropped before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from psycopg import sql

from tests.support.hostile_documents import TEXTS, good_row
from twinstore.bulk.port import Record
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore_postgres.mapping.columns import Column

Line = tuple[str | None, ...]
SESSION: Final = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'"
PLAIN_TEXTS: Final = tuple(text for text in (item.decode() for item in TEXTS) if "\x00" not in text)
INSTANTS: Final = (
    *(
        "infinity",
        "-infinity",
        "294276-12-31 23:59:59.999+00",
        "4713-01-01 00:00:00+00 BC",
        "0001-01-01 00:00:00+00",
    ),
    *(
        "9999-12-31 23:59:59.999+00",
        "10000-01-01 00:00:00+00",
        "0001-12-31 23:59:59.999+00 BC",
        "1970-01-01 00:00:00+00",
    ),
    *("2025-10-26 14:05:00+00", "2025-10-26 14:05:00.12+00", "2000-02-29 00:00:00+00"),
)
ARRAYS: Final = (
    "{}",
    "{NULL}",
    "{a,a}",
    "{{a,b},{c,d}}",
    "[2:3]={a,b}",
    '{" x ",""}',
    "{b,a,NULL}",
    '{"\\\\","\\""}',
    "{null,Null}",
)
# The members of lists that a type admits; more than these overflow it.
LISTS_OF_NUMBERS: Final = (
    "{}",
    "{NULL}",
    "{1,1}",
    "{{1,2},{3,4}}",
    "[2:3]={1,2}",
    "[0:1]={-1,0}",
    "{2,1,NULL}",
    "{2147483647,-2147483648}",
)
NUMBERS: Final = (
    "0",
    "1",
    "-1",
    "5",
    "1.0",
    "1.50",
    "-0.0",
    "1e300",
    "1e1000",
    "1e-400",
    "9223372036854775808",
    "1e15",
    "0.1",
)
# An index on a column with such texts could not hold them, and a reader of JSON stops at some depth.
LARGEST_CHANGED: Final = 20_000
DEPTHS: Final = (5, 100, 240, 260, 1100, 3000)


def drop_rules(connection: psycopg.Connection[Any], entity: Entity) -> None:
    """Drop what refuses odd values: keys, checks, foreign keys, not-null marks and indexes."""
    found = connection.execute(
        "SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype <> 'n'",
        [qualified(entity)],
    )
    name = sql.Identifier(entity.module, entity.name)
    for (constraint,) in found.fetchall():
        connection.execute(
            sql.SQL("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {} CASCADE").format(
                name, sql.Identifier(constraint)
            )
        )
    indexes = connection.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass", [qualified(entity)]
    )
    for (index,) in indexes.fetchall():
        connection.execute(sql.SQL("DROP INDEX {}").format(sql.SQL(index)))
    for column in table_of(entity).columns:
        connection.execute(
            sql.SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL").format(name, sql.Identifier(column.name))
        )
        if column.sql_type == "timestamptz":
            connection.execute(
                sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE timestamptz").format(
                    name, sql.Identifier(column.name)
                )
            )


def qualified(entity: Entity) -> str:
    """Return the name of the table."""
    return f"{entity.module}.{entity.name}"


def good_lines(connection: psycopg.Connection[Any], port: BulkPort, entity: Entity, count: int) -> list[Line]:
    """Write good rows, each under a unique key, and return the text of their columns."""
    rng = Random(entity.name)  # not for secrets
    records = []
    for number in range(count):
        row = good_row(entity, rng, number)
        key = entity.key_of(row.model, row.storage)
        records.append(Record(key, entity.owner_of(row.model, row.storage), row.model, row.storage))
    with port.writer(entity) as writer:
        writer.write(sorted(records, key=lambda record: record.key or ()))
        assert not writer.flush().rejected
        writer.commit()
    names = [sql.SQL("{}::text").format(sql.Identifier(column.name)) for column in table_of(entity).columns]
    statement = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(names), table_of(entity).name)
    return connection.execute(statement).fetchall()


def hostile_rows(entity: Entity, good: Sequence[Line], seed: int) -> Iterator[Line]:
    """Yield rows of one entity as the texts of their columns, the same ones for the same seed."""
    rng = Random(f"{seed} {entity.name}")  # not for secrets
    columns = table_of(entity).columns
    for line in good:
        row = list(line)
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3))):
            place = rng.randrange(len(columns))
            row[place] = changed(rng, columns[place], row[place])
        yield tuple(row)


def insert_hostile_rows(connection: psycopg.Connection[Any], entity: Entity, rows: Iterator[Line]) -> None:
    """Put rows in place of those that are there."""
    connection.execute(sql.SQL("TRUNCATE {}").format(table_of(entity).name))
    names = [column.name for column in table_of(entity).columns]
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        table_of(entity).name, sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def stored_lines(connection: psycopg.Connection[Any], entity: Entity) -> list[bytes]:
    """Return the text output of every row, as the server writes it."""
    connection.execute(SESSION)
    names = [column.name for column in table_of(entity).columns]
    statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), table_of(entity).name
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        return [bytes(line) for line in copy]


def changed(rng: Random, column: Column, old: str | None) -> str | None:
    """Return another text for a column."""
    if rng.random() < 0.1:  # a share
        return None
    return MAKERS[column.sql_type](rng, old)


def text(rng: Random, old: str | None) -> str:
    """Return some text, often one that looks like the old one."""
    if old and rng.random() < 0.3:  # a share
        return rng.choice((f" {old}", f"{old} ", old.upper(), f"{old}\t", old.swapcase()))
    if rng.random() < 0.03:  # a share
        return "z" * rng.randrange(3000, 100_000)
    return rng.choice(PLAIN_TEXTS)


def json_text(rng: Random, old: str | None) -> str:
    """Return a JSON text: a whole one, or the old one changed in one place."""
    if old is None or len(old) > LARGEST_CHANGED or rng.random() < 0.2:  # a share
        return scalar(rng)
    try:
        # Numbers as they are written: the former value may be larger than any float.
        return dumped(changed_json(rng, json.loads(old, parse_float=Spelled, parse_int=Spelled)), rng)
    except RecursionError:  # it was nested by the change before
        return old


def scalar(rng: Random) -> str:
    """Return a unique JSON value."""
    depth = rng.choice(DEPTHS)
    nested = (f"{'[' * depth}1{']' * depth}", '{"a":' * depth + "1" + "}" * depth)
    return rng.choice(("null", "true", "{}", "[]", '""', rng.choice(NUMBERS), *nested, '{"a": null}'))


class Spelled(str):
    """A piece of JSON that is written as it is."""

    __slots__ = ()


def changed_json(rng: Random, value: Any) -> Any:  # noqa: ANN401  # free JSON
    """Return a JSON value changed in one place."""
    if isinstance(value, dict) and value and rng.random() < 0.8:  # a share
        name = rng.choice(list(value))
        return rng.choice(JSON_CHANGES)(rng, dict(value), name)
    if isinstance(value, list) and value and rng.random() < 0.8:  # a share
        place = rng.randrange(len(value))
        return [*value[:place], changed_json(rng, value[place]), *value[place + 1 :]]
    if isinstance(value, str) and not isinstance(value, Spelled) and rng.random() < 0.5:  # a share
        return text(rng, value)
    # Nested already by a change before.
    return Spelled(scalar(rng))


def below(rng: Random, value: dict[str, Any], name: str) -> dict[str, Any]:
    return {**value, name: changed_json(rng, value[name])}


def renamed(rng: Random, value: dict[str, Any], name: str) -> dict[str, Any]:
    new = rng.choice((name.upper(), f"{name} ", f"_{name}", rng.choice(PLAIN_TEXTS)))
    return {new if other == name else other: item for other, item in value.items()}


def twinned(rng: Random, value: dict[str, Any], name: str) -> dict[str, Any]:
    new = rng.choice((name.upper(), name.swapcase(), f" {name}"))
    return {**value, new: rng.choice((value[name], "other"))}


def added(rng: Random, value: dict[str, Any], name: str) -> dict[str, Any]:
    del name
    return {**value, rng.choice(PLAIN_TEXTS): Spelled(scalar(rng))}


def removed(rng: Random, value: dict[str, Any], name: str) -> dict[str, Any]:
    del rng
    return {other: item for other, item in value.items() if other != name}


JSON_CHANGES: Final[tuple[Callable[[Random, dict[str, Any], str], dict[str, Any]], ...]] = (
    *(below, below, below, below),
    *(renamed, twinned, added, removed),
)


def dumped(value: Any, rng: Random) -> str:  # noqa: ANN401  # free JSON
    """Return the text of a JSON value, with the spelled pieces as they are."""
    if isinstance(value, Spelled):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{dumped(item, rng)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(dumped(item, rng) for item in value) + "]"
    return json.dumps(value)


MAKERS: Final[dict[str, Callable[[Random, str | None], str]]] = {
    "bool": lambda rng, _: rng.choice("tf"),
    "int2": lambda rng, _: str(rng.choice((0, 1, 5, 6, -1, 32767, -32768))),
    "int4": lambda rng, _: str(rng.choice((0, 1, -1, 2**31 - 1, -(2**31)))),
    "int8": lambda rng, _: str(rng.choice((0, 1, -1, 2**63 - 1, -(2**63)))),
    "int4[]": lambda rng, _: rng.choice(LISTS_OF_NUMBERS),
    "int8[]": lambda rng, _: rng.choice((*LISTS_OF_NUMBERS, "{9223372036854775807,-9223372036854775808}")),
    "jsonb": json_text,
    "text": text,
    "text[]": lambda rng, _: rng.choice(ARRAYS),
    "uuid": lambda rng, _: rng.choice((str(UUID(int=0)), str(UUID(int=rng.getrandbits(128))))),
    "timestamptz": lambda rng, _: (
        rng.choice(INSTANTS) if rng.random() < 0.7 else f"2025-10-26 14:05:00.{rng.randrange(10**6):06}+00"
    ),  # a share
}
