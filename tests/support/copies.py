"""Data and commands for the tests of the backfill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID, uuid4

from tests.support import executed
from twinstore.bulk.port import Record
from twinstore.catalog.entity import CopyPolicy, Entity
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.config import load_settings
from twinstore.models.fields import date_object
from twinstore.models.shapes import Kind
from twinstore.scheduler.catalog import (
    AUDIT,
    EXECUTION_LOGS,
    GRAPH_JOB_EVENTS,
    GRAPH_JOBS,
    IMPACT_SNAPSHOTS,
    POLICY_JOBS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULER,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.graph_jobs import GraphJob, GraphJobEvent
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import (
    make_audit_record,
    make_impact_set,
    make_run,
    make_schedule,
    moved,
)
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.graph_jobs import (
    digits_of,
    graph_job_event,
    make_graph_build_job,
    make_graph_overlay_job,
    rich_graph_build_job,
    rich_graph_job_event,
    rich_graph_overlay_job,
)
from twinstore_backfill import stores
from twinstore_backfill.cli import main
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.options import VerifyOptions
from twinstore_memory.store import MemoryDatabase, drop_store, shared_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pytest

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.keys import Key
    from twinstore.config import Settings
    from twinstore.models.canonical import CanonicalModel
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.examples import Example
    from twinstore_backfill.copy.report import CopyResult
    from twinstore_backfill.outcome import Exit
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.stores import Store

AS_OF: Final = at(86_400)
TENANTS: Final = ("acme", "umbrella")
COPIED: Final = tuple(
    entity for entity in SCHEDULER.entities if entity.copy_policy is not CopyPolicy.LEFT_OUT
)
LEFT_OUT: Final = tuple(entity for entity in SCHEDULER.entities if entity not in COPIED)
# What `fill` writes by hand for each tenant; of every other entity that is copied it writes one row.
BY_HAND: Final[dict[Entity, int]] = {
    SCHEDULES: 3,
    TRIGGERS: 3,
    RUNS: 7,
    RUN_SUMMARIES: 2,
    IMPACT_SNAPSHOTS: 2,
    AUDIT: 4,
    GRAPH_JOBS: 2,
    GRAPH_JOB_EVENTS: 3,
}
DOCUMENTS_PER_TENANT: Final = sum(BY_HAND.get(entity, 1) for entity in COPIED)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The result as JSON."""
        document: dict[str, Any] = json.loads(self.out)
        return document


@dataclass(frozen=True, slots=True)
class Pair:
    """An open source and an open target."""

    source: Store[SchedulerStorage]
    target: Store[SchedulerStorage]
    directory: Path

    def copy(self, *, execute: bool = True, **options: object) -> CopyResult:
        """Copy from source to target."""
        given = {"out": self.directory, "as_of": AS_OF, "range_size": 3, "execute": execute, **options}
        return run_copy(self.source, self.target, CopyOptions(**given), SilentProgress(), StopSwitch())  # type: ignore[arg-type]  # the options of a test

    def verify(self, **options: object) -> ParityReport:
        """Compare source and target."""
        given = {"as_of": AS_OF, "range_size": 3, **options}
        return run_verify(self.source, self.target, VerifyOptions(**given), SilentProgress(), StopSwitch())  # type: ignore[arg-type]  # the options of a test


@dataclass(frozen=True, slots=True)
class MemoryPair(Pair):
    """Two stores of this process, to plant rows in past every rule."""

    names: tuple[str, str] = ("", "")

    @property
    def stores(self) -> tuple[MemoryDatabase, MemoryDatabase]:
        """The stores behind source and target."""
        return shared_store(self.names[0]), shared_store(self.names[1])

    @property
    def sides(self) -> tuple[object, ...]:
        """The arguments that name both stores to a command of this process."""
        self.directory.mkdir(exist_ok=True)
        # The rows of tests are old; no retention leaves them out.
        keep = {"Scheduler": {"Storage": {"RunRetentionDays": 0}}}
        files = [
            write_config(
                self.directory / f"{name}.json", {"Persistence": {"Memory": {"Store": name}}, **keep}
            )
            for name in self.names
        ]
        drivers = ("--module", "scheduler", "--from", "memory", "--to", "memory")
        return (*drivers, "--source-config", files[0], "--target-config", files[1])


@contextmanager
def memory_pair(directory: Path) -> Iterator[MemoryPair]:
    """Open two empty memory stores."""
    names = (uuid4().hex, uuid4().hex)
    settings = [load_settings({"Persistence": {"Memory": {"Store": name}}}, environ={}) for name in names]
    with (
        open_store("scheduler", "memory", settings[0]) as source,
        open_store("scheduler", "memory", settings[1]) as target,
    ):
        yield MemoryPair(source, target, directory, names=names)
    for name in names:
        drop_store(name)


