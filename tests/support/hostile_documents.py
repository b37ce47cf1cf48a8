"""Broken documents that a mongod stores: good ones, changed in one to three places.

A place is any element at any depth, the key and the tenant among them. It gets another value of any type,
another name, a twin, a sibling, or goes away.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson

from tests.support.copies import COPIED, numbered_row
from twinstore.catalog.row import Row
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUNS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.impact_snapshots import identify
from twinstore.scheduler.selectors import selector_digest
from twinstore.testing.scheduler.builders import make_impact_set, make_run, rich_impact_set
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore_mongo.client.bson import elements
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog.entity import Entity

TEXT: Final = 0x02
DOCUMENT: Final = 0x03
ARRAY: Final = 0x04
# The server takes 180 levels below the top, and refuses 200.
DEEPEST: Final = 170
BAD_UTF8: Final = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"abc\xfe", b"\xf5\x80\x80\x80", b"\xe2\x82")
DATE_TEXTS: Final = (
    b"2025-10-26T14:05:00+00:00",
    b"2025-10-26T14:05:00.120+00:00",
    b"0001-01-01T00:00:00+00:00",
    b"9999-12-31T23:59:59.999+00:00",
    b"2025-10-26T14:05:00.000+00:00",
    b"2025-10-26T14:05:00Z",
    b"0000-01-01T00:00:00+00:00",
    b"10000-01-01T00:00:00+00:00",
    b"",
)
TYPED_TEXTS: Final = {
    b"$oid": (b"0" * 24, b"65a1f0c2b7e4d90012345678", b"65A1F0C2B7E4D90012345678", b"0" * 23),
    b"$numberDecimal": (b"1.50", b"1E+3", b"0E-6176", b"1e3", b"-0", b"NaN", b"1" * 35),
    b"base64": (b"", b"AP8=", b"AP9=", b"AP8"),
}
TEXTS: Final[tuple[bytes, ...]] = tuple(
    text.encode()
    for text in (
        *(
            "",
            " ",
            "\x00",
            "a\x00b",
            "\x01",
            "\x7f",
            "\u0085",
            "\u2028",
            "\ufeff",
            "\ufffe",
            "e\u0301",
            "\u00e9",
        ),
        *(
            " padded ",
            "padded ",
            "\u3000wide",
            "system",
            "a:b",
            ":none",
            "A",
            "a",
            "null",
            "$where",
            "a.b",
            "-",
        ),
        *("2025-10-26T14:05:00Z", "2025-10-26t14:05:00.123456789+02:00", "2025-02-30T00:00:00Z", "infinity"),
        *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999-12:00", "2025-10-26 14:05:00", "now"),
        *("99 * * * *", "*/0 * * * *", "1-99999999999 * * * *", "0 0 31 2 *", "@yearly", "0 * * * *"),
        *("../../etc/passwd", "/etc/localtime", "Europe", "Europe/Vienna\x00", "utc", "Z" * 5000),
        *("queued", "ERROR", "manual", "sha256:" + "0" * 64, "sha256:" + "G" * 64, "{}", "[]", '{"a":1}'),
        *("x" * 129, "x" * 257, "x" * 1025, "\N{GRINNING FACE}" * 90, "\N{KELVIN SIGN}", "\u0130", "\u1e9e"),
    )
)
DOUBLES: Final = (
    *(float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e300, -1e19, 5e-324, 1.5, 3.0, 1e-5),
    *(2.0**53, 2.0**63, 9.2e18, 0.1, 1e16, 123456789.125),
)
LONGS: Final = (0, 1, -1, 5, 2**31, -(2**31) - 1, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
DATES: Final = (
    *(0, 1, -1, 1_761_487_500_000, 253_402_300_800_000, -62_135_596_800_001, -62_135_596_800_000),
    *(2**63 - 1, -(2**63), 253_402_300_799_999),
)
SUBTYPES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x80, 0xFF)


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a document; a document or an array has elements, everything else bytes."""

    kind: int
    name: bytes
    value: bytes | tuple[Element, ...]


def packed(elements: tuple[Element, ...]) -> bytes:
    """Return the document of some elements."""
    parts = [
        bytes([item.kind])
        + item.name
        + b"\x00"
        + (item.value if isinstance(item.value, bytes) else packed(item.value))
        for item in elements
    ]
    inner = b"".join(parts)
    return (len(inner) + 5).to_bytes(4, "little") + inner + b"\x00"


def cstring(rng: Random) -> bytes:
    """Return a name: any bytes but U+0000."""
    odd = (
        b"",
        b"$ref",
        b"$id",
        b"$db",
        b"a.b",
        b"$a",
        b"_id",
        b"id",
        b"_version",
        b"__proto__",
        b"0",
        b"5",
        b"\xff",
    )
    usual = (b"key", b"KEY", b"Key", b" key", b"tenant_id", b"created_at", b"x" * 300, "\u00e9".encode())
    return rng.choice(odd + usual)


