"""Native code shows a stored row exactly as the scan shows it, or declines it; whatever is stored."""

from __future__ import annotations

import hashlib
from random import Random
from typing import TYPE_CHECKING, Final

import bson
import pytest

from tests.support.hostile_documents import changed, packed, parsed
from tests.unit.fast.lines import altered, line_of, row_of, scan_in_memory, values_of
from tests.unit.fast.scanned import DIGESTED, NAMES, SECRET, TENANTS, example_row, is_plain
from twinstore.catalog.row import Row
from twinstore.fast import digests
from twinstore.fast.library import library
from twinstore.scheduler.catalog import EXECUTION_LOGS
from twinstore.testing.scalars import TYPED_OBJECTS
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES, make_log_entry
from twinstore_mongo.bulk.digests import digest_form as document_data
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.free_json import encode_typed
from twinstore_postgres.bulk.digests import digest_form as table_data

if TYPE_CHECKING:
    import ctypes

    from pydantic import JsonValue

    from twinstore.bulk.rows import ScanRow
    from twinstore.fast.program import Handle
    from twinstore.testing.examples import Example

EACH: Final = 700
EACH_OF_LONG: Final = 40_000
BASES: Final = 12


@pytest.fixture(scope="module")
def native() -> ctypes.CDLL:
    found = library()
    assert found is not None
    return found


@pytest.fixture(params=DIGESTED, ids=NAMES)
def example(request: pytest.FixtureRequest) -> Example:
    found: Example = request.param
    return found


@pytest.fixture
def each(long_form: bool) -> int:  # noqa: FBT001  # a fixture
    return EACH_OF_LONG if long_form else EACH


def base_documents(example: Example, rng: Random) -> list[bytes]:
    """Return some good documents."""
    codec = codec_of(example.entity)
    rows = (example_row(example, rng, number) for number in range(BASES))
    return [bson.encode({"_id": bson.ObjectId(), **codec.encode(row)}) for row in rows]


def test_good_documents_are_shown(native: ctypes.CDLL, example: Example) -> None:
    scan, form = CollectionScan.of(example.entity), form_of_documents(native, example)
    shown = 0
    for raw in base_documents(example, Random(1)):
        (row,) = scan.rows(raw)
        content = digests.render_document(native, form, raw)
        assert content in {None, row.content}
        shown += content is not None
    # Rich ones may hold fractions with an exponent.
    assert shown >= BASES / 4


@pytest.mark.parametrize("typed", TYPED_OBJECTS, ids=repr)
def test_typed_values_in_free_json_and_what_looks_like_them_are_declined(
    native: ctypes.CDLL, typed: JsonValue
) -> None:
    example = SCHEDULER_EXAMPLES.of(EXECUTION_LOGS)
    form, codec = form_of_documents(native, example), codec_of(EXECUTION_LOGS)
    document = codec.encode(Row(make_log_entry(TENANTS[0], "run")))
    assert digests.render_document(native, form, bson.encode(document)) is not None
    for data in ({"a": [typed]}, encode_typed({"a": [typed]})):
        assert digests.render_document(native, form, bson.encode({**document, "data": data})) is None


def test_changed_documents_are_shown_as_the_scan_shows_them_or_declined(
    native: ctypes.CDLL, example: Example, each: int
) -> None:
    rng = Random(f"documents {each} {example.entity.name}")  # not for secrets
    scan, form = CollectionScan.of(example.entity), form_of_documents(native, example)
    bases = [parsed(raw) for raw in base_documents(example, rng)]
    shown = 0
    for number in range(each):
        tree = changed(rng, rng.choice(bases), number)
        for _ in range(rng.choice((0, 0, 1))):
            tree = changed(rng, tree, number)
        raw = packed(tree)
        if rng.random() < 0.2:  # a share
            raw = damaged(rng, raw)
        content = digests.render_document(native, form, raw)
        if content is not None:
            check(content, scanned(scan, raw), raw)
            shown += 1
    # Of some entities the rich rows hold what is declined.
    assert shown > each / 100


