"""Tables in hash partitions: which forms serve like a plain table, and the script that creates them.

The parent has what the migrations give a plain table. A partition has no grant, no policy, and forced
row-level security, so that rows are reached through the parent only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from twinstore.plugins.module_spec import ModuleSpec

LINES: Final = ("partition ", "partitioned ")
FORMS: Final = b"""
SELECT format('partitioned %%s: %%s', p.relname, pg_get_partkeydef(p.oid))
  FROM pg_class p WHERE p.relnamespace = to_regnamespace(%s) AND p.relkind = 'p' AND NOT p.relispartition
"""
# One line for each partition, with what it holds, and one for each difference from a part of a plain table.
PARTITIONS: Final = b"""
SELECT format('partition %%s.%%s: %%s', p.relname, c.relname, found.what)
  FROM pg_class p JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid
 CROSS JOIN LATERAL (SELECT format('%%s.%%I', c.relnamespace::regnamespace, c.relname)) AS t (name)
 CROSS JOIN LATERAL (
    SELECT concat_ws(' ', 'modulus', CASE WHEN NOT i.inhdetachpending THEN
                     substring(pg_get_expr(c.relpartbound, c.oid) FROM 'modulus ([0-9]+)') END) AS what
     UNION ALL
    SELECT 'is partitioned itself.' WHERE c.relkind = 'p'
     UNION ALL
    SELECT format('is in another schema: %%s.', t.name) WHERE c.relnamespace <> p.relnamespace
     UNION ALL
    SELECT format('is unlogged, so a crash empties it. To fix: ALTER TABLE %%s SET LOGGED;', t.name)
     WHERE c.relpersistence = 'u'
     UNION ALL
    SELECT format('has no forced row-level security, which its parent has. To fix: ALTER TABLE %%s '
                  'ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;', t.name)
     WHERE p.relrowsecurity AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
     UNION ALL
    SELECT format('belongs to another role than its parent: %%I. To fix: ALTER TABLE %%s OWNER TO %%I;',
                  pg_get_userbyid(c.relowner), t.name, pg_get_userbyid(p.relowner))
     WHERE c.relowner <> p.relowner
     UNION ALL
    SELECT format('grants %%s to %%s, past the policies of its parent. To fix: REVOKE ALL ON %%s FROM %%2$s;',
                  string_agg(DISTINCT a.privilege_type, ', '), g.name, t.name)
      FROM (SELECT c.relacl AS rights UNION ALL SELECT attacl FROM pg_attribute WHERE attrelid = c.oid) AS r
     CROSS JOIN LATERAL aclexplode(r.rights) AS a
     CROSS JOIN LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC'
                                ELSE quote_ident(pg_get_userbyid(a.grantee)) END) AS g (name)
     WHERE a.grantee NOT IN (c.relowner, p.relowner)
     GROUP BY g.name
     UNION ALL
    SELECT format('refuses null in %%I. To fix: ALTER TABLE %%s ALTER COLUMN %%1$I DROP NOT NULL;',
                  o.attname, t.name)
      FROM pg_attribute o JOIN pg_attribute w ON w.attrelid = p.oid AND w.attname = o.attname
     WHERE o.attrelid = c.oid AND o.attnum > 0 AND o.attnotnull AND NOT w.attnotnull
 ) AS found
 WHERE p.relnamespace = to_regnamespace(%s) AND p.relkind = 'p'
"""
LINE: Final = re.compile(r"partition(?:ed)? (?P<table>[^.:]+)(?:\.(?P<name>[^:]+))?: (?P<rest>.*)")
MODULUS: Final = re.compile(r"modulus ?(\d*)")
HASH: Final = re.compile(r"HASH \((?P<columns>.*)\)")
UNIQUE: Final = re.compile(
    r"index (?P<name>\w+): CREATE UNIQUE INDEX \w+ ON \w+\.(?P<table>\w+) USING \w+ \((?P<columns>.*?)\).*"
)
PRIMARY_KEY: Final = re.compile(r"constraint (?P<table>[^.]+)\..+?: PRIMARY KEY \((?P<columns>.*)\)")
FEWEST, MOST = 2, 1024


def partition_differences(real: Iterable[str], wanted: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each thing in which partitions do not serve like the wanted plain table.

    Args:
        real: the lines of the existing schema.
        wanted: the lines of the one that should be.
    """
    tables = {match["table"] for match in map(PRIMARY_KEY.fullmatch, wanted) if match}
    moduli: dict[str, list[int]] = {}
    for match in filter(None, map(LINE.fullmatch, sorted(real))):  # partitions come before parents
        table, name, rest = match.group("table", "name", "rest")
        if table not in tables:
            continue
        if not name:
            yield from _flaws_of_form(table, rest, moduli.get(table, []), wanted)
        elif modulus := MODULUS.fullmatch(rest):
            moduli.setdefault(table, []).extend(map(int, filter(None, modulus.groups())))
        else:
            yield f"The partition {name} of {table} {rest}"