def open_store(
    module: str, backend: str, settings: Settings, *, read_only: bool = False
) -> AbstractContextManager[Store[SchedulerStorage]]:
    """Open a side as tools do, with the type of its storage."""
    opened = stores.open_store(module, backend, settings, read_only=read_only)
    return cast("AbstractContextManager[Store[SchedulerStorage]]", opened)


def fill(storage: SchedulerStorage, tenants: Sequence[str] = TENANTS, *, plain: bool = False) -> None:
    """Write some of everything through the repositories: :data:`DOCUMENTS_PER_TENANT` rows per tenant.

    ``plain`` leaves out what a database in an old encoding does not hold.
    """
    for tenant in tenants:
        _fill_schedules(storage, tenant)
        _fill_runs(storage, tenant)
        for number in range(2):
            storage.impact_snapshots.upsert(
                tenant, make_impact_set(generated_at=at(number)), run_id=f"{tenant}-run-{number}"
            )
        for number in range(4):
            storage.audit.append(
                make_audit_record(tenant, f"{tenant}-audit-{number}", occurred_at=at(number))
            )
        _fill_graph_jobs(storage, tenant, plain=plain)
        for entity in COPIED:
            if entity not in BY_HAND:
                item = SCHEDULER_EXAMPLES.of(entity)
                row = item.small(tenant, _name(tenant, entity))
                if entity is EXECUTION_LOGS:
                    row = row.evolve(data={"at": date_object(at(0.001)), "k": [{"at": date_object(at(1))}]})
                item.store(storage.unbound, tenant, row)


def _fill_graph_jobs(storage: SchedulerStorage, tenant: str, *, plain: bool) -> None:
    """Store a job of each type, and what happened to them; two events are of one instant."""
    build_of, overlay_of = (
        (make_graph_build_job, make_graph_overlay_job)
        if plain
        else (rich_graph_build_job, rich_graph_overlay_job)
    )
    build, overlay = build_of(tenant, f"{tenant}-b"), overlay_of(tenant, f"{tenant}-o")
    for job in (build, overlay):
        storage.graph_jobs.insert(job)
    for event in (
        graph_job_event(build, f"{tenant}-1", 1),
        graph_job_event(build, f"{tenant}-b") if plain else rich_graph_job_event(tenant, f"{tenant}-b"),
        graph_job_event(overlay, f"{tenant}-2", 1),
    ):
        storage.graph_jobs.append_event(event)


def _name(tenant: str, entity: Entity) -> str:
    """Return the name of the one row of an entity: that of its parent, which is stored already."""
    top = entity if entity.parent is None else entity.parent.entity
    return f"{tenant}-{top.singular}-1" if top in BY_HAND else f"{tenant}-{top.name}"


def _fill_schedules(storage: SchedulerStorage, tenant: str) -> None:
    for number in range(3):
        storage.schedules.upsert(make_schedule(tenant, f"{tenant}-schedule-{number}"))
    storage.schedules.soft_delete(tenant, f"{tenant}-schedule-2", "ada", at(60))


def _fill_runs(storage: SchedulerStorage, tenant: str) -> None:
    for number in range(7):
        run = make_run(
            tenant,
            f"{tenant}-run-{number}",
            created_at=at(number),
            schedule_id=f"{tenant}-schedule-{number % 2}",
        )
        storage.runs.create(run)
        if number % 3 == 0:
            run = moved(run, RunState.CANCELLED)
            storage.runs.update(run)
        storage.run_summary_service.project(run, now=at(number))


def contents_of(port: BulkPort, entity: Entity) -> list[bytes]:
    """Return the content of every row of an entity in key order, as the verifier reads it."""
    with port.view() as view:
        return [row.content for batch in view.rows(entity, KeyRange()) for row in batch]


def rows_of(port: BulkPort) -> dict[str, int]:
    """Return the number of rows by entity."""
    return {entity.name: sum(port.counts(entity).values()) for entity in port.entities()}


def server_settings(
    *databases: MongoDatabase | PostgresDatabase, validators: bool = True, **storage: object
) -> dict[str, Any]:
    """Return settings that name databases; the scheduler is in the last one, and its rows do not expire.

    Args:
        databases: on which servers.
        validators: whether MongoDB refuses documents that no driver would write.
        storage: more options of the scheduler.
    """
    persistence: dict[str, Any] = {}
    for database in databases:
        persistence |= cast("dict[str, Any]", database.config["Persistence"])
    if not validators:
        persistence["Mongo"] = {**persistence["Mongo"], "Validators": False}
    # The rows of these tests are old; the TTL indexes of MongoDB would remove them at some time.
    return {"Persistence": persistence, "Scheduler": {"Storage": {"RunRetentionDays": 0, **storage}}}


def write_config(path: Path, settings: object) -> Path:
    """Write a settings file."""
    path.write_text(json.dumps(settings))
    return path


