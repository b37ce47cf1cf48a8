"""A verification by digests first finds what one row by row finds, and says the same of it."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from datetime import timedelta
from itertools import count as numbers
from itertools import groupby
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.migration_tool.verify.test_verify import change, remove
from tests.support.copies import AS_OF, MemoryPair, Pair, fill, long_ago, memory_pair
from tests.support.digests import cell_of, digests_of_rows, give_digests, limit_digests
from twinstore.bulk.rows import Cell, Counted, Digestible, NoDigests, RangeDigests, ScanRow
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import UnavailableError
from twinstore.fast.library import SWITCH
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run, moved
from twinstore_backfill.ignored import IgnoredPath
from twinstore_backfill.process.files import json_text
from twinstore_backfill.process.stopping import StopRequestedError, StopSwitch
from twinstore_backfill.progress.record import RecordedProgress, SilentProgress
from twinstore_backfill.report.model import Envelope, RangeShares
from twinstore_backfill.report.texts import proved_text
from twinstore_backfill.report.writing import ReportFormat, render
from twinstore_backfill.subset import Subset
from twinstore_backfill.verify import partition as dividing
from twinstore_backfill.verify.digest_ranges import Proof
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.lists import ListTask
from twinstore_backfill.verify.options import VerifyOptions
from twinstore_backfill.verify.partition import EarlyCuts, Partition, partition, readers_of
from twinstore_backfill.verify.plan import WRITTEN
from twinstore_backfill.verify.tasks import OpenPartsTask
from twinstore_memory.bulk import MemoryBulk, MemoryView
from twinstore_memory.rows import DocumentRow, encode, store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.verify.context import VerifyContext
    from twinstore_backfill.verify.findings import RangeResult
    from twinstore_backfill.verify.lists import ListResult

A_PART: Final = "a part of the rows or of their fields is compared"
ENVELOPE: Final = Envelope(generated_at="", host="", as_of="", seconds=0)
TENANTS: Final = ("acme", "umbrella", "wayne")
RANGE: Final = 10

pytestmark = pytest.mark.native


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryPair]:
    """Return two stores with the same content that compute digests; their ranges have three rows."""
    monkeypatch.setattr("twinstore_backfill.verify.partition.ROWS_PER_DIGEST", 3)
    give_digests(monkeypatch, MemoryBulk, MemoryView)
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, TENANTS)
        for number in range(60):
            pair.source.storage.runs.create(make_run(TENANTS[number % 3], f"run-{number:02}"))
        pair.copy(max_quarantine=None)
        yield pair


def compared(
    pair: Pair,
    progress: Progress | None = None,
    **options: Any,  # noqa: ANN401  # those of a verification
) -> tuple[ParityReport, bytes]:
    """Return the report, and every finding as a line."""
    lines: list[bytes] = []
    given = VerifyOptions(**{"as_of": AS_OF, "range_size": RANGE, **options})
    told = progress or SilentProgress()
    report = run_verify(pair.source, pair.target, given, told, StopSwitch(), lines.extend)
    return report, b"".join(lines)


def assert_alike(pair: Pair, patch: pytest.MonkeyPatch, **options: Any) -> ParityReport:  # noqa: ANN401  # the same
    """Compare with digests and without; return the report of the former, which says the same."""
    report, lines = compared(pair, **options)
    with patch.context() as without:
        without.setenv(SWITCH, "off")
        plain, plain_lines = compared(pair, **options)
    assert plain.envelope.ranges is None or plain.envelope.ranges.by_digests == 0
    assert plain.envelope.fast_path is not None
    assert plain.envelope.fast_path.state == "off"
    assert lines == plain_lines
    assert render(report, ReportFormat.JSON) == json_text(report.model_dump(mode="json"))
    for form in ReportFormat:
        one, other = (
            render(item.model_copy(update={"envelope": ENVELOPE}), form) for item in (report, plain)
        )
        assert one == other
    return report


def shares(report: ParityReport) -> RangeShares:
    assert report.envelope.ranges is not None
    return report.envelope.ranges


@pytest.fixture(params=[(80_000, 20_000), (20, 4)], ids=["by owner", "folded"])
def limited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Limit the memory of digests; return whether owners are folded, and ranges read some at a time."""
    cells, ranges = request.param
    limit_digests(monkeypatch, cells, ranges)
    # Then the report has its ranges on disk.
    monkeypatch.setattr("twinstore_backfill.report.model.RANGE_BYTES", 50 * ranges)
    return bool(ranges == 4)


