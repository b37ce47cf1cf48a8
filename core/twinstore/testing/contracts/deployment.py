"""What every deployment must do: its probe, its initializer, and what a storage holds of its server.

A storage leaves nothing behind after a call, and nothing after its end.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.catalog.keys import KeyRange
from twinstore.errors import (
    ConfigurationError,
    DuplicateError,
    EffectKind,
    MigrationChecksumError,
    MigrationError,
    MigrationMissingError,
    NotFoundError,
    UnsupportedCapabilityError,
)
from twinstore.migrations.migration import Consent, MigrationReport, MigrationState
from twinstore.testing.base import Contract, assert_refused, needs, of_tenants
from twinstore.testing.examples import absent_key
from twinstore.testing.workspace import Workspace, is_remote, race

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.testing.probe import BackendFactory, Deployment
    from twinstore.testing.signatures import ListMethod, Lookup
    from twinstore.testing.workspace import AnyStorage

__all__ = ["InitializerContract", "ProbeContract", "ResourceContract"]


# The other contracts believe the probe.
class ProbeContract(Contract):
    """Counts, stamps and changes past the repositories."""

    def test_the_probe_reads_counts_and_stamps_one_row_of_each_entity(self, workspace: Workspace) -> None:
        rows = self.store_one_of_each(workspace)
        for entity, key in rows.keys:
            assert workspace.probe.read(entity, key) is not None
            assert workspace.count(entity) >= 1
            if self.module.of(entity).is_owned:
                assert workspace.elsewhere.count(entity) <= workspace.count(entity) - 1
            assert workspace.stamp(entity, key) == workspace.stamp(entity, key)

    def test_the_probe_sees_nothing_where_nothing_is(self, workspace: Workspace) -> None:
        for example in self.module.examples:
            key = example.key(workspace.tenant, example.small(workspace.tenant, workspace.id("absent")))
            assert workspace.probe.read(example.entity, key) is None
            assert workspace.probe.stamp(example.entity, key) is None


# Sorts behind everything that is shipped.
NEWER: Final = "999_of_tomorrow"


class InitializerContract(Contract):
    """Creating the schema, once."""

    @pytest.fixture
    def bare(self, backend_factory: BackendFactory) -> Iterator[Deployment]:
        """Return a deployment without any schema."""
        with backend_factory(self.module.module, migrated=False) as deployment:
            yield deployment

    def test_a_second_run_does_nothing(self, bare: Deployment) -> None:
        with bare.open() as storage:
            shipped = storage.initializer.status()
            assert {status.state for status in shipped} <= {MigrationState.PENDING}
            first = storage.initializer.ensure_migrations()
            assert first.module == self.module.module.name
            assert (first.backend, first.already_applied) == (storage.driver, ())
            second = storage.initializer.ensure_migrations()
            assert (second.applied, second.changes, second.unknown) == ((), (), ())
            assert set(second.already_applied) == set(first.applied)
            applied = storage.initializer.status()
            assert {status.state for status in applied} <= {MigrationState.APPLIED}
            assert [status.name for status in applied] == sorted(status.name for status in shipped)
            assert storage.initializer.verify() == ()
            storage.check_ready()
            self.store_one_of_each(self.workspace_class(bare, storage))

    def test_a_storage_is_not_ready_while_a_migration_is_pending(self, bare: Deployment) -> None:
        with bare.open() as storage:
            if storage.initializer.status():
                with pytest.raises(MigrationError):
                    storage.check_ready()
                assert storage.initializer.verify() != ()
            assert {status.state for status in storage.initializer.status()} <= {MigrationState.PENDING}

    def test_looking_changes_nothing(self, bare: Deployment) -> None:
        with bare.open() as storage:
            before = bare.probe.objects()
            shipped = storage.initializer.status()
            storage.initializer.verify()
            storage.initializer.export()
            with suppress(MigrationError):
                storage.check_ready()
            assert bare.probe.objects() == before
            storage.initializer.ensure_migrations()
            after = bare.probe.objects()
            assert (after > before) is bool(shipped)
            storage.initializer.status()
            storage.initializer.verify()
            storage.check_ready()
            assert bare.probe.objects() == after

    def test_a_call_without_schema_works_or_asks_for_the_migrations(self, bare: Deployment) -> None:
        with bare.open() as storage:
            workspace, session = self.workspace_class(bare, storage), storage.unbound
            for item in self.module.examples:
                model = item.small(workspace.tenant, workspace.id("a"))
                value = item.value(workspace.tenant, model)
                questions: list[Lookup | ListMethod] = [*item.lookups, *item.lists]
                for question in questions:
                    with suppress(MigrationError, NotFoundError):
                        question(getattr(session, item.repository), workspace.tenant, value)
                with suppress(MigrationError):
                    item.store(session, workspace.tenant, model)

    def test_a_changed_or_newer_migration_stops_everything(self, isolated_workspace: Workspace) -> None:
        initializer, probe = isolated_workspace.storage.initializer, isolated_workspace.probe
        shipped = [status.name for status in initializer.status()]
        if not shipped:
            return
        for name, error, state in (
            (shipped[0], MigrationChecksumError, MigrationState.CHANGED),
            (NEWER, MigrationMissingError, MigrationState.MISSING),
        ):
            probe.tamper_migration(name)
            with pytest.raises(error, match=name):
                initializer.ensure_migrations()
            assert {status.name: status.state for status in initializer.status()}[name] is state
            with isolated_workspace.storages(1) as (other,), pytest.raises(error, match=name):
                other.check_ready()
            probe.tamper_migration(name)
            assert initializer.ensure_migrations().applied == ()

    def test_concurrent_initializers_apply_each_migration_once(self, bare: Deployment) -> None:
        with ExitStack() as stack:
            storages = [stack.enter_context(bare.open()) for _ in range(4)]
            reports = race(
                lambda storage: storage.initializer.ensure_migrations(), storages, remote=is_remote(bare)
            )
            names = [status.name for status in storages[0].initializer.status()]
            storages[0].check_ready()
        applied = [
            name for report in reports if isinstance(report, MigrationReport) for name in report.applied
        ]
        assert [report for report in reports if not isinstance(report, MigrationReport)] == []
        assert sorted(applied) == sorted(names)

    def test_a_migrated_deployment_is_ready_and_as_wanted(self, workspace: Workspace) -> None:
        workspace.storage.check_ready()
        assert workspace.storage.initializer.verify() == ()
        assert workspace.storage.initializer.ensure_migrations().applied == ()
        times = [status.applied_at for status in workspace.storage.initializer.status()]
        assert all(time.utcoffset() == timedelta() for time in times if time is not None)

    def test_a_store_without_rows_needs_no_consent(self, bare: Deployment) -> None:
        with bare.open() as storage:
            assert storage.initializer.effects() == ()
            not_needed = {
                Consent(EffectKind.TTL, self.module.entities[0].name, 0),
                Consent(EffectKind.RLS, "absent"),
            }
            assert storage.initializer.ensure_migrations(accept=not_needed).backend == storage.driver
            assert storage.initializer.effects() == storage.initializer.effects(release=True) == ()
            storage.check_ready()

    def test_a_store_without_its_schema_reads_as_empty(self, bare: Deployment) -> None:
        with bare.open() as storage:
            if not storage.capabilities.bulk:
                assert_refused(storage, "bulk")
                return
            bulk = storage.bulk
            assert [item.entity for item in bulk.inventory()] == [entity.name for entity in bulk.entities()]
            for entity, found in zip(bulk.entities(), bulk.inventory(), strict=True):
                assert found.present == (not storage.initializer.status())
                assert (bulk.counts(entity), list(bulk.cut(entity, 1))) == ({}, [KeyRange()])
                key = absent_key(entity)
                with bulk.view() as view:
                    assert list(view.records(entity, KeyRange())) == []
                    assert list(view.rows(entity, KeyRange())) == []
                    assert list(view.records_of(entity, [key])) == []
                    assert list(view.rows_of(entity, [key])) == []
            assert {status.state for status in storage.initializer.status()} <= {MigrationState.PENDING}

    @needs("bulk")
    def test_a_migrated_store_is_read_without_a_warning(self, workspace: Workspace) -> None:
        assert [(item.present, item.warnings) for item in workspace.storage.bulk.inventory()] == [
            (True, ()) for _ in workspace.storage.bulk.entities()
        ]

    def test_the_migrations_can_be_exported_as_text(self, workspace: Workspace) -> None:
        text = workspace.storage.initializer.export()
        assert all(status.name.split("/")[-1] in text for status in workspace.storage.initializer.status())


TIMES: Final = 12
DESCRIPTORS: Final = Path("/dev/fd")


def descriptors() -> int:
    """Return how many files and connections the process has open; 0 if the system does not report it."""
    return len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.exists() else 0


class ResourceContract(Contract):
    """Connections, and the end of a storage."""

    def _every_kind_of_call(self, workspace: Workspace) -> None:
        """Read, list, write, fail, and open what can be opened."""
        storage, tenant, typical = workspace.storage, workspace.tenant, self.module.typical
        name, taken = workspace.next_id(), workspace.next_id()
        model = self.module.store_small(storage.unbound, tenant, name, typical.entity)
        self.module.store_small(storage.unbound, workspace.foreign, taken, typical.entity)
        for listed in typical.lists:
            listed(
                getattr(storage.unbound, typical.repository), tenant, typical.value(tenant, model), limit=1
            )
        if typical.shares_keys:
            with pytest.raises(DuplicateError):
                typical.store(storage.unbound, tenant, typical.small(tenant, taken))
            with suppress(UnsupportedCapabilityError, DuplicateError), storage.transaction(tenant) as unit:
                typical.store(unit, tenant, typical.small(tenant, taken))
        assert typical.found(storage.unbound, tenant, model) == model
        with suppress(UnsupportedCapabilityError), storage.sessions.open(tenant) as session:
            typical.found(session, tenant, model)
        with suppress(UnsupportedCapabilityError), storage.transaction(tenant) as unit:
            typical.found(unit, tenant, model)

    @of_tenants
    def test_no_call_leaves_a_connection_open(self, isolated_workspace: Workspace) -> None:
        self._every_kind_of_call(isolated_workspace)
        before = descriptors()
        for _ in range(TIMES):
            self._every_kind_of_call(isolated_workspace)
        # One that is opened again, for a pool or a monitor, is not a leak.
        assert descriptors() < before + TIMES

    @of_tenants
    def test_a_closed_storage_refuses_every_call(self, workspace: Workspace) -> None:
        one_of_each = self.store_one_of_each(workspace)
        typical, tenant = self.module.typical, workspace.tenant
        model = one_of_each.rows[typical.entity]
        with workspace.storages(1) as (storage,):
            session, handle = storage.unbound, workspace.deployment.handle(workspace.tenant)
            assert typical.found(session, tenant, model) == model
        for call in (*self.tenant_calls(), *self.system_calls()):
            with pytest.raises(ConfigurationError, match="closed"):
                call.invoke(session, workspace.tenant, one_of_each)
        uses: list[Callable[[AnyStorage], object]] = [
            *(attrgetter(item.repository) for item in self.module.examples),
            lambda it: it.unbound,
            lambda it: it.sessions.open(workspace.tenant).__enter__(),
            lambda it: it.transaction(workspace.tenant).__enter__(),
            lambda it: it.bind(handle, workspace.tenant),
            lambda it: it.capabilities,
            lambda it: it.initializer,
            lambda it: it.bulk,
            lambda it: it.check_ready(),
        ]
        for use in uses:
            with pytest.raises(ConfigurationError, match="closed"):
                use(storage)
        storage.close()
        assert typical.found(workspace.storage.unbound, tenant, model) == model