def invoke(capsys: pytest.CaptureFixture[str], *arguments: object) -> Answer:
    """Run a command in this process."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Answer(code, captured.out, captured.err)


def long_ago(days: int) -> datetime:
    """Return an instant that many days before :data:`AS_OF`."""
    return datetime.fromtimestamp(AS_OF.timestamp(), UTC) - timedelta(days=days)


READINGS: Final = ("records", "rows")
SINGLE_READINGS: Final = ("records_of", "rows_of")


def keys_in(
    bulk: BulkPort,
    reading: str,
    entity: Entity,
    ranges: Sequence[KeyRange],
    *,
    as_of: str | None = None,
    **options: object,
) -> list[Key | None]:
    """Return the keys in some ranges as one way of reading finds them."""
    with bulk.view(as_of=as_of) as view:
        read = getattr(view, reading)
        return [row.key for within in ranges for batch in read(entity, within, **options) for row in batch]


def unexpected_rows(bulk: BulkPort, expected: Iterable[tuple[Entity, CanonicalModel]]) -> list[str]:
    """Return which rows of a store are not the expected ones, lost and further rows included.

    Args:
        bulk: the store.
        expected: all rows of some entities, entity by entity in order of their keys.
    """
    wrong: list[str] = []
    with bulk.view() as view:
        for entity, rows in groupby(expected, key=itemgetter(0)):
            found = (record for batch in view.records(entity, KeyRange()) for record in batch)
            for (_, row), record in zip_longest(rows, found, fillvalue=(None, None)):
                stored = record.model if isinstance(record, Record) else None
                if row is None or stored is None or stored.wire() != row.wire():
                    wrong.append(f"{entity.name}: {row} but {stored}")
    return wrong


def single_keys_in(bulk: BulkPort, reading: str, entity: Entity, keys: Sequence[Key]) -> list[Key | None]:
    """Return which of some keys one way of reading finds."""
    with bulk.view() as view:
        return [row.key for row in getattr(view, reading)(entity, keys)]


def identified(example: Example, model: CanonicalModel, tenant: str, number: int) -> CanonicalModel:
    """Return a model under a unique key."""
    entity, key = example.entity, f"{tenant}-{number:06}"
    if entity is TRIGGERS:
        return example.small(tenant, key)
    if isinstance(model, GraphJob):
        return model.evolve(id=f"{model.id[:4]}{digits_of(key)}")
    if isinstance(model, GraphJobEvent):
        payload = model.payload.evolve(job=identified(example, model.payload.job, tenant, number))
        return model.evolve(event_id=str(UUID(digits_of(key))), payload=payload)
    parts = {part.field for part in entity.key_parts} - {entity.tenant_field}
    identity: dict[str, object] = {
        own: number + 1 if entity.shapes[wire].value.kind is Kind.INTEGER else key
        for wire, own in entity.identity.items()
        if wire in parts
    }
    if entity.single_key is not None and not identity:
        identity[entity.shapes[entity.single_key].name] = key
    if entity is SCHEDULES:
        # Unique in its tenant.
        identity["name"] = f"{getattr(model, 'name', '')[:80]} {number}"
    if getattr(model, "run_id", None) is not None and entity is POLICY_JOBS:
        identity["run_id"] = key
    return model.evolve(**identity)


def numbered_row(example: Example, model: CanonicalModel, tenant: str, number: int) -> Row:
    """Return a model under a unique key, with its markers; values that a store assigns follow the number."""
    row = example.row(tenant, identified(example, model, tenant, number))
    assigned = example.entity.assigned
    return Row(row.model, {**row.storage, assigned: number + 1}) if assigned else row


MEGABYTE: Final = 1_000_000
# A peak between two looks would have to be over in this time, in seconds.
POLL_SECONDS: Final = 0.1
PROGRAM: Final = "import sys; from twinstore_backfill.cli import main; sys.exit(main(sys.argv[1:]))"


def peak(arguments: list[str], expected: Exit) -> int:
    """Run a command to its end; return the most memory that it and its children had of their own."""
    sizes = [0]
    ended = Event()
    # To note what it executes for the map of the tests would take memory too.
    environ = {name: value for name, value in os.environ.items() if name != executed.SETTINGS}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    ) as command:

        def poll() -> None:
            while not ended.wait(POLL_SECONDS):
                sizes.append(sum(map(proportional_bytes, family(command.pid))))

        watch = Thread(target=poll)
        watch.start()
        out, err = command.communicate()
        ended.set()
        watch.join()
    assert command.returncode == expected, (out, err)
    return max(sizes)


def family(process: int) -> list[int]:
    """Return a process and its children, theirs included."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it has ended
        return []
    return [process, *(one for child in children for one in family(child))]


def proportional_bytes(process: int) -> int:
    """Return the private memory of a process, 0 if it has ended.

    The pages of files are not counted: their share depends on how many other processes have them.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