@pytest.mark.usefixtures("limited")
def test_equal_stores_are_proved_by_digests_alone(pair: MemoryPair, monkeypatch: pytest.MonkeyPatch) -> None:
    report = assert_alike(pair, monkeypatch, entities=("runs", "audit"))
    assert report.verdict == "PARTIAL"
    # Cut at each third row and, as the report has them, at each tenth.
    assert shares(report) == RangeShares(by_digests=33 + 5, row_by_row=0)
    assert report.envelope.fast_path is not None
    assert report.envelope.fast_path.rows == report.envelope.fast_path.of == report.documents_equal
    assert proved_text(report) == "Ranges proved by 128-bit digests of every row: 38; row by row: 0."


@pytest.mark.usefixtures("limited")
def test_of_rows_that_differ_only_their_own_small_ranges_are_compared_row_by_row(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shares(compared(pair, entities=("runs",))[0])
    change(pair.stores[1], RUNS, "run-05", scheduleId="another")
    remove(pair.stores[1], RUNS, "run-40")
    report = assert_alike(pair, monkeypatch, entities=("runs",))
    assert report.verdict == "FAIL"
    assert shares(report) == RangeShares(by_digests=whole.by_digests - 2, row_by_row=2)


def test_wild_stores_give_the_same_report_and_the_same_findings(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch, *, limited: bool
) -> None:
    """Seeded faults on both sides, expired rows, rows in quarantine and rows that only one side has."""
    random_ = random.Random(13)
    ended = long_ago(400)
    for number in range(4):
        run = make_run(TENANTS[number % 3], f"old-{number}", created_at=ended - timedelta(hours=1))
        old = moved(run, RunState.CANCELLED).evolve(finished_at=ended)
        for store in pair.stores[: 1 + number % 2]:
            store_unchecked(store, encode(RUNS, old))
    for store in pair.stores:
        for name, key in ((RUNS, "run-{:02}"), (AUDIT, "acme-audit-{}"), (SCHEDULES, "wayne-schedule-{}")):
            for _ in range(5):
                chosen = key.format(random_.randrange(60 if name is RUNS else 3))
                change(store, name, chosen, **_fault(random_))
    for number in random_.sample(range(60), 4):
        row = stored_rows(pair.stores[0], RUNS)[f"run-{number:02}",]
        document = {**row.document, "id": f"stray-{number}"} | ({"unknown": 1} if number % 2 else {})
        store_unchecked(pair.stores[0], DocumentRow(RUNS, (f"stray-{number}",), document, row.markers))
    report = assert_alike(pair, monkeypatch)
    kinds = sum((Counter(entity.counts.model_dump()) for entity in report.entities), Counter[str]())
    assert {"missing", "different", "quarantined", "expired_source", "expired_target"} <= set(+kinds)
    assert shares(report).by_digests > shares(report).row_by_row > 0
    assert_alike(pair, monkeypatch, tenants=("acme", "wayne"))
    if not limited:
        assert_alike(pair, monkeypatch, jobs=3)


@given(*[st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=5)] * 2)
@settings(max_examples=300)
def test_only_the_same_rows_of_the_same_owners_have_the_same_folded_digest(
    left: list[tuple[str, str]], right: list[tuple[str, str]]
) -> None:
    """Also where the content does not show the owner: moved, exchanged, missing or counted twice."""
    found: list[Cell] = []
    for rows in (left, right):
        found.append(Cell())
        for owner, content in rows:
            row = ScanRow(("k",), Tenant(owner), content.encode())
            found[-1].merge(cell_of(row, bytes(16), due=False))
    one, other = found
    assert ((one.count, one.keyed) == (other.count, other.keyed)) == (Counter(left) == Counter(right))