def test_changed_lines_are_shown_as_the_scan_shows_them_or_declined(
    native: ctypes.CDLL, example: Example, each: int
) -> None:
    rng = Random(f"lines {each} {example.entity.name}")  # not for secrets
    scan = scan_in_memory(example.entity)
    form = digests.table_form(native, table_data(scan))
    rows = [scanned(CollectionScan.of(example.entity), raw) for raw in base_documents(example, rng)]
    bases = [values_of(scan, row) for row in rows if row is not None]
    shown = 0
    for _ in range(each):
        values = altered(rng, rng.choice(bases))
        content = digests.render_line(native, form, line_of(values))
        if content is not None:
            check(content, row_of(scan, values), values)
            shown += 1
    # Of some entities the rich rows hold what is declined.
    assert shown > each / 100


def test_bytes_that_are_no_rows_are_declined(native: ctypes.CDLL, example: Example, each: int) -> None:
    rng = Random(f"bytes {example.entity.name}")  # not for secrets
    documents = form_of_documents(native, example)
    lines = digests.table_form(native, table_data(scan_in_memory(example.entity)))
    raws = base_documents(example, rng)
    for _ in range(each // 5):
        raw = rng.choice(raws)
        part = raw[: rng.randrange(len(raw))] if rng.random() < 0.5 else rng.randbytes(rng.randrange(200))
        assert digests.render_document(native, documents, part) is None
        assert digests.render_line(native, lines, part.replace(b"\n", b"")) is None


@pytest.mark.parametrize("portable", [False, True])
def test_its_digests_are_those_of_hashlib(native: ctypes.CDLL, portable: bool) -> None:  # noqa: FBT001  # a parameter
    rng = Random(1)
    for size in (*range(300), 1000, 4096, 70_000):
        content = rng.randbytes(size)
        assert digests.sha256(native, content, portable=portable) == hashlib.sha256(content).digest()


def test_owners_for_whom_no_cell_is_left_are_not_kept(
    native: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner for each row would otherwise take as much memory as the rows."""
    kept, read_labels = list[str](), digests.read_labels

    def noted(data: bytes, at: int) -> tuple[list[str], int]:
        found = read_labels(data, at)
        kept.extend(found[0])
        return found

    monkeypatch.setattr(digests, "MOST_CELLS", 2)
    monkeypatch.setattr(digests, "read_labels", noted)
    example = next(each for each in DIGESTED if each.entity.name == "schedules")
    scan = scan_in_memory(example.entity)
    (raw, *_) = base_documents(example, Random(1))  # not for secrets
    row = scanned(CollectionScan.of(example.entity), raw)
    assert row is not None
    values, form = values_of(scan, row), digests.table_form(native, table_data(scan))
    owners = ("t1", "t2", "t3", "t1", "t4")
    lines = [line_of([owner if value in TENANTS else value for value in values]) for owner in owners]
    scanner = digests.Scanner(native, form, example.entity, [], secret=SECRET)
    assert scanner.add_lines(b"".join(line + b"\n" for line in lines)) == len(lines)
    result = scanner.result(unique=True)
    assert {label: cell.count for (_, label), cell in result.cells.items()} == {"t1": 2, "t2": 1}
    assert (kept, result.unproven, result.rows) == (["t1", "t2"], {0}, len(lines))


def form_of_documents(native: ctypes.CDLL, example: Example) -> Handle:
    return digests.document_form(native, document_data(example.entity))


def damaged(rng: Random, raw: bytes) -> bytes:
    """Return a document with a byte or two changed."""
    found = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2))):
        found[rng.randrange(len(found))] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
    return bytes(found)


def scanned(scan: CollectionScan, raw: bytes) -> ScanRow | None:
    """Return what the scan makes of a document, ``None`` where it is none that a server stores."""
    try:
        (row,) = scan.rows(raw)
    except (ValueError, LookupError, TypeError, OverflowError):
        return None
    return row


def check(content: bytes, row: ScanRow | None, stored: object) -> None:
    assert row is not None, stored
    assert content == row.content, stored
    assert is_plain(row), stored