def sized(content: bytes) -> bytes:
    """Return a text value: its length, its bytes, and the final zero."""
    return (len(content) + 1).to_bytes(4, "little") + content + b"\x00"


def any_text(rng: Random) -> bytes:
    """Return some bytes of a text, in a fifth of the cases not UTF-8."""
    draw = rng.random()
    if draw < 0.2:  # a share
        return rng.choice(BAD_UTF8)
    if draw < 0.21:  # a share
        return b"y" * rng.randrange(10_000, 100_000)
    return rng.choice(TEXTS)


def text_value(rng: Random) -> tuple[int, bytes]:
    """Return a text."""
    return TEXT, sized(any_text(rng))


def nested(rng: Random) -> tuple[int, tuple[Element, ...]]:
    """Return documents or arrays inside each other."""
    kind, inner = value(rng, shallow=True)
    made = Element(kind, b"0", inner)
    for _ in range(rng.choice((3, 40, 90, DEEPEST))):
        made = Element(rng.choice((DOCUMENT, ARRAY)), b"0", (made,))
    return DOCUMENT, (made,)


def small(rng: Random, kind: int, names: Callable[[int], bytes]) -> tuple[int, tuple[Element, ...]]:
    """Return a document or an array of a few values."""
    made = (Element(*_named(names(number), *value(rng, shallow=True))) for number in range(rng.randrange(4)))
    return kind, tuple(made)


def _named(
    name: bytes, kind: int, inner: bytes | tuple[Element, ...]
) -> tuple[int, bytes, bytes | tuple[Element, ...]]:
    return kind, name, inner


def binary(rng: Random) -> tuple[int, bytes]:
    """Return bytes of any subtype; the old one has a second length, which may be wrong."""
    subtype, content = rng.choice(SUBTYPES), rng.randbytes(rng.choice((0, 1, 4, 16, 17)))
    if subtype == 2:  # the old subtype
        content = (len(content) + rng.choice((0, 0, 1))).to_bytes(4, "little") + content
    return 0x05, len(content).to_bytes(4, "little") + bytes([subtype]) + content


def scoped_code(rng: Random) -> tuple[int, bytes]:
    """Return code with a scope."""
    code, (_, scope) = sized(any_text(rng)), small(rng, DOCUMENT, lambda _: cstring(rng))
    inner = code + packed(scope)
    return 0x0F, (len(inner) + 4).to_bytes(4, "little") + inner


def reference(rng: Random) -> tuple[int, tuple[Element, ...]]:
    """Return a document that looks like a reference to another."""
    names = rng.sample([b"$ref", b"$id", b"$db", b"more"], rng.randrange(1, 5))
    return DOCUMENT, tuple(Element(*_named(name, *value(rng, shallow=True))) for name in names)


def date_object(rng: Random) -> tuple[int, tuple[Element, ...]]:
    """Return a document that represents a date in free JSON, or only looks like one."""
    made = Element(0x02, b"$date", sized(rng.choice(DATE_TEXTS)))
    return DOCUMENT, (made, made) if rng.random() < 0.1 else (made,)  # a share


def typed_object(rng: Random) -> tuple[int, tuple[Element, ...]]:
    """Return a document that represents an id, a decimal or bytes in free JSON, or only looks like one."""
    name = rng.choice(list(TYPED_TEXTS))
    text = Element(TEXT, name, sized(rng.choice(TYPED_TEXTS[name])))
    if name != b"base64":
        return DOCUMENT, (text,)
    subtype = Element(TEXT, b"subType", sized(rng.choice((b"00", b"04", b"ff", b"0A"))))
    return DOCUMENT, (Element(DOCUMENT, b"$binary", rng.choice(((text, subtype), (subtype, text)))),)


