"""Stored documents of an entity, and what may become of them: other types, names, orders and bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import bson
from hypothesis import HealthCheck, Phase, given, settings

from twinstore.fields import BLANKS
from twinstore.tenancy import NO_TENANT, TenancyKind, Tenant
from twinstore.testing.datasets import Dataset, factory_of
from twinstore.testing.entities import KIT
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES
from twinstore_mongo.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from twinstore.access import Row
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.testing.examples import Example

__all__ = ["Branch", "changed", "stored_documents", "tree_of"]

EXAMPLES: Final = {
    example.entity.name: example
    for module in (SCHEDULER_EXAMPLES, TASKRUNNER_EXAMPLES, TRACKING_EXAMPLES)
    for example in module.examples
}
SIZES: Final = {
    0x01: 8,
    0x06: 0,
    0x07: 12,
    0x08: 1,
    0x09: 8,
    0x0A: 0,
    0x10: 4,
    0x11: 8,
    0x12: 8,
    0x13: 16,
    0x7F: 0,
    0xFF: 0,
}
TEXT, OBJECT, ARRAY, FLAG, INSTANT, INT, LONG = 0x02, 0x03, 0x04, 0x08, 0x09, 0x10, 0x12
EDGES: Final = (0, 1, -1, 7, 2**31 - 1, 2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
INSTANTS: Final = (
    0,
    1,
    -1,
    999,
    -62135596800000,
    -62135596800001,
    253402300799999,
    253402300800000,
    1700000000123,
)
DOUBLES: Final = (
    0.0,
    -0.0,
    1.0,
    1.5,
    1e-5,
    1e-7,
    0.1,
    1 / 3,
    1e15,
    1e16,
    1e22,
    2.0**63,
    5e-324,
    float("inf"),
    float("nan"),
)
WORDS: Final = (
    "", " ", "a", "A", "system", "a:b", "2025-10-26T14:05:00+00:00", "2025-10-26T14:05:00.123Z", "UTC", "utc",
    "é", "ß", "İ", "\x7f", "\x85", "\u2028", "😀", "\0", "x" * 129, "x" * 257, "1", "true", "null",
    "sha256:" + "a" * 64, "sha256:" + "A" * 64, "0 * * * *", "*/5 * * * *",
    "00000000-0000-4000-8000-000000000000",
    '"\\\n\t\x01',
)  # fmt: skip
NAMES: Final = (
    b"",
    b"_id",
    b"id",
    b"_version",
    b"_x",
    b"_\xc3\xa4",
    b"$ref",
    b"$date",
    b"a",
    b"A",
    b"0",
    b"1",
    b"00",
    b"\xff",
)
ODD_BYTES: Final = (b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\x00", b"\x1f")


@dataclass(slots=True)
class Branch:
    """An element of a document: its type, its name, and its bytes or the elements in it."""

    kind: int
    name: bytes
    value: bytes = b""
    members: list[Branch] = field(default_factory=list["Branch"])

    def copy(self) -> Branch:
        """Return one that can be changed by itself."""
        return Branch(self.kind, self.name, self.value, [member.copy() for member in self.members])

    def encoded(self) -> bytes:
        """Return the bytes of the element."""
        value = framed(self.members) if self.kind in {OBJECT, ARRAY} and not self.value else self.value
        return bytes([self.kind]) + self.name + b"\0" + value


def framed(members: Sequence[Branch]) -> bytes:
    """Return a document."""
    body = b"".join(member.encoded() for member in members)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def text_value(text: bytes) -> bytes:
    """Return the value of a text."""
    return struct.pack("<i", len(text) + 1) + text + b"\0"


def tree_of(raw: bytes) -> list[Branch]:
    """Return the elements of a document that is whole."""
    found, at = list[Branch](), 4
    while at < len(raw) - 1:
        kind, end = raw[at], raw.index(b"\0", at + 1)
        name, at = raw[at + 1 : end], end + 1
        length = int.from_bytes(raw[at : at + 4], "little")
        size = SIZES.get(kind, length if kind in {OBJECT, ARRAY} else length + 4 + (kind == 0x05))
        value, at = raw[at : at + size], at + size
        nested = kind in {OBJECT, ARRAY}
        found.append(Branch(kind, name, b"" if nested else value, tree_of(value) if nested else []))
    return found


def stored_documents(entity: Entity[Any], drawn: int) -> list[bytes]:
    """Return documents of an entity as the driver writes them, the same ones each time.

    Args:
        entity: one of the modules that ship, or of the kit.
        drawn: so many of them are drawn over the full range of their values.
    """
    codec = codec_of(entity)
    found = [bson.encode(codec.encode(row)) for row in rows_of(entity, drawn)]
    return list(dict.fromkeys(found))


def rows_of(entity: Entity[Any], drawn: int) -> Iterator[Row[Any]]:
    """Yield rows of an entity."""
    if entity in KIT.entities:
        factory = factory_of(entity)
        optional = entity.tenancy.kind is TenancyKind.OPTIONAL
        for owner in (Tenant("tenant-a"), NO_TENANT) if optional else (Tenant("tenant-a"),):
            yield from factory.rows(Dataset(owner=owner, batch="batch"), min(drawn, len(EDGE_TEXTS)))
        return
    example = EXAMPLES[entity.name]
    models = [example.small("tenant-a", "name"), example.rich("tenant-b", "rich")]
    models += [example.vary("tenant-a", f"name-{number}", number) for number in range(8)]
    models += drawn_models(example, drawn)
    for model in models:
        yield example.row("tenant-a", model)


def drawn_models(example: Example, count: int) -> list[CanonicalModel]:
    """Return models of an example, the same ones each time."""
    found = list["CanonicalModel"]()
    if example.drawn is None:
        return found

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
    )
    @given(example.drawn("tenant-a", "name"))
    def collect(model: CanonicalModel) -> None:
        found.append(model)

    collect()
    return found


def changed(raw: bytes, seeded: Random, words: Sequence[bytes] = ()) -> bytes:
    """Return a document with a few things changed; ``words`` are names and texts that the entity knows."""
    members = tree_of(raw)
    for _ in range(seeded.choice((0, 1, 1, 1, 2, 3))):
        if not members:
            break
        around = all_lists(members)
        seeded.choice(CHANGES)(seeded.choice(around), seeded, words)
    # No server stores another order.
    if seeded.random() < 0.9:  # mostly
        members.sort(key=lambda member: member.name != b"_id")
    found = framed(members)
    return flipped(found, seeded) if seeded.random() < 0.05 else found  # rarely


def flipped(raw: bytes, seeded: Random) -> bytes:
    """Return bytes of which one is another."""
    # Not in the length of the whole, which tells where the next document begins.
    at = seeded.randrange(4, len(raw))
    return raw[:at] + bytes([seeded.randrange(256)]) + raw[at + 1 :]


def all_lists(members: list[Branch]) -> list[list[Branch]]:
    """Return the members of the document and of all in it that are not empty."""
    found = [members]
    for member in members:
        if member.members:
            found += all_lists(member.members)
    return found


def retype(members: list[Branch], seeded: Random, words: Sequence[bytes]) -> None:
    """Give a member another value of any type."""
    one = seeded.choice(members)
    one.kind, one.value, one.members = any_value(seeded, words)


def any_value(seeded: Random, words: Sequence[bytes]) -> tuple[int, bytes, list[Branch]]:
    """Return a value of any type."""
    kind = seeded.choice(
        (*SIZES, TEXT, TEXT, TEXT, OBJECT, ARRAY, INT, LONG, INSTANT, 0x05, 0x0D, 0x0E, 0x0B)
    )
    if kind in {TEXT, 0x0D, 0x0E}:
        return kind, text_value(any_text(seeded, words)), []
    if kind in {OBJECT, ARRAY}:
        inner = [
            Branch(INT, name, struct.pack("<i", 1)) for name in seeded.sample((b"0", b"1", b"a", b"$ref"), 2)
        ]
        return kind, b"" if inner else b"\5\0\0\0\0", inner
    if kind == 0x05:
        return kind, b"\1\0\0\0\0a", []
    return kind, b"a\0i\0" if kind == 0x0B else fixed_value(kind, seeded), []


def fixed_value(kind: int, seeded: Random) -> bytes:
    """Return a value of a type whose size is fixed."""
    match kind:
        case 0x01:
            return struct.pack("<d", seeded.choice(DOUBLES))
        case 0x10:
            return struct.pack("<i", seeded.choice([edge for edge in EDGES if abs(edge) < 2**31]))
        case 0x12:
            return struct.pack("<q", seeded.choice(EDGES))
        case 0x09:
            return struct.pack("<q", seeded.choice(INSTANTS))
        case 0x08:
            return bytes([seeded.choice((0, 1, 1, 0, 2, 0xC2))])
        case _:
            return seeded.randbytes(SIZES[kind])


def any_text(seeded: Random, words: Sequence[bytes]) -> bytes:
    """Return a text that the entity knows, or one from an edge."""
    return seeded.choice(words) if words and seeded.random() < 0.5 else seeded.choice(WORDS).encode()  # half


def tweak(members: list[Branch], seeded: Random, words: Sequence[bytes]) -> None:
    """Change a value a little, and its type at most to one that means the same."""
    one = seeded.choice(members)
    match one.kind:
        case 0x02:
            one.value = text_value(tweaked_text(one.value[4:-1], seeded, words))
        case 0x10 | 0x12:
            number = int.from_bytes(one.value, "little", signed=True) + seeded.choice((0, 0, 1, -1))
            small = -(2**31) <= number < 2**31 and seeded.random() < 0.5  # half
            one.kind = INT if small else LONG
            one.value = struct.pack("<i" if small else "<q", max(min(number, 2**63 - 1), -(2**63)))
        case 0x09:
            moment = int.from_bytes(one.value, "little", signed=True)
            one.value = struct.pack("<q", moment + seeded.choice((0, 1, -1, 500, -86400000)))
        case kind if kind in {OBJECT, ARRAY}:
            seeded.shuffle(one.members)
            if kind == ARRAY and seeded.random() < 0.7:  # mostly
                for number, member in enumerate(one.members):
                    member.name = str(number).encode()
        case kind:
            one.value = fixed_value(kind, seeded) if kind in SIZES else one.value


def tweaked_text(text: bytes, seeded: Random, words: Sequence[bytes]) -> bytes:
    """Return a text that is nearly the same."""
    odd = seeded.choice((*ODD_BYTES, *(blank.encode() for blank in BLANKS), b"a", b"Z", b":", b"\xc3\xa4"))
    match seeded.randrange(6):
        case 0:
            return odd + text
        case 1:
            return text + odd
        case 2:
            at = seeded.randrange(len(text) + 1)
            return text[:at] + odd + text[at:]
        case 3:
            return text.upper() if seeded.random() < 0.5 else text.lower()  # half
        case 4:
            return text[:-1]
        case _:
            return any_text(seeded, words)


def drop(members: list[Branch], seeded: Random, _: Sequence[bytes]) -> None:
    """Leave a member out."""
    del members[seeded.randrange(len(members))]
    recount(members, seeded)


def double(members: list[Branch], seeded: Random, _: Sequence[bytes]) -> None:
    """Put a member in twice, often under another name."""
    one = seeded.choice(members).copy()
    if seeded.random() < 0.5:  # half
        one.name = seeded.choice((*NAMES, *(member.name for member in members)))
    members.insert(seeded.randrange(len(members) + 1), one)
    recount(members, seeded)


def rename(members: list[Branch], seeded: Random, words: Sequence[bytes]) -> None:
    """Give a member another name."""
    one = seeded.choice(members)
    one.name = seeded.choice(
        (*NAMES, *words, *(member.name for member in members), one.name.upper(), one.name + b"x")
    )


def insert(members: list[Branch], seeded: Random, words: Sequence[bytes]) -> None:
    """Put a value in."""
    kind, value, inner = any_value(seeded, words)
    name = seeded.choice((*NAMES, *words)).partition(b"\0")[0]
    members.insert(seeded.randrange(len(members) + 1), Branch(kind, name, value, inner))


def exchange(members: list[Branch], seeded: Random, _: Sequence[bytes]) -> None:
    """Let two values change places, and sometimes their names with them."""
    first, second = seeded.choice(members), seeded.choice(members)
    first.value, second.value = second.value, first.value
    first.kind, second.kind = second.kind, first.kind
    first.members, second.members = second.members, first.members
    if seeded.random() < 0.5:  # half
        first.name, second.name = second.name, first.name


def recount(members: list[Branch], seeded: Random) -> None:
    """Give the entries of what looks like a list their numbers, mostly."""
    if all(member.name.isdigit() for member in members) and seeded.random() < 0.8:  # mostly
        for number, member in enumerate(members):
            member.name = str(number).encode()


CHANGES: Final = (retype, tweak, tweak, tweak, drop, double, rename, insert, exchange)
