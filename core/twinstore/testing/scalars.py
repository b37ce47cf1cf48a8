"""Hypothesis strategies of the values that models are made of, over their full range.

Text reaches beyond the Basic Multilingual Plane and holds characters whose order differs between UTF-16
and code points; instants reach the years 1 and 9999; counters reach the limits of 64 bits.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeVar

from hypothesis import strategies as st
from pydantic import JsonValue

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import INT64_MAX, INT64_MIN
from twinstore.models.typed_objects import binary_object, decimal_object, oid_object

if TYPE_CHECKING:
    from twinstore.models.json_text import JsonObject

__all__ = [
    "EARLIEST",
    "EDGE_TEXTS",
    "LATEST",
    "TYPED_OBJECTS",
    "built",
    "counts",
    "decimals",
    "digest_text",
    "digests",
    "filled_texts",
    "free_values",
    "ids",
    "instants",
    "names",
    "optional",
    "simple_identifiers",
    "string_sets",
    "tenant_ids",
    "text_maps",
    "texts",
]

M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")
Maybe = st.SearchStrategy[T | None]

# In code point order. UTF-16 puts U+10000 before U+E000; case and collation rules reorder the others.
EDGE_TEXTS: Final = (
    "0",
    "Z",
    "_",
    "a",
    "a b",
    "e\u0301",
    "z",
    "\u00df",
    "\u00e9",
    "\u0130",
    "\u0131",
    "\u202e",
    "\ud7ff",
    "\ue000",
    "\ufb01",
    "\uffff",
    "\U00010000",
    "\U0001f600",
    "\U0010ffff",
)
EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def texts(*, max_size: int = 40) -> st.SearchStrategy[str]:
    """Return text without U+0000 and lone surrogates."""
    characters = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
    return st.text(characters, max_size=max_size) | st.sampled_from(EDGE_TEXTS)


def filled_texts(*, max_size: int = 40) -> st.SearchStrategy[str]:
    """Return text that is not empty after trimming."""
    return texts(max_size=max_size).filter(str.strip)


def ids(*, max_size: int = 256) -> st.SearchStrategy[str]:
    """Return ids up to their full length."""
    characters = st.characters(exclude_categories=["Cs", "Cc"])
    drawn = st.text(characters, min_size=1, max_size=max_size) | st.sampled_from(EDGE_TEXTS)
    full = st.sampled_from(EDGE_TEXTS).map(lambda text: text[0] * max_size)
    return (drawn | full).filter(str.strip)


def tenant_ids() -> st.SearchStrategy[str]:
    """Return tenant ids up to their full length; never the reserved one."""
    return ids(max_size=128).filter(lambda text: ":" not in text and text.strip() != "system")


def names() -> st.SearchStrategy[str]:
    """Return names up to their full length."""
    full = st.sampled_from(EDGE_TEXTS).map(lambda text: text[0] * 200)
    return filled_texts(max_size=200) | full


def simple_identifiers() -> st.SearchStrategy[str]:
    """Return simple identifiers, upper case included."""
    return st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", fullmatch=True)


def counts(maximum: int = INT64_MAX) -> st.SearchStrategy[int]:
    """Return numbers from 0 to a maximum, the limits of 32 and 64 bits among them."""
    edges = [edge for edge in (0, 1, 2**31 - 1, 2**31, 2**53 + 1, maximum) if edge <= maximum]
    return st.sampled_from(edges) | st.integers(0, maximum)


def decimals() -> st.SearchStrategy[Decimal]:
    """Return decimals as models take them: numbers of every scale, some with a positive exponent."""
    most = 10**34 - 1
    digits = st.integers(-most, most) | st.sampled_from((0, 1, -1, 10, most))
    places = st.integers(-40, 0) | st.sampled_from((0, -1, -6176))
    large = st.tuples(st.integers(1, 99), st.integers(1, 32))
    return (st.tuples(digits, places) | large).map(lambda item: Decimal(f"{item[0]}E{item[1]}"))


def instants(earliest: datetime = EARLIEST, latest: datetime = LATEST) -> st.SearchStrategy[datetime]:
    """Return UTC instants between two bounds, the bounds among them; some with microseconds to truncate."""
    bounds = (earliest.replace(tzinfo=None), latest.replace(tzinfo=None))
    drawn = st.datetimes(*bounds, timezones=st.just(UTC))
    return st.sampled_from([earliest, latest]) | drawn.filter(lambda value: earliest <= value <= latest)


def digest_text(number: int) -> str:
    """Return a digest text that differs for each number."""
    return f"sha256:{number:064x}"


def digests() -> st.SearchStrategy[str]:
    """Return digest texts."""
    return st.integers(0, 2**256 - 1).map(digest_text)


def string_sets() -> st.SearchStrategy[tuple[str, ...]]:
    """Return string sets as a caller may give them: unsorted, with blanks and duplicates."""
    return st.lists(texts(), max_size=4).map(tuple)


def text_maps() -> st.SearchStrategy[dict[str, str]]:
    """Return maps of text."""
    return st.dictionaries(texts(), texts(), max_size=4)


TYPED_OBJECTS: Final[tuple[JsonObject, ...]] = (
    oid_object("0" * 24),
    oid_object("65a1f0c2b7e4d90012345678"),
    {"$oid": "65A1F0C2B7E4D90012345678"},
    decimal_object(Decimal("1.50")),
    decimal_object(Decimal("-9.999999999999999999999999999999999E+6144")),
    decimal_object(Decimal("0E-6176")),
    {"$numberDecimal": "1e3"},
    {"$numberDecimal": "NaN"},
    binary_object(b""),
    binary_object(b"\0\xff\n"),
    binary_object(bytes(16), 4),
    binary_object(b"x", 255),
    {"$binary": {"base64": "AB==", "subType": "00"}},
)
"""Values of free JSON that JSON has no type for, and objects that only look like one."""


def free_values() -> st.SearchStrategy[JsonValue]:
    """Return free JSON: numbers at the limits of both stores, names that mean something to one of them."""
    whole = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from((INT64_MIN, INT64_MAX, 2**31, 2**53 + 1))
    # A whole float is the integer; the canonical form has no other, and no store distinguishes them.
    broken = st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: not value.is_integer())
    names = texts(max_size=8) | st.sampled_from(("$ref", "$id", "a.b", "", "_id", "$set"))
    leaves: st.SearchStrategy[JsonValue] = st.none() | st.booleans() | whole | broken | texts(max_size=8)
    leaves |= st.sampled_from(TYPED_OBJECTS)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=5,
    )


def built(cls: type[M], **fields: st.SearchStrategy[object]) -> st.SearchStrategy[M]:
    """Return models of a class; ``st.builds`` would look for the wire names in its signature."""
    return st.fixed_dictionaries(fields).map(cls.model_validate)


def optional(values: st.SearchStrategy[T]) -> Maybe[T]:
    """Return the values or nothing."""
    return st.none() | values
