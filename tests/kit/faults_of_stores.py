"""Faults of a whole store that a kit easily overlooks: what it declares, reports and leaves open."""

# ruff: noqa: ANN401  # faults are planted inside, where types do not help

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest
from typing_extensions import override

from tests.kit.mutants import Mutant, Patch, case, declaring, replacing
from twinstore.access.unit_state import Lifetime
from twinstore.documents import access as documents
from twinstore.documents import rows
from twinstore.errors import (
    DocumentDecodeError,
    DuplicateError,
    MigrationChecksumError,
    MigrationError,
    MigrationMissingError,
    UnavailableError,
)
from twinstore.migrations.migration import Consent, MigrationReport, MigrationState, MigrationStatus
from twinstore.plugins.drivers import hookimpl
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler import SchedulerContract, SchedulerWorkspace
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore_memory import access, plugin, store
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.initializer import MemoryInitializer
from twinstore_memory.testing import MemoryDeployment, MemoryProbe, memory_deployments

RUN = SCHEDULER_EXAMPLES.of(RUNS)
MIGRATION = "001_only"
LOOKED = "looked at"
REFUSED = "connection to server at 10.0.0.1 was refused"
# The applied migrations of the driver that has one, with their checksums.
LEDGER: dict[str, str] = {}


def unreadable_rows_are(error: Callable[[DocumentDecodeError], Exception], patch: Patch) -> None:
    """Raise something else for a row that forms no model."""
    decode = rows.decode

    def other(entity: Any, row: Any, driver: Any) -> Any:
        try:
            return decode(entity, row, driver)
        except DocumentDecodeError as problem:
            raise error(problem) from None

    patch.setattr(documents, "decode", other)


def repeating_the_database(patch: Patch) -> None:
    said = "UNIQUE constraint failed: runs.id"

    def told(entity: Any, key: Any, *_: Any) -> DuplicateError:
        error = DuplicateError(f"Not stored: {said}", entity=entity.name, key=str(key), driver="Memory")
        error.__cause__ = RuntimeError(said)
        return error

    patch.setattr(documents, "duplicate", told)


def without_schema(*_: Any) -> Any:
    raise UnavailableError


def out_of_reach(tell: Callable[[OSError], Exception], patch: Patch) -> None:
    """Give the deployment a connection that breaks, and the driver a way to report it."""

    def begin(*_: Any, **__: Any) -> Any:
        problem = OSError(REFUSED)
        error = tell(problem)
        raise error from (None if error.args[0] == "no cause" else problem)

    @contextmanager
    def breaking(self: MemoryDeployment) -> Iterator[Any]:
        with self.open() as storage, pytest.MonkeyPatch.context() as inside:
            inside.setattr(store.MemoryDatabase, "begin", begin)
            yield storage

    patch.setattr(MemoryDeployment, "break_connection", breaking)


def unavailable(text: str) -> Callable[[OSError], Exception]:
    """Return a function that reports an outage with this text."""
    return lambda _: UnavailableError(text, driver="Memory")


class Migrated(MemoryInitializer):
    """An initializer with one migration."""

    compares_checksums = True
    compares_names = True
    writes_when_asked = False

    @override
    def status(self) -> tuple[MigrationStatus, ...]:
        if self.writes_when_asked:
            LEDGER.setdefault(LOOKED, "")
        states = {MIGRATION: MigrationState.PENDING} | {name: state_of(name) for name in LEDGER}
        states.pop(LOOKED, None)
        return tuple(
            MigrationStatus(name=name, category="schema", checksum="x", state=state)
            for name, state in sorted(states.items())
        )

    def check(self) -> None:
        if self.compares_checksums and LEDGER.get(MIGRATION, "right") != "right":
            raise MigrationChecksumError(f"{MIGRATION} was changed")
        newer = ", ".join(LEDGER.keys() - {MIGRATION, LOOKED})
        if self.compares_names and newer:
            raise MigrationMissingError(f"{newer} is not shipped")

    @override
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        del release, accept
        self.check()
        report = MigrationReport(module="scheduler", backend="Memory")
        if MIGRATION in LEDGER:
            return replace(report, already_applied=(MIGRATION,))
        LEDGER[MIGRATION] = "right"
        return replace(report, applied=(MIGRATION,))


def state_of(name: str) -> MigrationState:
    if name != MIGRATION:
        return MigrationState.MISSING
    return MigrationState.APPLIED if LEDGER[name] == "right" else MigrationState.CHANGED


def tampered(_: Any, name: str) -> None:
    if name not in LEDGER:
        LEDGER[name] = "tampered"
    elif LEDGER[name] == "tampered":
        del LEDGER[name]
    else:
        LEDGER[name] = LEDGER[name][::-1]


def checked(backend: Any) -> None:
    backend.initializer.check()
    if MIGRATION not in LEDGER:
        raise MigrationError


def migrated(patch: Patch, **faults: bool) -> None:
    """Give the memory driver a schema of one migration, which is applied."""
    LEDGER.clear()
    LEDGER[MIGRATION] = "right"
    for name, value in faults.items():
        patch.setattr(Migrated, name, value)
    patch.setattr("twinstore_memory.backend.initializer_class", lambda _: Migrated)
    patch.setattr(MemoryBackend, "check_ready", checked)
    patch.setattr(MemoryProbe, "tamper_migration", tampered)
    patch.setattr(MemoryProbe, "objects", lambda _: frozenset(LEDGER))


