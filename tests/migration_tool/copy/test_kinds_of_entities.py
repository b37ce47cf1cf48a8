"""Entities of every kind: numbers in keys, rows without tenant, and rows that no copy brings over."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

import pytest

from tests.support.copies import (
    AS_OF,
    BY_HAND,
    DOCUMENTS_PER_TENANT,
    MemoryPair,
    contents_of,
    fill,
    invoke,
    memory_pair,
)
from twinstore.bulk.rows import ScanRow
from twinstore.catalog.entity import CopyPolicy, Entity, Module
from twinstore.catalog.keys import KeyRange, int64, text
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, Tenancy
from twinstore.errors import TwinstoreError, ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id, PositiveInt, TenantId, Text
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.options import ModuleOptions
from twinstore.scheduler.catalog import AUDIT, SCHEDULER
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.report.model import RangeReport
from twinstore_backfill.stores import Store
from twinstore_backfill.verify.ranges import RangeComparison, compare_range, keyed
from twinstore_backfill.verify.sampling import compare_sample
from twinstore_backfill.verify.summary import EntityFindings
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.bulk import MemoryBulk
from twinstore_memory.rows import DocumentRow, store_unchecked, stored_rows
from twinstore_memory.store import MemoryDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.catalog.keys import Key
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.copy.report import CopyResult
    from twinstore_backfill.report.model import EntityReport


class Note(CanonicalModel):
    """A row that may be without tenant, and whose key holds a number."""

    run_id: Id
    sequence: PositiveInt
    tenant_id: TenantId | None = None
    content: Text = ""


NOTES: Final = Entity(
    name="notes",
    singular="note",
    module="notebook",
    model=Note,
    key_parts=(text("runId"), int64("sequence")),
    tenancy=Tenancy.optional(),
    group="notes",
)
NOTEBOOK: Final[ModuleSpec[None]] = ModuleSpec(
    catalog=Module(name="notebook", entities=(NOTES,)),
    title="Notebook",
    package="tests",
)


class Notebooks:
    """Two stores of notes, of which the source is filled."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stores = (MemoryDatabase(uuid4().hex), MemoryDatabase(uuid4().hex))
        self.source, self.target = (
            Store(
                "Memory",
                cast("SchedulerStorage", MemoryBackend(NOTEBOOK, store)),
                ModuleOptions(),
                module=NOTEBOOK.name,
            )
            for store in self.stores
        )
        access = self.source.bulk.access()
        for number in (1, 2, 9, 10, 11, 100):
            for tenant in (None, "acme"):
                note = Note(run_id=f"run-{tenant}", sequence=number, tenant_id=tenant, content="x" * number)
                access.insert(NOTES, ALL_TENANTS, Row(note))

    def copy(self, **options: object) -> CopyResult:
        given = {"out": self.directory, "as_of": AS_OF, "range_size": 2, "execute": True, **options}
        copy_options = CopyOptions(**given)  # type: ignore[arg-type]  # the options of a test
        return run_copy(self.source, self.target, copy_options, SilentProgress(), StopSwitch())

    def compare(self, tenant: str | None = None) -> EntityReport:
        work = RangeComparison(self.source.bulk, self.target.bulk, NOTES, tenant, None)
        findings = EntityFindings(NOTES, {})
        for within in self.source.bulk.cut(NOTES, 3):
            findings.add(compare_range(work, within))
        return findings.report()


@pytest.fixture
def notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notebooks:
    # It is not installed.
    monkeypatch.setattr("twinstore.plugins.modules.module_spec", lambda _: NOTEBOOK)
    return Notebooks(tmp_path)


def change(notebooks: Notebooks, side: int, key: Key, **changes: object) -> None:
    row = stored_rows(notebooks.stores[side], NOTES)[key]
    store_unchecked(notebooks.stores[side], DocumentRow(NOTES, key, {**row.document, **changes}))


