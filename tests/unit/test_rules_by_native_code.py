"""Native code reads documents as rules leave them: packed rows and digests are those of the exact way."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final

import bson
import pytest
from bson.errors import InvalidDocument
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ruled import READINGS, drawn
from tests.support.ruled import RULES as MODULE_RULES
from tests.unit.test_rules_agree import BROKEN, ENTITIES, OPTIONAL, RULES, separate
from twinstore.catalog.row import Row
from twinstore.fast.digests import document_form, render_document
from twinstore.fast.library import library
from twinstore.fast.records import PackedBatch, write_documents
from twinstore.scheduler.catalog import AUDIT, RUNS
from twinstore.testing.scheduler.builders import make_audit_record, make_run
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.rules.model import JobRules, KeyRule, Rule
from twinstore_backfill.verify.rules import verifier_changes
from twinstore_mongo.bulk.digests import changed_document, digest_form
from twinstore_mongo.bulk.export import Exporter, PackedExporter
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.codec import FIRST_VERSION, codec_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.catalog.entity import Entity

BASES: Final[Mapping[Entity, Mapping[str, object]]] = {
    entity: codec_of(entity).encode(Row(model), FIRST_VERSION)
    for entity, model in ((RUNS, make_run("t", "r")), (AUDIT, make_audit_record("t", "a")))
}
# A key that a rule replaces is read the exact way.
KEPT_KEY: Final = RULES.filter(lambda rule: not isinstance(rule, KeyRule) and rule.path != ("_id",))
GIVEN: Final = {
    "rules": st.lists(KEPT_KEY, min_size=1, max_size=4).map(separate),
    "name": st.sampled_from(("runs", "audit")),
    # Few values of a document are others than native code reads, or no rule would ever lead to one.
    "parts": st.lists(
        st.lists(st.sampled_from(sorted(OPTIONAL)), max_size=2, unique=True).flatmap(
            lambda names: st.fixed_dictionaries({name: OPTIONAL[name] for name in names})
        ),
        min_size=1,
        max_size=4,
    ),
}

pytestmark = pytest.mark.skipif(library() is None, reason="there is no fast path")


def stored(entity: Entity, number: int, part: Mapping[str, object]) -> bytes | None:
    """Return a document as a server has it, some with broken text or a name twice; ``None`` for none."""
    document = {**BASES[entity], **deepcopy(part), "_id": f"r{number}"}
    try:
        raw = bson.encode(document).replace(BROKEN.encode(), b"\xff\xff\xff")
    except (InvalidDocument, UnicodeEncodeError):
        return None
    return raw.replace(b"price\0", b"error\0") if number % 2 else raw


def check(rules: tuple[Rule, ...], entity: Entity, parts: Sequence[Mapping[str, object]]) -> tuple[int, int]:
    """Compare both ways; return how many changed documents native code packed and showed."""
    made = (stored(entity, number, part) for number, part in enumerate(parts))
    raws = [raw for raw in made if raw is not None]
    job = JobRules(rules)
    if not job.changing(entity):
        return 0, 0
    return packed(job, entity, raws), shown(job, entity, raws)


def packed(job: JobRules, entity: Entity, raws: Sequence[bytes]) -> int:
    exporter = Exporter(codec_of(entity), change=copier_changes(job, [entity]).documents[entity.name])
    native = native_documents(entity)
    assert native is not None
    exact = [exporter.careful_record(raw) for raw in raws]
    found = [
        record
        for batch in PackedExporter(exporter, native).batches(iter([b"".join(raws)]))
        for record in batch
    ]
    assert [(one.key, one.error, one.model, one.rules) for one in found] == [
        (one.key, one.error, one.model, one.rules) for one in exact
    ]
    changed = 0
    for raw, record in zip(raws, exact, strict=True):
        (batch,) = PackedExporter(exporter, native).batches(iter([raw]))
        if not isinstance(batch, PackedBatch) or not batch.packed:
            continue
        assert record.model is not None
        assert (batch.key(0), batch.owner_of(0)) == (record.key, record.owner)
        assert list(batch.rules().get(0, ())) == list(record.rules)
        written = write_documents(native, batch.rows)
        assert written is not None
        row = Row(record.model, record.storage)
        assert written.document(0) == bson.encode(codec_of(entity).encode(row, FIRST_VERSION))
        changed += bool(record.rules)
    return changed


def shown(job: JobRules, entity: Entity, raws: Sequence[bytes]) -> int:
    changes, found = verifier_changes(job, [entity]), library()
    assert found is not None
    scan, form = CollectionScan.of(entity, changes), document_form(found, digest_form(entity, of_source=True))
    changed = 0
    for raw in raws:
        after, numbers = changed_document(CollectionScan.of(entity), changes.documents[entity.name], raw)
        content = render_document(found, form, after)
        if content is not None:
            (row,) = scan.rows(raw)
            assert (row.error, row.content, row.rules) == (None, content, numbers)
            changed += bool(numbers)
    return changed


def test_what_rules_make_right_is_packed_and_shown() -> None:
    rules = tuple(
        rule for rule in MODULE_RULES if rule.entity == "readings" and not isinstance(rule, KeyRule)
    )
    documents = [item.document for item in drawn(400, 1) if item.entity is READINGS]
    raws = [
        bson.encode({**{name: document[name] for name in document if name != "code"}, "_id": f"{number:04}"})
        for number, document in enumerate(documents)
    ]
    # Some doubles are whole numbers, which no driver stores so, and one in fifty is bad.
    most = len(raws) * 0.9
    assert packed(JobRules(rules), READINGS, raws) > most
    assert shown(JobRules(rules), READINGS, raws) > most


@settings(max_examples=400)
@given(**GIVEN)
def test_packed_rows_and_digests_are_those_of_the_exact_way(
    rules: tuple[Rule, ...], name: str, parts: list[dict[str, object]]
) -> None:
    check(rules, ENTITIES[name], parts)


@pytest.mark.long
@settings(max_examples=20_000)
@given(**GIVEN)
def test_they_are_of_many_more_documents(
    rules: tuple[Rule, ...], name: str, parts: list[dict[str, object]]
) -> None:
    check(rules, ENTITIES[name], parts)
