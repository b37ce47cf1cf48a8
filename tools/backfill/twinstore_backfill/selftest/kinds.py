"""The kinds of corruptions, in the words of the report."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["OF_THE_SCHEMA", "Kind"]


class Kind(StrEnum):
    """What is done to a value, a row or the schema."""

    STEP = "value changed by the least step"
    NULL = "null for a value"
    MISSING = "value missing"
    NULL_FOR_MISSING = "null for a missing value"
    EMPTY_FOR_MISSING = "empty value for a missing one"
    BLANK = "blank added"
    CASE = "case changed"
    UNICODE = "Unicode form changed"
    FORM = "type changed"
    PART_OF_MILLISECOND = "part of a millisecond added"
    ORDER = "order in a list changed"
    KEY_ADDED = "key added"
    KEY_RENAMED = "key renamed to its Python name"
    KEY_DOUBLED = "key duplicated"
    KEY_CASE = "case of a key changed"
    ROW_MISSING = "row missing"
    ROW_UNDER_OTHER_KEY = "row doubled under another key"
    ROW_UNDER_OTHER_TENANT = "row doubled under another tenant"
    TENANT = "tenant swapped"
    INDEX = "index dropped"
    KEY = "key of the table dropped"
    POLICY = "policy dropped or switched off"


OF_THE_SCHEMA: Final = frozenset({Kind.INDEX, Kind.KEY, Kind.POLICY})
