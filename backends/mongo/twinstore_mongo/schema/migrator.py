"""Creates and upgrades collections, validators and indexes; safe from several processes at once."""

from __future__ import annotations

import getpass
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from typing_extensions import override

from twinstore.errors import MigrationError
from twinstore.migrations.applied import check_history, statuses
from twinstore.migrations.migration import (
    Initializer,
    MigrationReport,
    ReportsDefaults,
    SessionDefaults,
    consent_required,
    logs_migration,
    migration_problems,
    no_migrations,
    without_consent,
)
from twinstore.migrations.revert import RevertsMigrations, revert_files, revert_of
from twinstore.runtime.service_log import log_ready
from twinstore.storage.driver_names import named_initializer
from twinstore_mongo.access.changing import numbering_differences
from twinstore_mongo.client.balancer import balancer_remark
from twinstore_mongo.client.errors import CLIENT_ERRORS, DRIVER, translate
from twinstore_mongo.client.identity import router_needs
from twinstore_mongo.client.positions import sends_time, time_not_sent_message
from twinstore_mongo.mapping.codec import converted
from twinstore_mongo.schema.collections import check_other_modules, record_collections
from twinstore_mongo.schema.comparison import Schema
from twinstore_mongo.schema.lock import holding
from twinstore_mongo.schema.revert import Revert, Reverter
from twinstore_mongo.schema.script import script
from twinstore_mongo.schema.steps import RELEASE, AppliedStep, Step, load_steps, whole_collections
from twinstore_mongo.schema.validators import validator_of
from twinstore_mongo.special import carry_overs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.catalog.entity import Module
    from twinstore.errors import Effect
    from twinstore.migrations.migration import Consent, MigrationStatus
    from twinstore.migrations.revert import Reversal, RevertFile
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.plugins.options import ModuleOptions
    from twinstore_mongo.client.connection import Connection
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.schema.lock import MigrationLease

