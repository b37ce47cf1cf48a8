"""Documents and clients as this driver types them, and how every client of it reads and writes."""

from __future__ import annotations

from datetime import UTC
from typing import Any, Final, TypeAlias

from bson import Code
from bson.codec_options import CodecOptions, DatetimeConversion, TypeDecoder, TypeRegistry
from pymongo import MongoClient
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

Document: TypeAlias = dict[str, Any]
Client: TypeAlias = "MongoClient[Document]"
# What a majority has is neither lost nor undone by a failover, whether it is written or read. Written out,
# because the concerns of a client or of a deployment may be weaker.
MAJORITY_WRITE: Final = WriteConcern("majority")
MAJORITY_READ: Final = ReadConcern("majority")
# All reads of a transaction are of one state.
SNAPSHOT_READ: Final = ReadConcern("snapshot")
# Dates beyond year 9999 come as numbers of milliseconds instead of failing the whole batch. Without a type
# registry: with one, pymongo fails with an AttributeError where a primary that steps down answers that it has
# changed a document and no majority has it yet. The codec converts what it reads.
DECODING: Final = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO, document_class=dict)
# The same for what is decoded from bytes.
EXACT: Final[CodecOptions[Document]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
# The same where a wrong byte of a text becomes a surrogate, which a tool may replace.
BROKEN_TEXT: Final = EXACT.with_options(unicode_decode_error_handler="surrogateescape")
AWARE: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True, tzinfo=UTC)


def code_object(value: Code) -> Document:
    """Return JavaScript code as extended JSON writes it: the client's own class is a text."""
    scope = {} if value.scope is None else {"$scope": dict(value.scope)}
    return {"$code": str(value), **scope}


class CodeAsObject(TypeDecoder):
    """Reads JavaScript code as an object, where documents are decoded from bytes."""

    # pymongo declares an abstract property and documents a plain attribute.
    bson_type = Code  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def transform_bson(self, value: Any) -> Document:  # noqa: ANN401  # the client's signature
        """Return the code as extended JSON writes it."""
        return code_object(value)


FOREIGN_TYPES: Final = TypeRegistry([CodeAsObject()])