@pytest.mark.parametrize("limited", [(3, 4)], ids=["folded"], indirect=True)
@pytest.mark.parametrize("side", ["both", "source", "target"])
def test_rows_written_between_two_readings_of_digests_are_compared_one_by_one(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch, side: str, *, limited: bool
) -> None:
    """Which owners the proof is of would be unknown."""
    assert limited
    change(pair.stores[1], RUNS, "run-05", scheduleId="another")
    written: list[str] = []

    def digests(view: MemoryView, entity: Entity, bounds: Sequence[Key], **given: Any) -> RangeDigests:  # noqa: ANN401  # as it is called
        here, store = ("source", pair.stores[0]) if given["of_source"] else ("target", pair.stores[1])
        # Each side before it is read again itself: both are read at the same time.
        if side in {"both", here} and here not in written and not (given["folded"] or bounds):
            written.append(here)
            change(store, RUNS, "run-05", tenantId="acme", reason={"manualReason": "late"})
        return digests_of_rows(view, entity, bounds, **given)

    monkeypatch.setattr(MemoryView, "digests", digests)
    report = compared(pair, entities=("runs",))[0]
    assert set(written) == ({"source", "target"} if side == "both" else {side})
    assert report.envelope.without_digests == {"runs": WRITTEN}
    monkeypatch.undo()
    # Both sides were counted before.
    (found,), (wanted,) = report.entities, compared(pair, entities=("runs",))[0].entities
    assert (found.counts, found.different, found.ranges) == (wanted.counts, wanted.different, wanted.ranges)


def _fault(random_: random.Random) -> dict[str, object]:
    faults: list[dict[str, object]] = [
        {"createdAt": "2025-10-26T14:05:00Z"},
        {"tenantId": "a:b"},
        {"tenantId": "umbrella"},
        {"unknown": 1},
        {"state": "canceled"},
        {"name": " blank "},
        {"createdAt": at(7.001)},
        {"error": ""},
    ]
    return random_.choice(faults)


@pytest.mark.parametrize(
    "options", [{"mode": "sample", "sample_size": 10}, {"since": True}, {"ignored_fields": True}]
)
def test_what_asks_for_a_part_goes_row_by_row(pair: MemoryPair, options: dict[str, Any]) -> None:
    given = dict(options)
    if given.pop("since", None):
        given |= {"subset": Subset(since=at(-1)), "entities": ("runs",)}
    if given.pop("ignored_fields", None):
        given |= {"ignored_fields": (IgnoredPath("runs", ("reason",)),)}
    found = compared(pair, **given)[0].envelope.ranges
    assert found is None or found.by_digests == 0


def test_the_progress_ends_where_it_would_without_digests(pair: MemoryPair) -> None:
    change(pair.stores[1], RUNS, "run-05", scheduleId="another")
    progress = RecordedProgress()
    compared(pair, progress)
    state = progress.state("documents")
    assert (state.done, state.finished) == (state.total, True)
    lists = progress.state("lists")
    assert (lists.done, lists.finished) == (lists.total, True)


