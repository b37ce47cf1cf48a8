"""Records what the PostgreSQL driver sends, where psycopg or its own connections take it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from tests.support.recording import call_of, statement_name
from twinstore_postgres.connection.pipeline import PipelineCodec
from twinstore_postgres.mapping.codec import Unprepared
from twinstore_postgres.mapping.table import listed, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.pq.abc import PGconn

    from tests.support.recording import Recorded
    from twinstore.catalog.entity import Module
    from twinstore_postgres.connection.pipeline import Message

PACKAGE: Final = "twinstore_postgres"
TABLE: Final = re.compile(r'"?(?P<module>\w+)"?\."?(?P<table>\w+)"?')
STAGE: Final = "twinstore_stage_"
# Modules and stages of which the kit is full, and which no service has.
OTHERS: Final = ("kit",)
NUMBER: Final = r"-?\d+"
LITERAL: Final = rf"(?:'(?:[^']|'')*'|{NUMBER}|%s)"
ROW: Final = re.compile(rf"\({LITERAL}(?:, {LITERAL})*\)")
REPEATED: Final = re.compile(r"(\(%s(?:, %s)*\))(?:, \1)+")
# Drawn again for each range: temporary names must be unique.
DRAWN: Final = re.compile(r"' [0-9a-f]{32}'")
OWNER: Final = re.compile(r"= '(?:[^']|'')*'::text")
BREAKS: Final = re.compile(
    r" (?=(?:FROM|WHERE|ORDER BY|GROUP BY|LIMIT|OFFSET|VALUES|SET|ON CONFLICT|RETURNING|UNION ALL|"
    r"INSERT INTO|LEFT JOIN|WITH|inserted AS|replaced AS|leased AS|clock AS)\b)"
)


@contextmanager
def recording(recorded: Recorded) -> Iterator[None]:
    """Record until the block ends."""
    with psycopg_patched("execute", recorded), psycopg_patched("copy", recorded), wire_patched(recorded):
        yield


@contextmanager
def wire_patched(recorded: Recorded) -> Iterator[None]:
    original = PipelineCodec.written

    def written(wire: PipelineCodec, pgconn: PGconn, statement: bytes, *more: Any) -> list[Message]:  # noqa: ANN401  # as the original takes them
        note(recorded, None, statement, prepared=True)
        return original(wire, pgconn, statement, *more)

    # To intercept statements on their way to the server; an assignment would have to repeat the signature.
    setattr(PipelineCodec, "written", written)  # noqa: B010
    try:
        yield
    finally:
        setattr(PipelineCodec, "written", original)  # noqa: B010


@contextmanager
def psycopg_patched(method: str, recorded: Recorded) -> Iterator[None]:
    original = getattr(psycopg.Cursor, method)

    def sent(cursor: psycopg.Cursor[Any], query: Any, *args: Any, **options: Any) -> object:  # noqa: ANN401  # as psycopg takes them
        note(recorded, cursor, query, prepared=method == "execute" and options.get("prepare") is not False)
        return original(cursor, query, *args, **options)

    setattr(psycopg.Cursor, method, sent)
    try:
        yield
    finally:
        setattr(psycopg.Cursor, method, original)


def note(recorded: Recorded, cursor: psycopg.Cursor[Any] | None, query: object, *, prepared: bool) -> None:
    """Record a statement if the driver sends it."""
    call = call_of(PACKAGE)
    if call is None:
        return
    text = shown(raw_text(cursor, query))
    if any(f'"{name}".' in text for name in OTHERS):
        return
    place = place_of(text, recorded)
    if place is None and STAGE in text:
        return
    if place is None:
        recorded.session(text.split()[0], text)
        return
    module, entity = place
    name = statement_name(call, entity, verb_of(text))
    recorded.add(
        module, f"{name} [prepared]" if prepared and not isinstance(query, Unprepared) else name, text
    )


def raw_text(cursor: psycopg.Cursor[Any] | None, query: object) -> str:
    if isinstance(query, bytes):
        return query.decode()
    return query.as_string(cursor) if isinstance(query, sql.Composable) else str(query)


def shown(text: str) -> str:
    """Return a statement in lines of one clause each, without values that are drawn or written to copies."""
    text = DRAWN.sub("' <drawn>'", " ".join(text.split()))
    if text.startswith("COPY ("):
        text = OWNER.sub("= %s::text", text)
        text = ROW.sub(lambda row: re.sub(LITERAL, "%s", row[0]), text)
        text = REPEATED.sub(r"\1", text)
    return BREAKS.sub("\n ", text)


def place_of(text: str, recorded: Recorded) -> tuple[Module, str] | None:
    """Return the module and the entity whose table a statement names first; ``None`` where it names none."""
    for found in TABLE.finditer(text):
        staged = found["table"].removeprefix(STAGE)
        for module in recorded.modules:
            names = {entity.name for entity in module.entities}
            if staged in names and (found["module"] == module.name or staged != found["table"]):
                return module, staged
    return None


def verb_of(text: str) -> str:
    """Return what a statement does; nothing for those that only read."""
    words = ("DELETE FROM", "INSERT INTO", "UPDATE", "FOR UPDATE", "CREATE", "FROM STDIN")
    found = [word for word in words if re.search(rf"\b{word}\b", text)]
    if "INSERT INTO" in found and ("DO UPDATE" in text or "replaced AS" in text):
        return "put"
    if found[:2] == ["UPDATE", "FOR UPDATE"] and not re.search(r"(?<!FOR )\bUPDATE\b", text):
        return "lock"
    return {"FROM STDIN": "fill", "INSERT INTO": "insert", "DELETE FROM": "delete"}.get(
        found[0] if found else "", found[0].lower() if found else ""
    )


def columns_of(modules: tuple[Module, ...]) -> dict[str, str]:
    """Return the lists of columns that statements repeat, by entity."""
    return {
        entity.name: listed(table_of(entity).columns).as_string()
        for module in modules
        for entity in module.entities
    }
