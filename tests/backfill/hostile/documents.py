"""Documents that a mongod holds and nobody meant: good ones, changed in one to three places.

A place is any element at any depth, the key and the tenant among them. It gets another value of any type,
another name, a twin, a sibling, or goes away.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson

from tests.backfill.hostile.bson_values import (
    ARRAY,
    DOCUMENT,
    TEXT,
    Element,
    cstring,
    packed,
    sized,
    text_value,
    value,
)
from tests.backfill.numbering import numbered_row
from tests.backfill.toolkit import COPIED
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

__all__ = ["ENTITIES", "good_row", "hostile_documents"]

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
    """Return a snapshot under an id of its own or under one that follows from its content."""
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


def noted(rng: Random, tree: Tree, position: int, number: int) -> Tree:
    """Put in what other programs keep beside the data: internal fields of any kind, and nulls."""
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
    *(respelled, respelled, respelled, noted),
    *(renamed, twinned, added, removed),
)