def test_a_stop_while_digests_are_read_ends_the_verification(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopSwitch()

    def stopping(view: MemoryView, entity: Entity, bounds: Sequence[Key], **given: Any) -> RangeDigests:  # noqa: ANN401  # as it is called
        stop.request()
        return digests_of_rows(view, entity, bounds, **given)

    monkeypatch.setattr(MemoryView, "digests", stopping)
    options = VerifyOptions(as_of=AS_OF, range_size=RANGE)
    with pytest.raises(StopRequestedError):
        run_verify(pair.source, pair.target, options, SilentProgress(), stop)


def test_a_failure_of_one_side_ends_the_reading_of_the_other(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, readers = Event(), numbers(1)

    def failing(view: MemoryView, entity: Entity, bounds: Sequence[Key], **given: Any) -> RangeDigests:  # noqa: ANN401  # as it is called
        if next(readers) > 1:
            failed.set()
            raise UnavailableError("the server is away")
        assert failed.wait(30)
        return digests_of_rows(view, entity, bounds, **given)

    monkeypatch.setattr(MemoryView, "digests", failing)
    with pytest.raises(UnavailableError, match="away"):
        compared(pair, entities=("runs",))


def test_a_driver_that_changes_its_mind_or_lacks_memory_leaves_everything_to_the_rows(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, NoDigests | MemoryError] = {
        "busy": NoDigests("busy"),
        "there is too little memory for them": MemoryError(),
    }
    for reason, answer in answers.items():

        def digests(*_: object, answer: NoDigests | MemoryError = answer, **__: object) -> NoDigests:
            if isinstance(answer, NoDigests):
                return answer
            raise answer

        monkeypatch.setattr(MemoryView, "digests", digests)
        report = assert_alike(pair, monkeypatch)
        assert shares(report).by_digests == 0
        found = report.envelope.without_digests
        assert found.keys() == {entity.entity for entity in report.entities}
        assert found["runs"] in {f"source: {reason}", f"target: {reason}"}
        assert found["locks"] == "its rows are copied as released, with the higher of the two fences"


def test_the_envelope_names_the_entities_that_were_compared_without_digests(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every rendering does, with the reason."""
    always = compared(pair)[0].envelope.without_digests
    assert always.keys() == {"graph_job_events", "graph_jobs", "impact_snapshots", "locks", "policy_jobs"}
    monkeypatch.setattr(dividing, "MOST_CELLS", 2)
    report = assert_alike(pair, monkeypatch)
    reason = "3 owners would need more than 2 digests in memory"
    assert report.envelope.without_digests.items() >= {**always, "runs": reason}.items()
    assert report.verdict == "PASS"
    for form in ReportFormat:
        shown = render(report, form).decode()
        assert re.search(rf"\bruns\b[^()]* \({reason}\)", shown) or form is ReportFormat.JSON
        assert reason in shown
    parts: dict[str, Any]
    for parts in (
        {"subset": Subset(since=at(-1)), "entities": ("runs",)},
        {"ignored_fields": (IgnoredPath("runs", ("reason",)),), "entities": ("runs",)},
    ):
        assert compared(pair, **parts)[0].envelope.without_digests == {"runs": A_PART}
    sampled = compared(pair, mode="sample")[0].envelope.without_digests
    assert set(sampled.values()) == {"a sample is compared"}
    monkeypatch.setenv(SWITCH, "off")
    report = compared(pair)[0]
    assert set(report.envelope.without_digests.values()) == {"the fast path is off"}
    assert b"No digests were used: the fast path is off." in render(report, ReportFormat.MARKDOWN)


def test_each_run_draws_a_key_that_both_sides_use(pair: MemoryPair, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[bytes] = []

    def digests(view: MemoryView, entity: Entity, bounds: Sequence[Key], **given: Any) -> RangeDigests:  # noqa: ANN401  # as it is called
        used.append(given["secret"])
        return digests_of_rows(view, entity, bounds, **given)

    monkeypatch.setattr(MemoryView, "digests", digests)
    reports = [compared(pair)[0] for _ in range(2)]
    first, second = used[: len(used) // 2], used[len(used) // 2 :]
    assert len(set(first)) == len(set(second)) == 1
    assert first != second
    assert {len(secret) for secret in used} == {16}
    alike = (report.model_copy(update={"envelope": ENVELOPE}) for report in reports)
    one, other = (render(report, ReportFormat.JSON) for report in alike)
    assert one == other
    assert reports[0].envelope.without_digests == reports[1].envelope.without_digests


def test_lists_are_compared_with_the_ranges_and_again_where_a_row_of_the_target_is_larger(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    honest = ListTask.run

    def run(self: ListTask, context: VerifyContext) -> ListResult:
        asked.append(self.page)
        return honest(self, context)

    monkeypatch.setattr(ListTask, "run", run)
    assert compared(pair)[0].verdict == "PASS"
    assert asked == [50] * (len(TENANTS) + 1)
    asked.clear()
    change(pair.stores[1], AUDIT, "acme-audit-0", message="x" * 20_000)
    compared(pair)
    assert asked == [50] * (len(TENANTS) + 1) + [24] * (len(TENANTS) + 1)
    assert_alike(pair, monkeypatch)


def in_turn(pair: MemoryPair, patch: pytest.MonkeyPatch, told: int | None, *, early: bool) -> None:
    """Compare stores whose digests end only after a list, or the other way round.

    With ``early`` a list comes first. The count of rows reports the given number of bytes for the largest
    row, and ``patch`` changes how the stores are read.
    """
    listed, digested = Event(), Event()
    honest = ListTask.run

    def run(self: ListTask, context: VerifyContext) -> ListResult:
        assert early or digested.is_set()
        listed.set()
        return honest(self, context)

    def digests(view: MemoryView, entity: Entity, bounds: Sequence[Key], **given: Any) -> RangeDigests:  # noqa: ANN401  # as it is called
        assert not early or listed.wait(30), "no list is compared before digests have ended"
        found = digests_of_rows(view, entity, bounds, **given)
        digested.set()
        return found

    patch.setattr(ListTask, "run", run)
    patch.setattr(MemoryView, "digests", digests)
    patch.setattr(MemoryBulk, "counted", lambda port, entity: Counted(port.counts(entity), told))
    assert compared(pair, entities=("runs",))[0].verdict == "PARTIAL"
    assert listed.is_set()


def test_lists_of_small_rows_do_not_wait_for_the_digests(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_turn(pair, monkeypatch, 700, early=True)


@pytest.mark.parametrize("told", [None, 5_001])
def test_lists_wait_for_the_digests_where_a_row_may_be_large(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch, told: int | None
) -> None:
    in_turn(pair, monkeypatch, told, early=False)


def test_lists_wait_for_the_digests_where_they_would_need_their_connections(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that reads digests, one for lists, and the two that compare rows and cut ranges.
    monkeypatch.setattr(type(pair.target.storage), "concurrency", 3)
    in_turn(pair, monkeypatch, 700, early=False)


def test_digests_are_not_read_far_ahead_of_the_rows_that_are_compared(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, str]] = []
    honest = OpenPartsTask.run

    def run(self: OpenPartsTask, context: VerifyContext) -> RangeResult:
        order.append(("compared", self.proved.entity))
        return honest(self, context)

    def digests(view: MemoryView, entity: Entity, bounds: Sequence[Key], **given: Any) -> RangeDigests:  # noqa: ANN401  # as it is called
        order.append(("digested", entity.name))
        return digests_of_rows(view, entity, bounds, **given)

    monkeypatch.setattr(OpenPartsTask, "run", run)
    monkeypatch.setattr(MemoryView, "digests", digests)
    monkeypatch.setattr("twinstore_backfill.verify.plan.READ_AHEAD", 0)
    assert compared(pair)[0].verdict == "PASS"
    names = [name for name, _ in groupby(name for _, name in order)]
    assert len(names) == len(set(names)) > 3
    for name in names:
        first, *_ = kinds = [kind for kind, of in order if of == name]
        assert (first, kinds.count("digested")) == ("digested", 2)


@pytest.mark.parametrize("most", [4000, 5])
def test_the_source_is_cut_while_both_sides_count(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """And again if so many rows are counted that ranges for digests must be larger."""
    monkeypatch.setattr(dividing, "MOST_RANGES", most)
    cutting, cuts = Event(), list[int]()
    cut, counts = MemoryBulk.cut, MemoryBulk.counts

    def cut_noted(port: MemoryBulk, entity: Entity, rows: int, **given: Any) -> Iterator[KeyRange]:  # noqa: ANN401  # as it is called
        cuts.append(rows)
        cutting.set()
        return cut(port, entity, rows, **given)

    def counts_behind(port: MemoryBulk, entity: Entity, **given: Any) -> dict[str, int]:  # noqa: ANN401  # as it is called
        assert cutting.wait(30), "nothing is cut before the rows are counted"
        return counts(port, entity, **given)

    monkeypatch.setattr(MemoryBulk, "cut", cut_noted)
    monkeypatch.setattr(MemoryBulk, "counts", counts_behind)
    report, _ = compared(pair, entities=("runs",), range_size=30)
    assert cuts[0] == 3
    assert sorted(cuts[1:]) == ([30] if most == 4000 else [16, 30])
    assert report.documents_equal == 81
    assert shares(report).row_by_row == 0


def test_a_cut_without_a_waiting_caller_ends(pair: MemoryPair) -> None:
    with EarlyCuts(pair.source.bulk) as cuts:
        cuts.begin(RUNS, None, 3)
        cuts.begin(RUNS, None, 3)
        assert len(cuts.take(RUNS, None)) == 26
        begun, going = Event(), Event()

        def endless(_rows: object, **_: object) -> Iterator[KeyRange]:
            begun.set()
            while not going.is_set():
                yield KeyRange(None, ("x",))

        with patch.object(MemoryBulk, "cut", lambda _port, _entity, rows, **given: endless(rows, **given)):
            cuts.begin(RUNS, None, 3)
            assert begun.wait(30)
    assert not going.is_set()


def test_an_expired_row_of_a_source_that_is_not_judged_is_looked_at(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that no copy accepts stays in quarantine however old it is; only a model can decide that."""
    ended = long_ago(400)
    run = make_run("acme", "old", created_at=ended - timedelta(hours=1))
    row = encode(RUNS, moved(run, RunState.CANCELLED).evolve(finished_at=ended))
    store_unchecked(pair.stores[0], DocumentRow(RUNS, row.key, {**row.document, "unknown": 1}, row.markers))
    target = pair.target.bulk.identity
    monkeypatch.setattr(
        MemoryBulk,
        "digestible",
        lambda port, _entity: Digestible.PREVALIDATED if port.identity == target else Digestible.ROWS,
    )
    report = assert_alike(pair, monkeypatch, entities=("runs",))
    assert [entity.counts.quarantined for entity in report.entities] == [1]
    assert shares(report).row_by_row == 1


def proof(
    source: RangeDigests | None = None, target: RangeDigests | None = None, **cells: tuple[int, int, int]
) -> Proof:
    """Return what two sides prove that have one row in range 1 each."""
    one = {(1, "acme"): Cell(1, 0, 7, 7, 10, 7)}
    count, expired, keyed = cells.get("cell", (1, 0, 7))
    other = {(1, "acme"): Cell(count, expired, 7, 7, 10, keyed)}
    left, right = source or RangeDigests(), target or RangeDigests()
    left.cells, right.cells = one, other
    return Proof(left, right)


def test_only_what_both_sides_agree_in_is_proved() -> None:
    assert proof().proves(1)
    assert proof().proves(0)
    assert not proof(cell=(1, 0, 8)).proves(1)
    assert not proof(cell=(2, 0, 7)).proves(1)
    # Of the target it is known that retention removes them, whatever they hold.
    assert proof(cell=(1, 3, 7)).proves(1)
    assert not proof(RangeDigests(unproven={1})).proves(1)
    assert proof(RangeDigests(unproven={1})).proves(0)
    assert not proof(target=RangeDigests(unproven={1})).proves(1)
    assert not proof(RangeDigests(unplaced=1)).proves(0)
    assert proof(RangeDigests(judged=False)).proves(1)
    assert not proof(RangeDigests(judged=False), RangeDigests(judged=False)).proves(1)
    assert proof(RangeDigests(unique=False)).proves(1)
    assert not proof(RangeDigests(unique=False), RangeDigests(unique=False)).proves(1)


def test_an_expired_row_may_have_the_key_of_another_where_keys_are_not_unique() -> None:
    """The row by row way takes the first of the two, and that may be the one that retention removes."""
    for expired in ((1, 0), (0, 1)):
        for unique in ((True, False), (False, True)):
            source, target = (RangeDigests(unique=alone) for alone in unique)
            for side, count in ((source, expired[0]), (target, expired[1])):
                side.cells = {(0, "acme"): Cell(1, keyed=7), (1, "acme"): Cell(1, count, keyed=7)}
            found = Proof(source, target)
            assert found.proves(0)
            assert found.proves(1) == (unique == ((True, False) if expired[0] else (False, True)))


def test_small_ranges_divide_those_of_the_report() -> None:
    ranges = [KeyRange(None, ("d",)), KeyRange(("d",), ("m",)), KeyRange(("m",), None)]
    found = partition(ranges, [("b",), ("f",), ("h",), ("m",), ("x",)], 1)
    assert isinstance(found, Partition)
    assert found.bounds == (("b",), ("d",), ("f",), ("h",), ("m",), ("x",))
    assert [list(found.parts(within)) for within in ranges] == [[0, 1], [2, 3, 4], [5, 6]]
    assert list(found.joined([0, 1])) == [KeyRange(None, ("d",))]
    assert list(found.joined([2, 4, 5, 6])) == [KeyRange(("d",), ("f",)), KeyRange(("h",), None)]
    assert list(found.joined([])) == []


def test_owners_are_folded_where_their_digests_would_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_CELLS", "MOST_UNFOLDED"):
        monkeypatch.setattr(dividing, name, 12)
    ranges = [KeyRange(("a",), ("d",)), KeyRange(("d",), ("m",))]
    for owners, folded, cells in ((0, False, 3), (4, False, 12), (5, True, 8), (12, True, 15)):
        found = partition(ranges, [("a",), ("b",), ("m",)], owners)
        assert found == Partition(tuple(ranges), (("b",), ("d",)), max(owners, 1))
        assert isinstance(found, Partition)
        assert (found.within, found.is_folded, found.cells) == (KeyRange(("a",), ("m",)), folded, cells)
        assert [list(found.parts(within)) for within in ranges] == [[0, 1], [2]]
        assert list(found.joined([0, 2])) == [KeyRange(("a",), ("b",)), KeyRange(("d",), ("m",))]
    assert partition(ranges, [], 13) == NoDigests("13 owners would need more than 12 digests in memory")


def test_what_takes_much_memory_is_read_by_fewer(pair: MemoryPair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (readers_of(10_000, 8), readers_of(75_000, 8), readers_of(10**9, 8)) == (8, 4, 1)
    parts: list[int] = []

    def counted(view: MemoryView, entity: Entity, bounds: Sequence[Key], **given: Any) -> RangeDigests:  # noqa: ANN401  # as it is called
        parts.append(given["parts"])
        return digests_of_rows(view, entity, bounds, **given)

    monkeypatch.setattr(MemoryView, "digests", counted)
    monkeypatch.setattr(dividing, "MOST_CELLS_READ", 200)
    # Of three owners, and of 27 ranges.
    assert shares(compared(pair, entities=("runs",), jobs=8)[0]).row_by_row == 0
    assert set(parts) == {2}


def test_the_json_report_says_how_much_digests_proved(pair: MemoryPair) -> None:
    report = compared(pair, entities=("audit",))[0]
    assert json.loads(render(report, ReportFormat.JSON))["envelope"]["ranges"] == {
        "by_digests": 5,
        "row_by_row": 0,
    }
    assert (
        b'name="ranges" value="Ranges proved by 128-bit digests of every row: 5; row by row: 0."'
        in render(report, ReportFormat.JUNIT)
    )
    for form in (ReportFormat.MARKDOWN, ReportFormat.HTML):
        assert b"128" in render(report, form)
