"""What native code proves of a document the exact way says too: a copy takes it, and it is equal.

The documents hold values of every type, most of them under a name that is not shown: the version, the ignored
property, the id. Each is judged against a target that holds what a copy of it stores.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import bson
import pytest

from tests.support.hostile_documents import MAKERS, Element, changed, packed, parsed, value
from tests.unit.fast.hand_made import native_library
from tests.unit.fast.scanned import DIGESTED, NAMES, example_row
from twinstore.bulk.rows import SECRET_BYTES, ScanRow
from twinstore.catalog.keys import KeyRange
from twinstore.fast import digests
from twinstore_backfill.rules.model import DropRule, JobRules
from twinstore_backfill.verify.expected import Expected, RowExpectation
from twinstore_backfill.verify.findings import RangeResult
from twinstore_backfill.verify.ranges import RangeComparison, RowComparison
from twinstore_backfill.verify.rules import verifier_changes
from twinstore_mongo.bulk.digests import DigestScan, acceptance_check, digest_form
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.bulk.port import BulkPort
    from twinstore.testing.examples import Example

EACH: Final = 120
EACH_OF_LONG: Final = 30_000
BASES: Final = 12
IGNORED: Final = "__v"
NOT_SHOWN: Final = (b"_version", b"__v", b"_id", b"_foreign", b"_tenantId")
ALTERED: Final = ("undefined", "symbol", "pointer")
REASON: Final = "left by a mapper"
FAR_DOWN: Final = 400
SECRET: Final = bytes(SECRET_BYTES)


class Verdicts:
    """Both ways to judge a document of one entity."""

    def __init__(self, example: Example) -> None:
        """Lay out what each needs."""
        entity, library = example.entity, native_library()
        self._entity, self._library = entity, library
        self._scan = CollectionScan.of(entity)
        self._exporter = Exporter(codec_of(entity), frozenset({IGNORED}))
        documents = native_documents(entity, frozenset({IGNORED}))
        self.copies = documents.accepts if documents is not None else self.taken
        self._form = digests.document_form(
            library, digest_form(entity, of_source=True, ignored=frozenset({IGNORED}))
        )
        self._validator = acceptance_check(library, entity, frozenset({IGNORED}))
        self._drops = (DropRule(number=1, line=1, entity=entity.name, path=(IGNORED,), reason=REASON),)
        self._changed = CollectionScan.of(entity, verifier_changes(JobRules(self._drops), [entity]))
        self._expectation = RowExpectation(entity)

    def proved(self, raw: bytes) -> tuple[bytes, int] | None:
        """Return what native code proves to be equal, and how often it ignored something."""
        none: Any = None
        asked = DigestScan(none, none, self._scan)
        accepts = partial(asked._accepts, self._expectation.is_normal, frozenset({IGNORED}))  # noqa: SLF001  # no server
        scanner = digests.Scanner(
            self._library,
            self._form,
            self._entity,
            [],
            secret=SECRET,
            accepts=accepts,
            validator=self._validator,
        )
        scanner.add_documents(raw)
        found = scanner.result(unique=True)
        if found.unproven or found.unplaced:
            return None
        (cell,) = found.cells.values()
        content = digests.render_document(self._library, self._form, raw)
        assert content is not None
        return content, cell.ignored

    def row(self, raw: bytes) -> ScanRow:
        """Return the row of a document as the exact way reads it."""
        (row,) = self._changed.rows(raw)
        return row

    def counted(self, raw: bytes, content: bytes) -> tuple[dict[str, int], dict[str, int]]:
        """Return what the exact way counts for a document whose row in the target has some content."""
        work = RangeComparison(
            cast("BulkPort", None), cast("BulkPort", None), self._entity, None, None, drops=self._drops
        )
        comparison = RowComparison(work, RangeResult(self._entity.name, None, KeyRange()))
        source = self.row(raw)
        comparison.pairs([(source, ScanRow(source.key, source.owner, content))])
        (found,) = comparison.result.tenants.values()
        return dict(found.counts), dict(found.equivalences)

    def taken(self, raw: bytes) -> bool:
        """Whether the exporter gives a row, and a verification expects one."""
        record = self._exporter.careful_record(raw)
        taken = record.model is not None and record.error is None
        return taken and isinstance(self._expectation.of(self.row(raw)), Expected)


@pytest.fixture(params=DIGESTED, ids=NAMES)
def example(request: pytest.FixtureRequest) -> Example:
    found: Example = request.param
    return found


def documents(example: Example, rng: Random, count: int) -> Iterator[bytes]:
    """Yield documents with odd values, most of them where they are not shown."""
    codec = codec_of(example.entity)
    bases = [
        parsed(bson.encode({"_id": bson.ObjectId(), **codec.encode(example_row(example, rng, number))}))
        for number in range(BASES)
    ]
    for number in range(count):
        tree = rng.choice(bases)
        for _ in range(rng.choice((1, 1, 2))):
            tree = with_value(tree, rng)
        if rng.random() < 0.2:  # a share
            tree = changed(rng, tree, number)
        # Every server gives a document an id.
        if any(item.name == b"_id" for item in tree):
            yield packed(tree)


def with_value(tree: tuple[Element, ...], rng: Random) -> tuple[Element, ...]:
    """Return a document with some value under a name that is not shown, mostly of a type that is replaced."""
    name = rng.choice((*NOT_SHOWN, b"__v"))
    kind, inner = MAKERS[rng.choice(ALTERED)](rng) if rng.random() < 0.3 else value(rng)  # a share
    new = Element(kind, name, inner)
    if name in {item.name for item in tree} and rng.random() < 0.95:  # else it occurs twice
        return tuple(new if item.name == name else item for item in tree)
    return (*tree, new)


def test_both_ways_come_to_the_same_verdict(example: Example, long_form: bool) -> None:  # noqa: FBT001  # a fixture
    each = EACH_OF_LONG if long_form else EACH
    verdicts, rng = Verdicts(example), Random(f"verdicts {each} {example.entity.name}")  # not for secrets
    proved = copied = ignored = 0
    for raw in documents(example, rng, each):
        found = verdicts.proved(raw)
        if found is not None:
            content, count = found
            equivalences = {"ignored": count} if count else {}
            assert verdicts.counted(raw, content) == ({"equal": 1}, equivalences), raw.hex()
            proved, ignored = proved + 1, ignored + count
        if verdicts.copies(raw):
            assert verdicts.taken(raw), raw.hex()
            copied += 1
    # Else it would prove nothing.
    assert min(proved, copied, ignored) > each // 50, (proved, copied, ignored)


def test_an_ignored_name_keeps_the_fast_path_whatever_it_holds(example: Example, *, long_form: bool) -> None:
    """Whatever the client gives back: objects, lists, doubles, dates and types that JSON does not have."""
    verdicts, rng = Verdicts(example), Random(f"ignored {example.entity.name}")  # not for secrets
    codec = codec_of(example.entity)
    rows = (example_row(example, rng, number) for number in range(BASES))
    bases = [bson.encode({"_id": bson.ObjectId(), **codec.encode(row)}) for row in rows]
    base = next(raw for raw in bases if verdicts.copies(raw) and verdicts.proved(raw) is not None)
    for _ in range(84 if long_form else 40):
        kind, inner = value(rng)
        raw = packed((*parsed(base), Element(kind, IGNORED.encode(), inner)))
        # Levels beyond those that native code follows are left to the exact way.
        if verdicts.taken(raw) and len(raw) - len(base) < FAR_DOWN:
            assert verdicts.copies(raw), raw.hex()
            found = verdicts.proved(raw)
            assert found is not None, raw.hex()
            assert verdicts.counted(raw, found[0]) == ({"equal": 1}, {"ignored": 1}), raw.hex()