LEDGER: Final = "_migrations"
# The folder of the migrations of a module that are for this kind of store.
MIGRATIONS: Final = "mongo"
# For so long the others wait when a process dies while it is migrating. A live one renews it meanwhile,
# however long a step of it takes.
LEASE: Final = timedelta(seconds=10)
# Building indexes may take minutes, and a start-up rather waits for them than fails.
LEASE_TIMEOUT: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The wanted state: the steps that count, those of them that are pending, and the schema they make."""

    steps: tuple[Step, ...]
    pending: tuple[Step, ...]
    schema: Schema

    def with_snapshot(self) -> Self:
        """Return the same for a comparison that changes nothing."""
        return replace(self, schema=self.schema.with_snapshot())


@dataclass(frozen=True, slots=True)
class MongoInitializer(Initializer, RevertsMigrations, ReportsDefaults):
    """Implements :class:`~twinstore.migrations.migration.Initializer` for one module."""

    connection: Connection
    catalog: Module
    options: ModuleOptions
    steps: tuple[Step, ...]
    reverts: tuple[RevertFile, ...] = ()
    validators: bool = True

    @classmethod
    def of(
        cls, connection: Connection, module: ModuleSpec[object], options: ModuleOptions, *, validators: bool
    ) -> Self:
        """Return the initializer of a module, with the steps that it ships."""
        catalog = module.catalog
        names = {entity.collection: connection.collection_name(entity) for entity in catalog.entities}
        carried = carry_overs_of(module.name)
        steps = tuple(
            replace(step.renamed(names), carry_overs=carried.get(step.name, ()))
            for step in load_steps(module.migrations(MIGRATIONS))
        )
        reverts = revert_files(module.migrations(MIGRATIONS))
        return cls(connection, catalog, options, steps, reverts, validators=validators)

    @property
    def module(self) -> str:
        """The name of the module, under which the ledger keeps its steps."""
        return self.catalog.name

    @override
    @logs_migration
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        with self._working(writes=True) as store:
            plan = self._plan(store, release=release).with_snapshot()
            # Nearly every start finds nothing to do; it then takes no lease and needs no right to write.
            if not plan.pending and not any(plan.schema.differences()):
                return report(self.module, (), (), plan)
            with holding(store.collection(LEDGER), duration=LEASE, timeout=LEASE_TIMEOUT) as lease:
                return self._migrate(store, lease, accept, release=release)

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        with self._working() as store:
            return tuple(sorted(self._plan(store, release=release).schema.effects(), key=place_of))

    @override
    def status(self) -> tuple[MigrationStatus, ...]:
        with self._working() as store:
            rows = self._ledger(store)
        return statuses(self._shipped, [row.status for row in rows.values()])

    @override
    def verify(self, *, additions: bool = True) -> tuple[str, ...]:
        pending = migration_problems(self.status(), self._remedy)
        with self._working() as store:
            schema = self._plan(store, release=False, check=False).schema.with_snapshot()
            enforced_extras = set(schema.unknown(harmless=False))
            names = [name for name in schema.unknown() if additions and name not in enforced_extras]
            unknown = [f"The index {name} belongs to no migration." for name in names]
            problems = [f"{item.problem} To fix: {self._remedy}" for item in schema.differences()]
            lagging = numbering_differences(self.connection, self.catalog)
            return (
                *pending,
                *problems,
                *schema.foreign_kinds(),
                *schema.enforced_extras(),
                *lagging,
                *unknown,
            )

    @override
    def reversal(self, migration: str) -> Reversal:
        with self._working() as store:
            return self._reverter(store, migration).reversal()

    @override
    def revert(self, migration: str, *, accept: AbstractSet[Consent] = frozenset()) -> Reversal:
        with (
            self._working(writes=True) as store,
            holding(store.collection(LEDGER), duration=LEASE, timeout=LEASE_TIMEOUT) as lease,
        ):
            return self._reverter(store, migration).run(lease, accept)

    @override
    def session_defaults(self) -> SessionDefaults | None:
        """Return what pymongo does not do, which router does not say where it leads, and if documents move.

        A server of MongoDB gives sessions no settings.
        """
        with self._working() as store:
            client = () if sends_time(store.collection(LEDGER)) else (time_not_sent_message(),)
            with store.limited():
                needs, balancer = router_needs(store.client), balancer_remark(store.client)
        unknown = () if needs is None else (needs,)
        remarks = () if balancer is None else (balancer,)
        found = SessionDefaults(client=client, unknown=unknown, remarks=remarks)
        return found if client or unknown or remarks else None

    @override
    def export(self, names: Collection[str] | None = None) -> str:
        """Return a script for mongosh that does the same."""
        known = {status.name for status in self._shipped}
        selected = [step for step in self.steps if step.name in (known if names is None else names)]
        return script(self.module, selected, self._validators(), self.options)

    def check_applied(self) -> None:
        """Raise ``MigrationError`` when a migration is pending, changed or missing, or its work undone.

        Of what was undone by hand, only collections and unique indexes matter here: without them rows are
        stored that the schema would not have taken. So they are where a collation makes keys equal.
        """
        with self._working() as store:
            plan = self._plan(store, release=False)
            pending = [step.name for step in plan.pending]
            undone = [] if pending else list(plan.schema.with_snapshot().undone())
        remedy = f"`twinstore migrate run --module {self.module}`, or call ensure_migrations() at start-up."
        if undone:
            raise MigrationError(
                f"The schema of {self.module} is not as it was made: {' '.join(undone)} Run {remedy}",
                module=self.module,
                driver=DRIVER,
            )
        if pending:
            raise MigrationError(
                f"Migrations are pending: {', '.join(pending)}; run {remedy}",
                module=self.module,
                driver=DRIVER,
            )
        level = max((step.name for step in plan.steps), default="none")
        log_ready(self.module, DRIVER, store.capabilities.server_version, level)

    @property
    def _remedy(self) -> str:
        return f"twinstore migrate run --module {self.module} --backend {DRIVER}"

    @contextmanager
    def _working(self, *, writes: bool = False) -> Iterator[OpenDatabase]:
        store = self.connection.store
        where = store.where if writes else store.where.reading
        try:
            store.await_primary()
            yield store
        except CLIENT_ERRORS as error:
            raise translate(error, where) from error

    def _migrate(
        self,
        store: OpenDatabase,
        lease: MigrationLease,
        accept: AbstractSet[Consent],
        *,
        release: bool,
    ) -> MigrationReport:
        """Apply the pending steps, then repair what differs; the ledger is read again under the lease.

        First what only helps: collections, unique and plain indexes. Last what lets the server remove or
        refuse documents, and only with consent to their number, which is counted twice: building indexes in
        between may take hours. A step is recorded when all of it is there, so one without consent stays
        pending.
        """
        plan = self._plan(store, release=release)
        if not plan.pending:  # a setting may name another collection than before
            check_other_modules(store.collection(LEDGER), self.module, plan.steps)
        missing = without_consent(plan.schema.effects(), accept)
        schema = replace(plan.schema, plain=bool(missing))
        seconds = {step.name: self._create(schema, lease, step) for step in plan.pending}
        changes = repaired(schema, lease, guarded=False)
        missing = missing or without_consent(schema.effects(), accept)
        if missing:
            done = "Plain indexes were created; nothing else was changed."
            raise consent_required(missing, done, module=self.module, driver=DRIVER)
        changes += repaired(schema, lease, guarded=True)
        applied = [step.name for step in plan.pending if self._finish(store, lease, step, seconds[step.name])]
        record_collections(store.collection(LEDGER), self.module, plan.steps)
        return report(self.module, applied, changes, plan)

    def _create(self, schema: Schema, lease: MigrationLease, step: Step) -> float:
        """Create what a step wants, every part of which may exist; return the seconds it took."""
        lease.check()
        start = monotonic()
        schema.create(step.collections)
        return monotonic() - start

    def _finish(self, store: OpenDatabase, lease: MigrationLease, step: Step, seconds: float) -> bool:
        """Carry over data of earlier versions, record the step; return whether this process was first."""
        start = monotonic()
        for item in step.carry_overs:
            lease.check()
            item.run(store)
        lease.check()
        return self._record(store, step, seconds + monotonic() - start)

    def _record(self, store: OpenDatabase, step: Step, seconds: float) -> bool:
        row = AppliedStep(
            migration_name=step.name,
            category=step.category,
            checksum=step.checksum,
            applied_at=store.now(),
            applied_by=user_name(),
            duration_ms=int(seconds * 1000),
        )
        which = {"_id": f"{self.module}:{step.name}"}
        # Who was first stays: a process that lost its lease late may have applied the same step.
        result = store.collection(LEDGER).update_one(which, {"$setOnInsert": asdict(row)}, upsert=True)
        return result.upserted_id is not None

    def _plan(self, store: OpenDatabase, *, release: bool, check: bool = True) -> MigrationPlan:
        """Compare the ledger with what is shipped; a release step counts once it was requested."""
        rows = self._ledger(store)
        if check:
            self._check(rows)
        wanted = [step for step in self.steps if release or step.name in rows or step.category != RELEASE]
        collections = whole_collections(wanted)
        validators = self._validators() if self.validators else {}
        pending = tuple(step for step in wanted if step.name not in rows)
        if check and pending:
            check_other_modules(store.collection(LEDGER), self.module, wanted)
        return MigrationPlan(tuple(wanted), pending, Schema(store, collections, validators, self.options))

    def _reverter(self, store: OpenDatabase, migration: str) -> Reverter:
        """Return what reverts a step, after a check of the ledger."""
        file = revert_of(self.reverts, migration, module=self.module, driver=DRIVER)
        rows = self._ledger(store)
        self._check(rows)
        names = {item.collection: self.connection.collection_name(item) for item in self.catalog.entities}
        return Reverter(
            store,
            self.module,
            store.collection(LEDGER),
            [step for step in self.steps if step.name in rows],
            Revert.of(file, names),
            self._validators() if self.validators else {},
        )

    @property
    def _shipped(self) -> list[MigrationStatus]:
        if not self.steps:
            raise no_migrations(self.module, DRIVER)
        return [step.status for step in self.steps]

    def _check(self, rows: Mapping[str, AppliedStep]) -> None:
        recorded = [row.status for row in rows.values()]
        check_history(self._shipped, recorded, module=self.module, driver=DRIVER)

    def _validators(self) -> dict[str, Document]:
        entities = self.catalog.entities
        return {self.connection.collection_name(entity): validator_of(entity) for entity in entities}

    def _ledger(self, store: OpenDatabase) -> dict[str, AppliedStep]:
        # The semicolon follows the colon, so these bounds are a prefix, read along the index of _id.
        mine = {"$gt": f"{self.module}:", "$lt": f"{self.module};"}
        rows = map(AppliedStep.of, map(converted, store.collection(LEDGER).find({"_id": mine})))
        return {row.migration_name: row for row in rows}


def repaired(schema: Schema, lease: MigrationLease, *, guarded: bool) -> list[str]:
    """Repair the differences of one kind; return what was changed."""
    changes: list[str] = []
    for difference in schema.differences():
        if difference.guarded is guarded:
            lease.check()
            difference.repair()
            changes.append(difference.change)
    return changes


def place_of(effect: Effect) -> tuple[str, str]:
    """Return the place of an effect in a list."""
    return effect.kind, effect.name


def report(
    module: str, applied: Sequence[str], changes: Sequence[str], plan: MigrationPlan
) -> MigrationReport:
    """Return what was done."""
    return MigrationReport(
        module=module,
        backend=DRIVER,
        applied=tuple(applied),
        already_applied=tuple(step.name for step in plan.steps if step.name not in applied),
        changes=tuple(changes),
        unknown=tuple(plan.schema.unknown()),
    )


def user_name() -> str:
    """Return who runs the migration."""
    with suppress(OSError, KeyError):  # in a container the number of the user may have no name
        return getpass.getuser()
    return "unknown"


@cache
def initializer_class(module: ModuleSpec[object]) -> type[MongoInitializer]:
    """Return the initialiser of a module."""
    return named_initializer(MongoInitializer, module, DRIVER, __slots__=())
