"""What every initializer must do."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.catalog.keys import KeyRange
from twinstore.errors import (
    EffectKind,
    MigrationChecksumError,
    MigrationError,
    MigrationMissingError,
    NotFoundError,
)
from twinstore.migrations.migration import Consent, MigrationReport, MigrationState
from twinstore.testing.base import Contract, assert_refused, needs
from twinstore.testing.examples import absent_key
from twinstore.testing.workspace import Workspace, is_remote, race

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.testing.probe import BackendFactory, Deployment
    from twinstore.testing.signatures import ListMethod, Lookup

__all__ = ["InitializerContract"]

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

    def test_rivals_apply_each_migration_once(self, bare: Deployment) -> None:
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
            assert [item.entity for item in bulk.survey()] == [entity.name for entity in bulk.entities()]
            for entity, found in zip(bulk.entities(), bulk.survey(), strict=True):
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
        assert [(item.present, item.warnings) for item in workspace.storage.bulk.survey()] == [
            (True, ()) for _ in workspace.storage.bulk.entities()
        ]

    def test_the_migrations_can_be_exported_as_text(self, workspace: Workspace) -> None:
        text = workspace.storage.initializer.export()
        assert all(status.name.split("/")[-1] in text for status in workspace.storage.initializer.status())
