"""What the tree contains, what becomes of interrupted writes, and what a call opens."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tracemalloc
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drivers.filesystem.deployment import layouts_of
from tests.support import forked
from tests.support.trees import limited_rows, socket_at
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.clock import SystemClock
from twinstore.config import load_settings
from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    ConflictError,
    DocumentDecodeError,
    ValidationError,
)
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore.models.json_text import dumps, dumps_sorted
from twinstore.storage.open import open_module
from twinstore.taskrunner.catalog import PACK_RUNS
from twinstore.taskrunner.pack_runs import PackRunQueryOptions
from twinstore.testing.entities import MODULE, NOTES
from twinstore.testing.scalars import TYPED_OBJECTS
from twinstore.testing.taskrunner.builders import (
    make_approval,
    make_artifact,
    make_draft,
    make_log_entry,
    make_pack_run,
    rich_pack_run,
)
from twinstore_backfill.stores import open_store
from twinstore_filesystem.appending import PAGE
from twinstore_filesystem.bulk_rows import unchanged
from twinstore_filesystem.files import Files
from twinstore_filesystem.forms import LinesForm, exact_float
from twinstore_filesystem.locks import RunLocks
from twinstore_filesystem.names import TEMPORARY, decoded, encoded
from twinstore_filesystem.tree import Place, Tree
from twinstore_filesystem.unit import FileUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore_filesystem.forms import RunFile
    from twinstore_filesystem.rows import FileRow

LONG = "\N{BUG}" * 256


def line(run: str, sequence: int) -> bytes:
    return CanonicalJsonSerializer.serialize(make_log_entry(run, sequence)) + b"\n"


def sequences(storage: TaskRunnerStorage, run: str) -> list[int]:
    return [entry.sequence for entry in storage.pack_run_logs.read(run, limit=5000)]


def test_a_run_stands_in_four_files_and_each_is_canonical(storage: TaskRunnerStorage, root: Path) -> None:
    run, entry = rich_pack_run(None, "a/é ~.."), make_log_entry("a/é ~..", 1)
    storage.pack_runs.create(run)
    storage.pack_run_logs.append([entry])
    for name in ("z", "b"):
        storage.pack_artifacts.upload(make_artifact("a/é ~..", name))
        storage.pack_run_approvals.save("a/é ~..", [make_approval(None, "a/é ~..", name)])
    text = CanonicalJsonSerializer.serialize
    files = {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
    artifacts = b",".join(text(item) for item in storage.pack_artifacts.list("a/é ~.."))
    approvals = b",".join(text(item) for item in storage.pack_run_approvals.list("a/é ~.."))
    assert files == {
        "state/runs/a%2F%C3%A9%20%7E...json": text(run),
        "state/runs/a%2F%C3%A9%20%7E...lock": b"",
        "state/approvals/a%2F%C3%A9%20%7E...json": b"[" + approvals + b"]",
        "logs/runs/a%2F%C3%A9%20%7E...ndjson": text(entry) + b"\n",
        "artifacts/a%2F%C3%A9%20%7E../artifact-manifest.json": b"[" + artifacts + b"]",
    }


def test_typed_values_of_free_json_are_objects_in_files_and_a_comparison_sees_them_as_in_memory(
    root: Path,
) -> None:
    run = make_pack_run(None, "a", plan={"b": [*TYPED_OBJECTS, {"c": TYPED_OBJECTS[0]}]})
    config = load_settings({"Persistence": {"Filesystem": {"Root": str(root)}}}, environ={})
    for driver in ("Filesystem", "Memory"):
        with open_store("taskrunner", driver, config) as store:
            runs = cast("TaskRunnerStorage", store.storage).pack_runs
            assert runs.create(run) == runs.get("a") == run
            with store.bulk.view() as view:
                found = [row.content for batch in view.rows(PACK_RUNS, KeyRange()) for row in batch]
            assert found == [dumps_sorted({"doc": run.wire(), "storage": {}})]
    assert (root / "state/runs/a.json").read_bytes() == CanonicalJsonSerializer.serialize(run)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=256), min_size=2, unique=True))
def test_no_two_ids_share_a_file(ids: list[str]) -> None:
    names = [encoded(run) for run in ids]
    assert len(set(names)) == len(ids)
    for run, name in zip(ids, names, strict=True):
        assert len(f"{name}.ndjson~") <= 255
        assert name not in {".", ".."}
        assert "/" not in name
        assert decoded(name) == (run if "%sha256-" not in name else None)


@pytest.mark.parametrize("run", [".", "..", "%2E", "a%sha256-b", LONG, LONG[:-1] + "x", "a.lock", "a.json"])
def test_awkward_ids_are_runs_like_any_other(storage: TaskRunnerStorage, run: str) -> None:
    for one in (run, "other", LONG[:-1] + "y"):
        storage.pack_runs.create(make_pack_run(None, one))
        storage.pack_run_logs.append_next(one, make_draft(message=one))
    assert storage.pack_runs.get_required(run).run_id == run
    assert {item.run_id for item in storage.pack_runs.list()} == {run, "other", LONG[:-1] + "y"}
    assert [entry.message for entry in storage.pack_run_logs.read(run)] == [run]


TAILS: dict[str, Callable[[bytes], bytes]] = {
    "half a line": lambda whole: whole[:-30],
    "a line without its last byte": lambda whole: whole[:-2],
    "a batch that was not finished": lambda whole: b"\x00" + whole[1:] + line("a", 4) + b"\x00",
    "nothing of a batch but its room": lambda whole: bytes(3 * len(whole)),
}


@pytest.mark.parametrize("tail", TAILS)
def test_what_an_interrupted_append_left_is_ignored_and_cut_by_the_next(
    storage: TaskRunnerStorage, root: Path, tail: str
) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    storage.pack_run_logs.append([make_log_entry("a", 1), make_log_entry("a", 2)])
    log = root / "logs/runs/a.ndjson"
    whole = log.read_bytes()
    log.write_bytes(whole + TAILS[tail](line("a", 3)))
    assert (sequences(storage, "a"), storage.pack_run_logs.last_sequence("a")) == ([1, 2], 2)
    storage.pack_run_logs.append([make_log_entry("a", 3), make_log_entry("a", 4)])
    assert log.read_bytes() == whole + line("a", 3) + line("a", 4)


@pytest.mark.parametrize("end", [line("a", 2).strip() + b"\r", b"[1]", b"\x00x", b"\x00" + line("a", 2)])
def test_what_no_interrupted_append_leaves_is_never_cut(
    storage: TaskRunnerStorage, root: Path, end: bytes
) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    (root / "logs/runs").mkdir(parents=True)
    log = root / "logs/runs/a.ndjson"
    log.write_bytes(line("a", 1).strip() + (b"\r" if end.endswith(b"\r") else b"\n") + end)
    before = log.read_bytes()
    with pytest.raises(DocumentDecodeError, match=r"a\.ndjson.*line"):
        storage.pack_run_logs.read("a")
    if not end.endswith(b"\n"):
        with pytest.raises(DocumentDecodeError, match=r"a\.ndjson"):
            storage.pack_run_logs.append_next("a", make_draft())
        assert log.read_bytes() == before


@pytest.mark.parametrize("flush", [1, 2])
def test_an_entry_across_pages_is_whole_or_absent_after_a_power_loss(
    storage: TaskRunnerStorage, root: Path, monkeypatch: pytest.MonkeyPatch, flush: int
) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    log = root / "logs/runs/a.ndjson"
    # The second one fits into a page, and lies in two.
    for number, length in enumerate((9000, 3500), 1):
        end = log.stat().st_size if number > 1 else 0
        flushes = iter(range(1, flush + 1))

        def lost(file: int, end: int = end, flushes: Iterator[int] = flushes) -> None:
            if stat.S_ISREG(os.fstat(file).st_mode) and next(flushes) == flush:
                # Of what was written since the last flush the later pages reached the disk, and not this one.
                page = PAGE - end % PAGE
                os.pwrite(file, bytes(page), end)
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr("twinstore_filesystem.appending.os.fsync", lost)
            with pytest.raises(KeyboardInterrupt):
                storage.pack_run_logs.append_next("a", make_draft(message="x" * length))
        assert sequences(storage, "a") == list(range(1, number))
        assert storage.pack_run_logs.append_next("a", make_draft(message="x" * length)).sequence == number
        assert sequences(storage, "a") == list(range(1, number + 1))


def test_files_are_for_their_owner_and_its_group(storage: TaskRunnerStorage, root: Path) -> None:
    before = os.umask(0o022)
    try:
        storage.pack_runs.create(make_pack_run(None, "a"))
        storage.pack_run_logs.append_next("a", make_draft())
        storage.pack_artifacts.upload(make_artifact("a", "report"))
        storage.pack_run_approvals.save("a", [make_approval(None, "a")])
    finally:
        os.umask(before)
    modes = {
        path.relative_to(root): path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()
    }
    assert (len(modes), set(modes.values())) == (5, {0o640})


def test_the_next_writer_of_a_run_removes_what_a_killed_one_left(
    storage: TaskRunnerStorage, root: Path
) -> None:
    for run in ("a", "b"):
        storage.pack_runs.create(make_pack_run(None, run))
        storage.pack_artifacts.upload(make_artifact(run, "report"))
    for path in ("state/approvals", "logs/runs"):
        (root / path).mkdir(parents=True)
    for run in ("a", "b"):
        for path in (
            f"state/runs/{run}.json~",
            f"state/approvals/{run}.json~",
            f"logs/runs/{run}.ndjson~",
            f"artifacts/{run}/artifact-manifest.json~",
        ):
            (root / path).write_bytes(b"{")
    # Another process may be writing them at this moment.
    assert storage.pack_runs.get("a") is not None
    assert len(list(root.rglob("*~"))) == 8
    storage.pack_run_logs.append_next("a", make_draft())
    assert {path.name[0] for path in root.rglob("[ab].*~")} == {"b"}
    assert [path.parent.name for path in root.rglob("artifact-manifest.json~")] == ["b"]


def test_a_count_includes_rows_that_form_no_model_and_raises_for_what_is_no_row(
    storage: TaskRunnerStorage, root: Path
) -> None:
    for run in ("a", "b"):
        storage.pack_runs.create(make_pack_run(None, run))
    path = root / "state/runs/a.json"
    # As on every other driver, whose stores hold whole rows only.
    path.write_bytes(path.read_bytes()[:-1] + b',"foreign":1}')
    assert storage.pack_runs.count() == 2
    path.write_bytes(b"{")
    with pytest.raises(DocumentDecodeError):
        storage.pack_runs.count()


def test_a_unit_removes_what_killed_writers_left_of_each_run_under_one_lock(tmp_path: Path) -> None:
    layouts = layouts_of(MODULE)
    tree, layout = Tree(tmp_path), layouts[NOTES.name]
    places = [layout.place(layout.run_of((name,))) for name in ("a", "b")]
    for place in places:
        left = tmp_path / f"{place.path}{TEMPORARY}"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.touch()
    unit = FileUnit(Files(tree, layouts, RunLocks(tree, 1), SystemClock()))
    for name in ("a", "b"):
        unit.hold(NOTES, (name,))
    unit.rollback()
    assert not list(tmp_path.rglob(f"*{TEMPORARY}"))


@pytest.mark.parametrize("kind", ["socket", "link", "folder"])
def test_what_has_the_name_of_a_run_and_is_no_file_is_not_skipped_by_lists(
    storage: TaskRunnerStorage, root: Path, kind: str
) -> None:
    for run in ("a", "b"):
        storage.pack_runs.create(make_pack_run(None, run))
        storage.pack_run_logs.append_next(run, make_draft())
    place = root / "state/runs/b.json"
    place.unlink()
    if kind == "socket":
        socket_at(place)
    elif kind == "link":
        place.symlink_to("a.json")
    else:
        place.mkdir()
    for call in (
        storage.pack_runs.list,
        lambda: storage.pack_runs.get("b"),
        lambda: storage.pack_run_logs.append_next("b", make_draft()),
    ):
        with pytest.raises(DocumentDecodeError, match=r"state/runs/b\.json.*a socket"):
            call()
    page = storage.pack_runs.list(tenant_id=ALL_TENANTS)
    assert ([item.run_id for item in page], [row.key for row in page.undecodable]) == (["a"], ["b"])


def test_what_is_larger_than_any_row_is_unreadable_and_never_cut(
    storage: TaskRunnerStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited_rows(monkeypatch)
    storage.pack_runs.create(make_pack_run(None, "a"))
    storage.pack_run_logs.append([make_log_entry("a", 2)])
    log, good = root / "logs/runs/a.ndjson", line("a", 2)
    long = good.replace(b'"message":"', b'"message":"' + b"x" * 2_000_000)
    # The last two are more zeros than any batch has, and an unfinished line.
    for end in (long, long + line("a", 3), bytes(2_000_000), long[:-30]):
        log.write_bytes(good + end)
        tracemalloc.start()
        with pytest.raises(DocumentDecodeError, match=r"a\.ndjson, line 2: it is larger than any row"):
            storage.pack_run_logs.read("a")
        with pytest.raises(DocumentDecodeError, match=r"a\.ndjson: it is larger than any row"):
            storage.pack_run_logs.append([make_log_entry("a", 1)])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (peak < 1_000_000, log.read_bytes() == good + end) == (True, True), peak
    log.write_bytes(good + long + line("a", 3))
    assert storage.pack_run_logs.last_sequence("a") == 3
    (root / "state/runs/a.json").write_bytes(b" " * 2_000_000)
    tracemalloc.start()
    with pytest.raises(DocumentDecodeError, match=r"a\.json: it is larger than any row"):
        storage.pack_runs.get("a")
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_no_file_becomes_larger_than_can_be_read(
    storage: TaskRunnerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited_rows(monkeypatch)
    storage.pack_runs.create(make_pack_run(None, "a"))
    before = [storage.pack_artifacts.upload(make_artifact("a", name, notes="x" * 9000)) for name in "yz"]
    with pytest.raises(ValidationError, match=r"at most 20,000 can be read; nothing was written"):
        storage.pack_artifacts.upload(make_artifact("a", "x", notes="x" * 9000))
    assert list(storage.pack_artifacts.list("a")) == before


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_read_as_it_is_written(number: float) -> None:
    for text in (dumps(number).decode(), repr(number), repr(number).upper()):
        assert exact_float(text) == unchanged(text) == number


@pytest.mark.parametrize(
    "number",
    [
        "0.123456789012345678901234567890",
        "1e-400",
        "1E400",
        "9007199254740993.0",
        "4.9e-324",
        f"1e{'9' * 30}",
    ],
)
def test_a_number_that_a_double_would_change_is_refused(number: str) -> None:
    for read in (exact_float, unchanged):
        for sign in ("", "-"):
            with pytest.raises(ValueError, match="a number has more digits"):
                read(sign + number)


def test_what_stands_where_a_file_is_written_first_is_not_opened(
    storage: TaskRunnerStorage, root: Path
) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    other = root / "other"
    other.write_bytes(b"of somebody else")
    (root / "state/runs/b.json~").hardlink_to(other)
    os.mkfifo(root / "state/runs/c.json~")
    for run in ("b", "c"):
        storage.pack_runs.create(make_pack_run(None, run))
        assert not (root / f"state/runs/{run}.json~").exists()
    assert other.read_bytes() == b"of somebody else"


def test_a_last_line_that_only_lacks_its_end_is_kept(storage: TaskRunnerStorage, root: Path) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    (root / "logs/runs").mkdir(parents=True)
    log = root / "logs/runs/a.ndjson"
    for end in (b"", b"\n\x00"):
        log.write_bytes(line("a", 1) + line("a", 2)[:-1] + end)
        assert (sequences(storage, "a"), storage.pack_run_logs.last_sequence("a")) == ([1, 2], 2)
        storage.pack_run_logs.append_next("a", make_draft())
        assert sequences(storage, "a") == [1, 2, 3]


def test_entries_between_others_are_put_in_their_place(storage: TaskRunnerStorage, root: Path) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    for sequence in (5, 2, 9, 1):
        storage.pack_run_logs.append([make_log_entry("a", sequence)])
    assert (root / "logs/runs/a.ndjson").read_bytes() == b"".join(
        line("a", number) for number in (1, 2, 5, 9)
    )


def test_calls_about_one_run_open_no_file_of_another(storage: TaskRunnerStorage, root: Path) -> None:
    for run in ("a", "b"):
        storage.pack_runs.create(make_pack_run(None, run))
        storage.pack_run_logs.append_next(run, make_draft())
    for path in root.rglob("b.*"):
        path.write_bytes(b"broken\n")
    assert storage.pack_runs.get("a") is not None
    assert storage.pack_run_logs.append_next("a", make_draft()).sequence == 2
    assert (storage.pack_run_logs.last_sequence("a"), sequences(storage, "a")) == (2, [1, 2])
    with pytest.raises(DocumentDecodeError, match=r"state/runs/b\.json: it is not JSON"):
        storage.pack_run_logs.last_sequence("b")
    with pytest.raises(DocumentDecodeError, match=r"state/runs/b\.json: it is not JSON"):
        storage.pack_runs.list()
    page = storage.pack_runs.list(tenant_id=ALL_TENANTS)
    assert ([item.run_id for item in page], [row.key for row in page.undecodable]) == (["a"], ["b"])


def test_the_last_sequence_reads_the_end_of_a_log_only(storage: TaskRunnerStorage, root: Path) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    (root / "logs/runs").mkdir(parents=True)
    # No reader could decode the beginning.
    (root / "logs/runs/a.ndjson").write_bytes(b"\xff\n" * 200_000 + line("a", 7))
    assert storage.pack_run_logs.last_sequence("a") == 7
    assert storage.pack_run_logs.append_next("a", make_draft()).sequence == 8


def test_a_log_is_followed_without_reading_what_was_read_before(
    storage: TaskRunnerStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = 'r "\\quoted'
    storage.pack_runs.create(make_pack_run(None, run))
    storage.pack_run_logs.append([make_log_entry(run, number) for number in range(1, 301)])
    (log,) = (root / "logs/runs").iterdir()
    # As another program may write them: not in the canonical form, so each is checked.
    spaced = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(
        b"".join(row.replace(b'":', b'": ', 1) if n == 3 else row for n, row in enumerate(spaced))
    )
    read: list[int] = []
    row = LinesForm.row

    def counted(form: LinesForm, file: RunFile, line: bytes, start: int, number: int = 0) -> FileRow:
        read.append(start)
        return row(form, file, line, start, number)

    monkeypatch.setattr(LinesForm, "row", counted)
    found = storage.pack_run_logs.read(run, after_sequence=290)
    assert [entry.sequence for entry in found] == list(range(291, 301))
    assert len(read) < 20
    assert [entry.sequence for entry in storage.pack_run_logs.read(run, after_sequence=2, limit=3)] == [
        3,
        4,
        5,
    ]


def test_a_repeated_append_reads_the_log_once(
    storage: TaskRunnerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.pack_runs.create(make_pack_run(None, "r"))
    entries = [make_log_entry("r", number) for number in range(2, 402, 2)]
    assert storage.pack_run_logs.append(entries) == len(entries)
    read: list[int] = []
    row = LinesForm.row

    def counted(form: LinesForm, file: RunFile, line: bytes, start: int, number: int = 0) -> FileRow:
        read.append(start)
        return row(form, file, line, start, number)

    monkeypatch.setattr(LinesForm, "row", counted)
    between = [make_log_entry("r", number) for number in (3, 201, 399)]
    assert storage.pack_run_logs.append(entries) == 0
    assert len(read) < 2 * len(entries)
    assert storage.pack_run_logs.append([*reversed(between), *entries]) == len(between)
    assert sequences(storage, "r") == sorted([*range(2, 402, 2), 3, 201, 399])
    with pytest.raises(ConflictError, match="r:4"):
        storage.pack_run_logs.append([*entries[:1], entries[1].evolve(message="another")])


def test_a_log_that_cannot_be_read_is_not_skipped(storage: TaskRunnerStorage, root: Path) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    storage.pack_run_logs.append_next("a", make_draft())
    log = root / "logs/runs/a.ndjson"
    log.write_bytes(log.read_bytes() + b"{broken}\n")
    for call in (
        lambda: storage.pack_run_logs.read("a"),
        lambda: storage.pack_run_logs.last_sequence("a"),
        lambda: storage.pack_run_logs.append_next("a", make_draft()),
    ):
        with pytest.raises(DocumentDecodeError, match=r"a\.ndjson.*it is not JSON"):
            call()
    assert log.read_bytes().endswith(b"{broken}\n")


def test_a_writer_waits_so_long_for_another_process_and_then_names_the_lock(
    storage: TaskRunnerStorage, root: Path
) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    held = os.open(root / "state/runs/a.lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    locks, lock, unit = RunLocks(Tree(root), 0.1), Place("state/runs", "a.lock"), object()
    with pytest.raises(ConcurrencyError, match=r"the same run for 0\.1 s") as caught:
        locks.acquire(unit, lock)
    # A note, because clients of a service receive the message.
    assert f"{root}/state/runs/a.lock" in "".join(caught.value.__notes__)
    assert str(root) not in caught.value.public_message
    locks.release(unit, {})
    # Reading does not wait, nor does writing another run.
    assert storage.pack_runs.get("a") is not None
    storage.pack_runs.create(make_pack_run(None, "b"))
    os.close(held)
    assert storage.pack_run_logs.append_next("a", make_draft()).sequence == 1


def test_no_file_is_left_of_a_run_that_there_never_was(storage: TaskRunnerStorage, root: Path) -> None:
    assert storage.pack_runs.get("absent") is None
    with pytest.raises(Exception, match="does not exist"):
        storage.pack_run_logs.append_next("absent", make_draft())
    assert [path for path in root.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("content", [None, b"x"])
def test_a_root_that_is_no_folder_is_refused(tmp_path: Path, content: bytes | None) -> None:
    place = tmp_path / "root"
    if content is None:
        (tmp_path / "file").write_bytes(b"")
        place = tmp_path / "file" / "root"
    else:
        place.write_bytes(content)
    with (
        open_module(
            "taskrunner", "Filesystem", {"Persistence": {"Filesystem": {"Root": str(place)}}}
        ) as opened,
        pytest.raises(ConfigurationError, match=str(place)),
    ):
        opened.check_ready()


FULL = """
import resource, sys
from twinstore.errors import UnavailableError
from twinstore.storage.open import open_module
from twinstore.testing.taskrunner.builders import make_draft, make_log_entry, make_pack_run
settings = {"Persistence": {"Filesystem": {"Root": sys.argv[1]}}}
with open_module("taskrunner", "Filesystem", settings) as storage:
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    for write in (
        lambda: storage.pack_runs.save(make_pack_run(None, "a", plan={"x": "x" * 9000})),
        lambda: storage.pack_run_logs.append_next("a", make_draft(message="x" * 9000)),
        lambda: storage.pack_run_logs.append([make_log_entry("a", n, message="x" * 4000) for n in (2, 3)]),
    ):
        try:
            write()
        except UnavailableError as error:
            print(error.outcome.value, error.message)