class TestNumbersInKeys:
    def test_rows_are_copied_and_compared_in_the_order_of_numbers(self, notebooks: Notebooks) -> None:
        result = notebooks.copy()
        assert (result.exit, result.complete, result.totals.all()["written"]) == (Exit.OK, True, 12)
        assert contents_of(notebooks.target.bulk, NOTES) == contents_of(notebooks.source.bulk, NOTES)
        report = notebooks.compare()
        assert (report.result, report.counts.equal) == ("pass", 12)
        keys = [part.lower for part in report.ranges if part.lower is not None]
        assert keys == sorted(keys)
        assert ("run-None", 10) in keys

    def test_the_ledger_and_the_files_keep_numbers(self, notebooks: Notebooks) -> None:
        change(notebooks, 0, ("run-acme", 100), content=17)
        assert notebooks.copy().exit is Exit.INCONCLUSIVE
        (line,) = (notebooks.directory / "quarantine.ndjson").read_text().splitlines()
        assert json.loads(line)["key"] == ["run-acme", 100]
        (job,) = notebooks.target.ledger.jobs()
        uppers = [item.within.upper for item in notebooks.target.ledger.ranges(job.id)]
        assert ("run-acme", 9) in uppers

    def test_a_report_names_a_number_as_a_number(self, notebooks: Notebooks) -> None:
        notebooks.copy()
        change(notebooks, 1, ("run-acme", 10), content="other")
        report = notebooks.compare()
        (different,) = report.different.shown
        assert (different.key, different.paths) == (("run-acme", 10), ("doc.content",))
        again = type(report).model_validate_json(report.model_dump_json())
        assert again == report
        assert [type(part) for part in again.different.shown[0].key] == [str, int]

    def test_a_text_that_looks_like_a_number_stays_a_text(self) -> None:
        digest = {"count": 0, "xor": "0" * 32, "sum": "0" * 32}
        ends = {"lower": ["17", 17], "upper": None}
        part = RangeReport.model_validate(
            {"tenant": None, **ends, "source": digest, "target": digest, "equal": True}
        )
        assert part.lower == ("17", 17)

    def test_a_key_of_another_type_is_no_key(self, notebooks: Notebooks) -> None:
        key = cast("Key", ("run-acme", "10"))
        store_unchecked(notebooks.stores[0], DocumentRow(NOTES, key, {"runId": "run-acme", "sequence": "10"}))
        result = notebooks.copy()
        assert result.exit is Exit.INCONCLUSIVE
        (entry,) = result.quarantine
        assert entry["key"] is None
        assert notebooks.compare().quarantined.count == 1

    def test_a_scan_whose_keys_are_of_another_type_is_not_trusted(self) -> None:
        scanned = iter([[ScanRow(("run", "1"))]])
        with pytest.raises(TwinstoreError, match="of another type"):
            list(keyed(scanned, NOTES, KeyRange(), "source", lambda _: None))

    def test_a_sample_is_chosen_by_keys_with_numbers(self, notebooks: Notebooks) -> None:
        notebooks.copy()
        work = RangeComparison(notebooks.source.bulk, notebooks.target.bulk, NOTES, None, None)
        found = compare_sample(work, KeyRange(), {":none": 1.0, "acme": 0.0}, seed=1)
        assert {label: result.counts["equal"] for label, result in found.tenants.items()} == {":none": 6}


class TestOwners:
    def test_rows_without_tenant_are_distinguished_from_those_of_an_unknown_one(
        self, notebooks: Notebooks
    ) -> None:
        change(notebooks, 0, ("run-acme", 100), tenantId=17)
        result = notebooks.copy()
        (notes,) = result.totals.document(result.entities)
        tenants = cast("list[dict[str, object]]", notes["tenants"])
        assert [(item["tenant"], item["read"], item["written"]) for item in tenants] == [
            ("", 1, 0),
            (":none", 6, 6),
            ("acme", 5, 5),
        ]
        report = notebooks.compare()
        assert {item.tenant: item.counts.equal for item in report.tenants} == {"": 0, ":none": 6, "acme": 5}
        assert report.quarantined.shown[0].tenant == ""

    def test_one_tenant_is_copied_without_rows_that_have_no_tenant(self, notebooks: Notebooks) -> None:
        assert notebooks.copy(tenants=["acme"]).totals.all()["written"] == 6
        assert notebooks.target.bulk.counts(NOTES) == {"acme": 6}
        assert notebooks.compare("acme").result == "pass"

    def test_a_row_that_lost_its_tenant_is_different(self, notebooks: Notebooks) -> None:
        notebooks.copy()
        row = stored_rows(notebooks.stores[1], NOTES)["run-acme", 1]
        document = {name: value for name, value in row.document.items() if name != "tenantId"}
        store_unchecked(notebooks.stores[1], DocumentRow(NOTES, row.key, document))
        report = notebooks.compare()
        assert [item.paths for item in report.different.shown] == [("doc.tenantId (only in source)",)]
        assert {item.tenant: item.target.count for item in report.tenants} == {":none": 7, "acme": 5}