def looked_at(workspace: SchedulerWorkspace) -> None:
    LEDGER.clear()
    SchedulerContract().test_looking_changes_nothing(workspace.deployment)


def tampered_with(workspace: SchedulerWorkspace) -> None:
    with workspace.deployment.open() as storage:
        SchedulerContract().test_a_changed_or_newer_migration_stops_everything(workspace.on(storage))


def one_descriptor_a_call(patch: Patch) -> None:
    begin, opened = store.MemoryDatabase.begin, list[int]()

    def leaking(self: Any, **options: Any) -> Any:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        return begin(self, **options)

    patch.setattr(store.MemoryDatabase, "begin", leaking)


def a_list_for_a_tuple(patch: Patch) -> None:
    spec: Any = plugin.twinstore_register_backend()

    @hookimpl
    def twinstore_register_backend() -> Any:
        return replace(spec, schemes=["memory"])

    patch.setattr(plugin, "twinstore_register_backend", twinstore_register_backend)


def under_another_name(patch: Patch) -> None:
    patch.setattr(MemoryBackend, "driver", property(lambda _: "RAM"))


def taken(workspace: SchedulerWorkspace) -> None:
    SchedulerContract().test_a_taken_value_is_reported_in_the_words_of_the_library(workspace, "run")


def other_form(workspace: SchedulerWorkspace) -> None:
    SchedulerContract().test_a_row_of_another_form_is_undecodable_and_says_why_in_its_cause(workspace, RUN)


def unreachable(workspace: SchedulerWorkspace) -> None:
    SchedulerContract().test_a_store_out_of_reach_is_unavailable_for_every_kind_of_call(workspace)


MUTANTS: Final = [
    Mutant(
        "rows are said to expire by themselves",
        declaring(server_ttl=True),
        lambda _: SchedulerContract().test_expired_rows_are_removed_by_the_store_exactly_when_declared(
            memory_deployments
        ),
    ),
    Mutant(
        "a tenant check of the server is made up",
        declaring(row_level_security=True),
        case("test_the_server_checks_the_tenant_exactly_when_declared"),
    ),
    Mutant(
        "the clock of the client is said to judge",
        declaring(server_clock=False),
        case("test_a_clock_outside_the_client_judges_exactly_when_declared"),
    ),
    Mutant(
        "other processes are said to be kept out",
        declaring(cross_process_locks=True),
        case("test_writers_of_other_processes_are_kept_out_exactly_when_declared"),
    ),
    Mutant(
        "a feed of changes is made up",
        declaring(change_stream=True),
        case("test_changes_can_be_followed_exactly_when_declared"),
    ),
    Mutant(
        "reads of the past are made up",
        declaring(point_in_time_reads=True),
        case("test_reads_of_the_past_work_exactly_when_declared"),
    ),
    Mutant(
        "bulk works and is not declared",
        declaring(bulk=False),
        case("test_using_it_works_exactly_when_declared", "bulk"),
    ),
    Mutant(
        "the remedy is empty",
        declaring(remedy=" "),
        case("test_the_declaration_names_the_driver_and_a_way_out"),
    ),
    Mutant(
        "instants are said to be coarser than nothing",
        declaring(time_precision_ms=0),
        case("test_instants_keep_the_declared_precision"),
    ),
    Mutant(
        "a missing schema is an outage",
        replacing(access.MemoryAccess, "find", without_schema),
        lambda workspace: SchedulerContract().test_a_call_without_schema_works_or_asks_for_the_migrations(
            workspace.deployment
        ),
    ),
    Mutant("what is not JSON is a ValueError", partial(unreadable_rows_are, ValueError), other_form),
    Mutant("an unreadable row has no cause", partial(unreadable_rows_are, lambda error: error), other_form),
    Mutant("messages repeat the database", repeating_the_database, taken),
    Mutant("an outage is an error of the client library", partial(out_of_reach, OSError), unreachable),
    Mutant("an outage has no cause", partial(out_of_reach, unavailable("no cause")), unreachable),
    Mutant("a changed migration goes unnoticed", partial(migrated, compares_checksums=False), tampered_with),
    Mutant("a newer schema goes unnoticed", partial(migrated, compares_names=False), tampered_with),
    Mutant("asking for the migrations writes", partial(migrated, writes_when_asked=True), looked_at),
    Mutant(
        "each call leaves a connection open",
        one_descriptor_a_call,
        case("test_no_call_leaves_a_connection_open"),
    ),
    Mutant(
        "a closed storage goes on",
        replacing(Lifetime, "check", lambda _: None),
        case("test_a_closed_storage_refuses_every_call"),
    ),
    Mutant(
        "the probe cannot tell writes apart",
        replacing(MemoryProbe, "stamp", lambda *_: None),
        case("test_a_stamp_changes_with_a_write_and_with_nothing_else"),
    ),
    Mutant(
        "the description has a list for a tuple",
        a_list_for_a_tuple,
        case("test_the_description_of_the_driver_has_the_types_that_are_asked_for"),
    ),
    Mutant(
        "the driver calls itself by another name than its entry point",
        under_another_name,
        case("test_the_driver_is_installed_under_the_name_that_it_gives_itself"),
    ),
]