"""


def test_a_full_disk_is_reported_with_the_path_and_leaves_existing_files(
    storage: TaskRunnerStorage, root: Path
) -> None:
    storage.pack_runs.create(make_pack_run(None, "a"))
    storage.pack_run_logs.append([make_log_entry("a", 1)])
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    # A limit on the file size simulates a full disk: the system refuses the same writes.
    ended = forked.run(["-c", FULL, root])
    told = ended.stdout.splitlines()
    assert [text.split()[0] for text in told] == ["not_applied", "unknown", "unknown"], ended
    assert all(f"{root}/" in text and "cannot be written" in text for text in told)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_ten_thousand_runs_are_listed_in_less_than_five_seconds(
    storage: TaskRunnerStorage, root: Path, *, long_form: bool
) -> None:
    """A fifth of them in a fifth of the time in a bounded run."""
    share = 1 if long_form else 5
    storage.pack_runs.create(rich_pack_run(None, "r0"))
    text = (root / "state/runs/r0.json").read_bytes()
    for number in range(1, 10_000 // share):
        content = text.replace(b'"r0"', b'"r%d"' % number)
        (root / f"state/runs/r{number}.json").write_bytes(content)
    # Of this thread only, because tests that run in parallel may leave some; nothing here waits for a disk.
    begun = thread_time()
    page = storage.pack_runs.list(PackRunQueryOptions(limit=200))
    seconds = thread_time() - begun
    assert (len(page), page.next_page_token is not None, seconds < 5 / share) == (200, True, True), seconds


def test_memory_of_a_list_depends_on_the_page_and_not_on_the_runs(
    storage: TaskRunnerStorage, root: Path
) -> None:
    (root / "state/runs").mkdir(parents=True)
    text = CanonicalJsonSerializer.serialize(make_pack_run(None, "r", plan={"x": "x" * 20_000}))
    peaks = []
    for first, last in ((0, 100), (100, 600)):
        for number in range(first, last):
            (root / f"state/runs/r{number}.json").write_bytes(text.replace(b'"r"', b'"r%d"' % number))
        tracemalloc.start()
        storage.pack_runs.list(PackRunQueryOptions(limit=5))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The names of five hundred more, and none of their ten megabytes.
    assert peaks[1] - peaks[0] < 1_000_000


SAMPLE: Final = Path(__file__).parents[3] / "samples/taskrunner/filesystem"


def files(root: Path) -> dict[str, bytes]:
    """Return the content of a tree, without the locks of its writers."""
    found = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def test_the_sample_tree_is_read_and_written_again_byte_for_byte(
    storage: TaskRunnerStorage, root: Path, tmp_path: Path
) -> None:
    shutil.copytree(SAMPLE, tmp_path / "sample")
    settings = {"Persistence": {"Filesystem": {"Root": str(tmp_path / "sample")}}}
    with open_module("taskrunner", "Filesystem", settings) as opened:
        sample = cast("TaskRunnerStorage", opened)
        runs = sample.pack_runs.list()
        assert len(runs) == 2
        for run in runs:
            storage.pack_runs.create(run)
            storage.pack_run_logs.append(sample.pack_run_logs.read(run.run_id))
            storage.pack_run_approvals.save(run.run_id, sample.pack_run_approvals.list(run.run_id))
            for artifact in sample.pack_artifacts.list(run.run_id):
                storage.pack_artifacts.upload(artifact)
    assert files(root) == files(SAMPLE) == files(tmp_path / "sample")
    assert any("%" in name for name in files(SAMPLE))