MAKERS: Final[dict[str, Callable[[Random], tuple[int, bytes]]]] = {
    "double": lambda rng: (0x01, struct.pack("<d", rng.choice(DOUBLES))),
    "any double": lambda rng: (0x01, rng.randbytes(8)),
    "text": text_value,
    "binary": binary,
    "undefined": lambda _: (0x06, b""),
    "object id": lambda rng: (0x07, rng.randbytes(12)),
    "boolean": lambda rng: (0x08, rng.choice((b"\x00", b"\x01"))),
    "date": lambda rng: (0x09, struct.pack("<q", rng.choice(DATES))),
    "null": lambda _: (0x0A, b""),
    "pattern": lambda rng: (
        0x0B,
        rng.choice((b"^a", b"(", b"\xff", b"")) + b"\x00" + rng.choice((b"", b"i", b"imsx", b"zz")) + b"\x00",
    ),
    "pointer": lambda rng: (0x0C, sized(any_text(rng)) + rng.randbytes(12)),
    "code": lambda rng: (0x0D, sized(any_text(rng))),
    "symbol": lambda rng: (0x0E, sized(any_text(rng))),
    "code with scope": scoped_code,
    "integer": lambda rng: (0x10, struct.pack("<i", rng.choice((0, 1, 5, -1, 2**31 - 1, -(2**31))))),
    "timestamp": lambda rng: (0x11, rng.choice((b"\x00" * 8, b"\xff" * 8, rng.randbytes(8)))),
    "long": lambda rng: (0x12, struct.pack("<q", rng.choice(LONGS))),
    "decimal": lambda rng: (0x13, rng.randbytes(16)),
    "least key": lambda _: (0xFF, b""),
    "greatest key": lambda _: (0x7F, b""),
}
NESTED_MAKERS: Final[dict[str, Callable[[Random], tuple[int, tuple[Element, ...]]]]] = {
    "document": lambda rng: small(rng, DOCUMENT, lambda _: cstring(rng)),
    "array": lambda rng: small(rng, ARRAY, lambda number: str(number).encode()),
    "array with odd names": lambda rng: small(rng, ARRAY, lambda _: rng.choice((b"5", b"x", b"", b"\xff"))),
    "nested": nested,
    "reference": reference,
    "date object": date_object,
    "typed object": typed_object,
}


def value(rng: Random, *, shallow: bool = False) -> tuple[int, bytes | tuple[Element, ...]]:
    """Return the type and the content of some value; a ``shallow`` one is no document and no array."""
    if shallow or rng.random() < 0.75:  # a share
        return MAKERS[rng.choice(list(MAKERS))](rng)
    return NESTED_MAKERS[rng.choice(list(NESTED_MAKERS))](rng)


Tree = tuple[Element, ...]
ENTITIES: Final = COPIED
TENANTS: Final = ("acme", "umbrella", "globex")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What no calendar has stays a date.
LAST_MILLISECOND: Final = 253_402_300_799_999


def good_row(entity: Entity, rng: Random, number: int) -> Row[Any]:
    """Return a good row of an entity under a key of this number; rows of one number belong to one tenant."""
    tenant, rich = TENANTS[number % len(TENANTS)], rng.random() < 0.6  # a share
    example = SCHEDULER_EXAMPLES.of(entity)
    if entity is IMPACT_SNAPSHOTS:
        return snapshot_row(rng, tenant, number, rich=rich)
    if entity is RUNS and not rich:
        return Row(make_run(tenant, f"{tenant}-{number:06}", state=rng.choice(list(RunState))))
    model = (example.rich if rich else example.small)(tenant, "good")
    return numbered_row(example, model, tenant, number)


def snapshot_row(rng: Random, tenant: str, number: int, *, rich: bool) -> Row[Any]:
    """Return a snapshot under a unique id or under one that follows from its content."""
    snapshot = rich_impact_set(tenant) if rich else make_impact_set()
    if rng.random() < 0.5:  # a share
        snapshot = snapshot.evolve(snapshot_id=f"snap-{number:07}")
    else:
        snapshot = snapshot.evolve(total=number + 100)
    run_id = f"run-{number:07}"
    key, snapshot = identify(tenant, snapshot, run_id)
    digest = selector_digest(snapshot.selector, tenant)
    markers = {"snapshotId": key, "tenantId": tenant, "runId": run_id, "selectorDigest": digest}
    return Row(snapshot, markers)


def hostile_documents(entity: Entity, count: int, seed: int) -> Iterator[bytes]:
    """Yield documents of one entity, the same ones for the same seed; one in ten stays good."""
    rng = Random(f"{seed} {entity.name}")  # not for secrets
    codec = codec_of(entity)
    for number in range(count):
        row = good_row(entity, rng, seed * 1_000_000 + number)
        tree = parsed(bson.encode(codec.encode(row)))
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3))):
            tree = changed(rng, tree, number)
        yield packed(tree)


def parsed(raw: bytes) -> Tree:
    """Return the elements of a document, those of what it holds included."""
    return tuple(
        Element(kind, name, parsed(raw[start:end]) if kind in {DOCUMENT, ARRAY} else raw[start:end])
        for kind, name, start, end in elements(raw)
    )


def changed(rng: Random, tree: Tree, number: int) -> Tree:
    """Return a document changed in one place."""
    position = rng.randrange(len(tree)) if tree else 0
    inner = tree[position].value if tree else b""
    # Deeper half of the time, where there is something deeper.
    if isinstance(inner, tuple) and inner and rng.random() < 0.7:  # a share
        below = replace(tree[position], value=changed(rng, inner, number))
        return (*tree[:position], below, *tree[position + 1 :])
    return rng.choice(CHANGES)(rng, tree, position, number)