class TestLeftOut:
    """Rows that come again by themselves are counted on both sides, and neither copied nor compared."""

    @pytest.fixture
    def pair(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryPair]:
        described = tuple(
            replace(entity, copy_policy=CopyPolicy.LEFT_OUT) if entity == AUDIT else entity
            for entity in SCHEDULER.entities
            if entity.copy_policy is not CopyPolicy.LEFT_OUT
        )
        with memory_pair(tmp_path) as pair:
            fill(pair.source.storage)
            monkeypatch.setattr(MemoryBulk, "entities", lambda _: described)
            yield pair

    def test_a_copy_leaves_them_out_and_says_so(
        self, pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ("backfill", "copy", *pair.sides, "--out", tmp_path, "--as-of", AS_OF.isoformat())
        answer = invoke(capsys, *command, "--execute")
        assert (answer.code, "audit: skipped; 8 rows in source, 0 in target." in answer.out) == (0, True)
        assert pair.target.bulk.counts(AUDIT) == {}
        report = json.loads((tmp_path / "backfill-report.json").read_text())
        assert report["left_out"] == [
            {
                "entity": "audit",
                "why": CopyPolicy.LEFT_OUT.value,
                "source": {"acme": 4, "umbrella": 4},
                "target": {},
            }
        ]
        assert "audit" not in [item["entity"] for item in report["entities"]]
        (job,) = pair.target.ledger.jobs()
        assert "audit" not in {item.entity for item in pair.target.ledger.ranges(job.id)}

    def test_a_plan_counts_them_separately(
        self, pair: MemoryPair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ("backfill", "plan", *pair.sides)
        assert "audit: skipped; 8 rows in source, 0 in target." in invoke(capsys, *command).out
        plan = invoke(capsys, *command, "--format", "json").json
        assert [item["entity"] for item in plan["left_out"]] == ["audit"]
        assert plan["rows"] == 2 * (DOCUMENTS_PER_TENANT - BY_HAND[AUDIT])

    def test_a_comparison_counts_them_and_looks_at_nothing_else(self, pair: MemoryPair) -> None:
        pair.copy()
        for key, row in stored_rows(pair.stores[0], AUDIT).items():
            store_unchecked(pair.stores[1], DocumentRow(AUDIT, key, {**row.document, "action": "other"}))
        report = pair.verify()
        assert (report.verdict, report.cutover_ready) == ("PASS", True)
        (left_out,) = report.left_out
        assert (left_out.entity, left_out.source, left_out.target) == (
            "audit",
            {"acme": 4, "umbrella": 4},
            {"acme": 4, "umbrella": 4},
        )
        assert "audit" not in {entity.entity for entity in report.entities}

    @pytest.mark.parametrize("command", ["plan", "copy", "verify"])
    def test_requesting_them_by_name_is_refused(
        self, command: str, pair: MemoryPair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = invoke(capsys, "backfill", command, *pair.sides, "--entity", "audit")
        assert (answer.code, "'audit' is skipped" in answer.err) == (Exit.USAGE, True)

    def test_a_fresh_start_does_not_mind_them(self, pair: MemoryPair) -> None:
        for key, row in stored_rows(pair.stores[0], AUDIT).items():
            store_unchecked(pair.stores[1], DocumentRow(AUDIT, key, row.document))
        with pytest.raises(ValidationError):
            pair.verify(entities=["audit"])
        assert pair.copy(execute=False).totals.of("audit").total() == 0
