"""The part of a driver that every store of documents would write in the same words.

A driver writes one class, its :class:`DocumentUnit`: operations on stored rows in one unit of work. From it
follow the operations of :class:`~twinstore.access.protocol.Access`, sessions, transactions, and the bulk
port:

    repository -> GuardedAccess -> DocumentAccess -> DocumentUnit of the driver
    tool       -> DocumentBulk  -> DocumentView, DocumentWriter -> DocumentUnit of the driver

A driver overrides what its store can do in one round trip. Stores with typed columns write their own access.
"""

from __future__ import annotations

from twinstore.documents.access import DocumentAccess, DocumentUnit, RowLocks, ScanningUnit, evaluate
from twinstore.documents.backend import DocumentBackend
from twinstore.documents.bulk import DocumentBulk, DocumentView, DocumentWriter
from twinstore.documents.one_table import AppliedScript, OneTable, Script, ScriptInitializer, SqlText
from twinstore.documents.rows import DocumentRow, decode, encode, row_of_json, sort_key

__all__ = [
    "AppliedScript",
    "DocumentAccess",
    "DocumentBackend",
    "DocumentBulk",
    "DocumentRow",
    "DocumentUnit",
    "DocumentView",
    "DocumentWriter",
    "OneTable",
    "RowLocks",
    "ScanningUnit",
    "Script",
    "ScriptInitializer",
    "SqlText",
    "decode",
    "encode",
    "evaluate",
    "row_of_json",
    "sort_key",
]