def partitions_of_others(real: Iterable[str], tables: Collection[str]) -> set[str]:
    """Return the names of the partitions of tables other than these."""
    lines = filter(None, map(LINE.fullmatch, real))
    return {match["name"] for match in lines if match["name"] and match["table"] not in tables}


def impossible_indexes(real: Iterable[str], wanted: Collection[str]) -> set[str]:
    """Return the names of wanted indexes that tables cannot have because of their partition key."""
    lines = (match for match in map(LINE.fullmatch, real) if match and not match["name"])
    return {
        name
        for match in lines
        if (form := HASH.fullmatch(match["rest"]))
        for name in _lacking(match["table"], form["columns"], wanted)
    }


def _flaws_of_form(table: str, rest: str, moduli: Collection[int], wanted: Collection[str]) -> Iterator[str]:
    form = HASH.fullmatch(rest)
    if form is None:
        yield f"The table {table} is partitioned by {rest}; only HASH by its key serves like a plain table."
        return
    yield from _refusals(table, form["columns"], wanted)
    most = max(moduli, default=1)
    if (found := sum(most // modulus for modulus in moduli)) < most:
        yield (
            f"The table {table} has partitions for {found} of {most} remainders; rows of the others are "
            "refused."
        )


def _refusals(table: str, key: str, wanted: Iterable[str]) -> Iterator[str]:
    for name in _lacking(table, key, wanted):
        yield (
            f"The table {table} cannot be partitioned by HASH ({key}): PostgreSQL allows no unique index "
            f"without the partition key, which {name} lacks. Keep it a plain table."
        )


def _lacking(table: str, key: str, wanted: Iterable[str]) -> Iterator[str]:
    """Yield the names of the unique indexes without the partition key."""
    for match in filter(None, map(UNIQUE.fullmatch, wanted)):
        columns = {column.split(" ")[0] for column in match["columns"].split(", ")}
        if match["table"] == table and not columns.issuperset(key.split(", ")):
            yield match["name"]


# What follows the columns of CREATE TABLE. An administrator may run the script again.
CREATE: Final = """) PARTITION BY HASH ({key});
DO $partitions$
BEGIN
    FOR remainder IN 0..{last} LOOP
        EXECUTE format('CREATE TABLE IF NOT EXISTS {schema}.{table}_p%s PARTITION OF {schema}.{table} '
                       'FOR VALUES WITH (MODULUS {count}, REMAINDER %1$s)', remainder);
        EXECUTE format('ALTER TABLE {schema}.{table}_p%s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
                       remainder);
    END LOOP;
END
$partitions$;"""


def partitioned(
    text: str, module: ModuleSpec[object], wanted: Collection[str], counts: Mapping[str, int]
) -> str:
    """Return the script of a module with some tables in hash partitions.

    Args:
        text: the script that creates plain tables.
        module: the module.
        wanted: the lines of the schema that it creates.
        counts: the number of partitions by table.

    Raises:
        ConfigurationError: no such table, another number than 2 to 1024, or a unique index without the key.
    """
    tables = {entity.name for entity in module.catalog.entities}
    keys = {match["table"]: match["columns"] for match in map(PRIMARY_KEY.fullmatch, wanted) if match}
    for table, count in counts.items():
        if not FEWEST <= count <= MOST:
            raise _refused(f"{table}={count}: a table has {FEWEST} to {MOST} partitions.", module)
        if table not in tables & keys.keys():
            names = ", ".join(sorted(tables & keys.keys()))
            raise _refused(
                f"{table}: {module.name} has no such table with a primary key, only {names}.", module
            )
        for refusal in _refusals(table, keys[table], wanted):
            raise _refused(f"{table}={count}: {refusal}", module)
        text = _divided(text, module, table, keys[table], count)
    return text


def _divided(text: str, module: ModuleSpec[object], table: str, key: str, count: int) -> str:
    form = CREATE.format(key=key, last=count - 1, schema=module.name, table=table, count=count)
    created = rf"^(CREATE TABLE IF NOT EXISTS {module.name}\.{table} \(.*?^)\);"
    text, found = re.subn(
        created, lambda match: match[1] + form, text, count=1, flags=re.MULTILINE | re.DOTALL
    )
    if not found:
        raise _refused(
            f"{table}: no migration of {module.name} creates it by CREATE TABLE IF NOT EXISTS.", module
        )
    return text


def _refused(problem: str, module: ModuleSpec[object]) -> ConfigurationError:
    return ConfigurationError(f"--partitions {problem}", module=module.name, driver=DRIVER)