def revalued(rng: Random, tree: Tree, position: int, number: int) -> Tree:
    """Give an element another value; a text mostly another text, that of an id with a number in it."""
    if not tree:
        return tree
    old = tree[position]
    kind, new = text_value(rng) if old.kind == TEXT and rng.random() < 0.5 else value(rng)  # a share
    if old.name in {b"_id", b"scheduleId"} and kind == TEXT and isinstance(new, bytes):
        content = new[4:-1] + str(number).encode() * (rng.random() < 0.8)  # a share
        new = (len(content) + 1).to_bytes(4, "little") + content + b"\x00"
    return (*tree[:position], replace(old, kind=kind, value=new), *tree[position + 1 :])


def renamed(rng: Random, tree: Tree, position: int, number: int) -> Tree:
    """Give an element another name, often one that looks the same."""
    del number
    if not tree:
        return tree
    name = tree[position].name
    names = (
        name.upper(),
        name + b" ",
        b" " + name,
        b"_" + name,
        name.lower(),
        snake(name),
        cstring(rng),
        cstring(rng),
    )
    return (*tree[:position], replace(tree[position], name=rng.choice(names)), *tree[position + 1 :])


def twinned(rng: Random, tree: Tree, position: int, number: int) -> Tree:
    """Put a second element of the same name, or one that differs in case, before or behind."""
    del number
    if not tree:
        return tree
    old = tree[position]
    kind, new = rng.choice(((old.kind, old.value), text_value(rng), value(rng)))
    name = rng.choice((old.name, old.name, old.name.swapcase(), old.name + b" "))
    at = rng.choice((position, position + 1, len(tree)))
    return (*tree[:at], Element(kind, name, new), *tree[at:])


def added(rng: Random, tree: Tree, position: int, number: int) -> Tree:
    """Put a new element somewhere."""
    del number
    kind, new = value(rng)
    return (*tree[:position], Element(kind, cstring(rng), new), *tree[position:])


def removed(rng: Random, tree: Tree, position: int, number: int) -> Tree:
    """Leave an element out."""
    del rng, number
    return (*tree[:position], *tree[position + 1 :])


def respelled(rng: Random, tree: Tree, position: int, number: int) -> Tree:
    """Write a value as other programs would: another type of number, outer blanks, an instant as text."""
    del number
    if not tree:
        return tree
    old = tree[position]
    if isinstance(old.value, tuple) or old.kind not in SPELLINGS:
        return (*tree[:position], *reversed(tree[position:]))
    kind, new = SPELLINGS[old.kind](rng, old.value)
    return (*tree[:position], replace(old, kind=kind, value=new), *tree[position + 1 :])


def other_number(rng: Random, value: bytes) -> tuple[int, bytes]:
    """Return an integer in another type."""
    number = int.from_bytes(value, "little", signed=True)
    return rng.choice(((0x12, struct.pack("<q", number)), (0x01, struct.pack("<d", number))))


def other_text(rng: Random, value: bytes) -> tuple[int, bytes]:
    """Return a text with outer blanks, or in another case."""
    content = value[4:-1]
    return TEXT, sized(rng.choice((content + b" ", b" " + content, content.upper(), content + b"\t", b"")))


def instant_as_text(rng: Random, value: bytes) -> tuple[int, bytes]:
    """Return an instant as text, with more digits than milliseconds have."""
    milliseconds = int.from_bytes(value, "little", signed=True)
    if not 0 <= milliseconds <= LAST_MILLISECOND:
        return 0x09, value
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    digits = rng.choice(("", "123456"))
    return TEXT, sized(f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}{digits}Z".encode())


def with_note(rng: Random, tree: Tree, position: int, number: int) -> Tree:
    """Add what other programs keep next to the data: internal fields of any kind, and nulls."""
    del number
    kind, new = value(rng)
    nulls = (Element(0x0A, b"note", b""), Element(0x0A, b"message", b""))
    item = rng.choice((Element(kind, b"_note", new), *nulls))
    return (*tree[:position], item, *tree[position:])


SPELLINGS: Final[dict[int, Callable[[Random, bytes], tuple[int, bytes]]]] = {
    TEXT: other_text,
    0x09: instant_as_text,
    0x10: other_number,
    0x12: other_number,
}


def snake(name: bytes) -> bytes:
    """Return a name as Python has it."""
    letters = name.decode(errors="surrogateescape")
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", letters).encode(errors="surrogateescape")


Change = Callable[[Random, Tree, int, int], Tree]
CHANGES: Final[tuple[Change, ...]] = (
    *(revalued, revalued, revalued),
    *(respelled, respelled, respelled, with_note),
    *(renamed, twinned, added, removed),
)
