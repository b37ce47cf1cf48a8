"""How values travel: JSON without a detour, UUIDs as text, and statements that are planned anew each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import orjson
import psycopg
from psycopg import pq
from psycopg.adapt import Dumper, Loader
from pydantic import TypeAdapter
from typing_extensions import override

from twinstore import jsontext
from twinstore.canonical import CanonicalJsonSerializer, CanonicalModel, schema_serializer
from twinstore.jsontext import LARGE_TEXT, loads
from twinstore.shapes import has_floats

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext, Buffer

__all__ = ["Json", "JsonLoader", "Row", "Unprepared", "json_by", "json_of", "register_loaders"]

Row = tuple[Any, ...]
"""The values of a row, in the order of the columns."""
M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")

JSONB_OID: Final = psycopg.adapters.types["jsonb"].oid
UUID_OID: Final = psycopg.adapters.types["uuid"].oid
JSONB_VERSION: Final = b"\x01"


class Unprepared(bytes):
    """A statement that the server plans anew for the values of each execution.

    A plan made for any values does not know how many rows a range or a limit stands for, and then prefers to
    sort a whole tenant. Lookups by key stay prepared: for them one plan is right for all values.
    """

    __slots__ = ()


class Json(bytes):
    """JSON text that becomes a JSONB value."""

    __slots__ = ()


class JsonDumper(Dumper):
    """Sends JSON text as JSONB, as it is."""

    oid = JSONB_OID

    @override
    def dump(self, obj: Json) -> Buffer:
        return obj


class JsonBinaryDumper(JsonDumper):
    """The same in the binary form of JSONB: a version byte before the text."""

    format = pq.Format.BINARY

    @override
    def dump(self, obj: Json) -> Buffer:
        return JSONB_VERSION + obj


class JsonLoader(Loader):
    """Reads JSONB; what no model could hold becomes :data:`UNREADABLE`, which every model refuses."""

    format = pq.Format.BINARY

    @override
    def load(self, data: Buffer) -> object:
        try:
            # The first byte is the version of the form.
            if len(data) > LARGE_TEXT:
                return loads(bytes(memoryview(data)[1:]))
            return orjson.loads(memoryview(data)[1:])
        except orjson.JSONDecodeError:
            return UNREADABLE


class UuidLoader(Loader):
    """Reads a UUID as its lower-case text, which is what models and keys hold."""

    format = pq.Format.BINARY

    @override
    def load(self, data: Buffer) -> str:
        return str(UUID(bytes=bytes(data)))


class Unreadable:
    """A stored value that Python cannot represent."""

    def __repr__(self) -> str:
        """Return the same text for every such value, because it is written into files of quarantined rows."""
        return "(unreadable)"


UNREADABLE: Final = Unreadable()

# Json is a class of this driver, so the registration can disturb nobody else.
psycopg.adapters.register_dumper(Json, JsonDumper)
psycopg.adapters.register_dumper(Json, JsonBinaryDumper)


def register_loaders(context: AdaptContext) -> None:
    """Make a connection or cursor read JSONB with orjson, and UUIDs as text."""
    context.adapters.register_loader(JSONB_OID, JsonLoader)
    context.adapters.register_loader(UUID_OID, UuidLoader)


def json_of(model: type[M]) -> Callable[[M], Json]:
    """Return a function that encodes a nested model, or a whole one, as canonical JSON."""
    if has_floats(model):
        return lambda part: Json(CanonicalJsonSerializer.serialize(part))  # a whole float is an integer there
    to_json = schema_serializer(model).to_json  # bound once: every row of a copy pays for the look-up
    return lambda part: Json(to_json(part, by_alias=True, exclude_none=True))


def json_by(adapter: TypeAdapter[T], empty: bytes, *, floats: bool) -> Callable[[T], Json]:
    """Return a function that encodes a list or map of nested values; ``empty`` is its text without any."""
    nothing = Json(empty)
    if floats:  # as of one model
        to_python = adapter.serializer.to_python
        return lambda parts: (
            Json(jsontext.dumps(to_python(parts, by_alias=True, exclude_none=True))) if parts else nothing
        )
    to_json = adapter.serializer.to_json
    return lambda parts: Json(to_json(parts, by_alias=True, exclude_none=True)) if parts else nothing
