"""The lines about single documents: kept in the ledger with their range, exported to files at the end."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest
from typing_extensions import override

from tests.support.copies import AS_OF, MemoryPair, fill, invoke, memory_pair, write_config
from twinstore.documents import DocumentWriter
from twinstore.errors import UnavailableError
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy import quarantine
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.quarantine import CONFLICTS, LARGEST_PART, QUARANTINE, parts_of
from twinstore_backfill.outcome import Exit, InterruptedRunError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_memory.rows import DocumentRow, encode, store_unchecked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.catalog.keys import Key

OWNER_ONLY: Final = 0o600


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a filled source, with one bad document, and a target with one other row."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        bad(pair, ("bad",), state="lost")
        pair.target.storage.runs.create(make_run("acme", "acme-run-1", created_at=at(77)))
        yield pair


def bad(pair: MemoryPair, key: Key, **changes: object) -> None:
    """Plant a run of which no model can be made."""
    good = encode(RUNS, make_run("acme", "bad"))
    document = {**good.document, "id": key[0], **changes}
    store_unchecked(pair.stores[0], DocumentRow(RUNS, key, document))


def lines(directory: Path, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / name).read_text(encoding="utf-8").splitlines()]


def test_each_line_names_entity_tenant_key_reason_and_where_it_was_found(pair: MemoryPair) -> None:
    result = pair.copy(max_conflicts=9)
    (refused,), (conflict,) = lines(pair.directory, QUARANTINE), lines(pair.directory, CONFLICTS)
    assert result.job is not None
    origin = {"job": result.job["id"], "generation": 1}
    assert list(refused) == ["entity", "tenant", "key", "reason", "raw", "job", "generation", "range"]
    assert (refused["entity"], refused["tenant"], refused["key"]) == ("runs", "acme", ["bad"])
    assert json.loads(str(refused["raw"]))["doc"]["state"] == "lost"
    assert {**origin, "range": refused["range"]}.items() <= refused.items()
    assert conflict == {
        "entity": "runs",
        "tenant": "acme",
        "key": ["acme-run-1"],
        "overwritten": False,
        **origin,
        "range": conflict["range"],
    }


def test_the_files_are_for_their_owner_alone(pair: MemoryPair) -> None:
    for name in (QUARANTINE, CONFLICTS):
        (pair.directory / name).write_text("what an earlier release left for everybody")
    pair.copy(max_conflicts=9)
    for name in (QUARANTINE, CONFLICTS):
        assert (pair.directory / name).stat().st_mode & 0o777 == OWNER_ONLY
    assert not list(pair.directory.glob(".*"))


def test_without_anything_to_say_the_files_are_empty(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        (tmp_path / QUARANTINE).write_text('{"of": "another job"}')
        assert pair.copy().exit is Exit.OK
    assert (lines(tmp_path, QUARANTINE), lines(tmp_path, CONFLICTS)) == ([], [])


def test_a_long_document_is_kept_in_parts_and_exported_whole(pair: MemoryPair) -> None:
    long = "naïve \N{SNOWMAN} " * 200_000
    bad(pair, ("long",), error=long, state="lost")
    pair.copy(max_conflicts=9)
    ledger = pair.target.ledger
    (job,) = ledger.jobs()
    parts = [line for line in ledger.quarantined(job.id) if line.key == '["long"]']
    assert [part.part for part in parts] == list(range(len(parts)))
    assert len(parts) > 2
    assert max(len((part.raw or "").encode()) for part in parts) <= LARGEST_PART
    (whole,) = [line for line in lines(pair.directory, QUARANTINE) if line["key"] == ["long"]]
    assert json.loads(str(whole["raw"]))["doc"]["error"] == long


@pytest.mark.parametrize("text", ["", "x", "\N{SNOWMAN}" * 4, "a\N{GRINNING FACE}" * 7, "x" * 21])
def test_parts_are_cut_between_characters_and_never_too_long(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "LARGEST_PART", 10)
    parts = list(parts_of(text))
    assert "".join(part or "" for part in parts) == text
    assert all(len((part or "").encode()) <= 10 for part in parts)
    assert list(parts_of(None)) == [None]


def test_texts_that_no_store_takes_are_escaped(pair: MemoryPair) -> None:
    bad(pair, ("tenant",), tenantId="a\x00b", state="lost")
    bad(pair, ("surrogate",), tenantId="a\udc00", error="\x00\ud800", state="lost")
    assert pair.copy(max_conflicts=9).complete
    kept = {str(line["key"]): line for line in lines(pair.directory, QUARANTINE)}
    assert {kept[key]["tenant"] for key in ("['tenant']", "['surrogate']")} == {""}
    assert "\\u0000" in str(kept["['surrogate']"]["raw"])


def test_opening_a_range_again_forgets_what_was_said_about_it(pair: MemoryPair) -> None:
    pair.copy(max_conflicts=9)
    store_unchecked(pair.stores[0], encode(RUNS, make_run("acme", "bad")))
    result = pair.copy(max_quarantine=0, max_conflicts=9)
    assert (result.complete, result.totals.all()["quarantined"]) == (True, 0)
    assert lines(pair.directory, QUARANTINE) == []


def test_a_range_that_is_rolled_back_leaves_no_line(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = DocumentWriter.commit

    def gone(writer: DocumentWriter) -> None:
        del writer
        raise UnavailableError("the server is gone")

    monkeypatch.setattr(DocumentWriter, "commit", gone)
    with pytest.raises(UnavailableError):
        pair.copy(entities=["runs"], jobs=1)
    (job,) = pair.target.ledger.jobs()
    assert [*pair.target.ledger.quarantined(job.id), *pair.target.ledger.conflicts(job.id)] == []
    monkeypatch.setattr(DocumentWriter, "commit", honest)
    pair.copy(entities=["runs"], max_conflicts=9)
    assert len(lines(pair.directory, QUARANTINE)) == 1


def test_an_interrupted_run_exports_what_is_known_so_far(pair: MemoryPair) -> None:
    stop = StopSwitch()

    class Interrupter(SilentProgress):
        @override
        def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
            del total, done, estimated
            if name == "audit":
                stop.request(15)

    options = CopyOptions(
        execute=True, out=pair.directory, as_of=AS_OF, range_size=3, jobs=1, max_conflicts=9
    )
    with pytest.raises(InterruptedRunError):
        run_copy(pair.source, pair.target, options, Interrupter(), stop)
    assert [line["key"] for line in lines(pair.directory, QUARANTINE)] == [["bad"]]
    assert [line["key"] for line in lines(pair.directory, CONFLICTS)] == [["acme-run-1"]]


def test_a_run_that_is_refused_touches_no_file(pair: MemoryPair) -> None:
    pair.copy(max_conflicts=9)
    before = {name: (pair.directory / name).stat().st_mtime_ns for name in (QUARANTINE, CONFLICTS)}
    ledger = pair.target.ledger
    (job,) = ledger.jobs()
    ledger.start(job.id, job.settings, job.as_of)
    ledger.acquire(job.id, "somebody/else", timedelta(hours=1))
    with pytest.raises(Exception, match="somebody/else"):
        pair.copy(max_conflicts=9)
    assert {name: (pair.directory / name).stat().st_mtime_ns for name in before} == before


def test_status_writes_the_files_of_a_job_again(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.copy(max_conflicts=9)
    wanted = [(pair.directory / name).read_bytes() for name in (QUARANTINE, CONFLICTS)]
    config = write_config(tmp_path / "target.json", {"Persistence": {"Memory": {"Store": pair.names[1]}}})
    command = ("backfill", "status", "--module", "scheduler", "--to", "memory", "--target-config", config)
    assert invoke(capsys, *command, "--out", tmp_path / "again").code == Exit.OK
    assert [(tmp_path / "again" / name).read_bytes() for name in (QUARANTINE, CONFLICTS)] == wanted


def test_a_store_without_jobs_has_nothing_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "target.json", {"Persistence": {"Memory": {}}})
    command = ("backfill", "status", "--module", "scheduler", "--to", "memory", "--target-config", config)
    answer = invoke(capsys, *command, "--out", tmp_path / "none")
    assert (answer.code, "was started" in answer.out) == (Exit.OK, True)
    assert list((tmp_path / "none").iterdir()) == []
