"""The least that a driver can be: no bulk, and the six operations that have no default in core."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from typing_extensions import override

from tests.support.recording import is_listed
from twinstore.clock import SystemClock
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing.entities import DefaultsOnly
from twinstore.testing.scheduler import SchedulerContract
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.store import shared_store
from twinstore_memory.testing import MemoryDeployment, memory_deployments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access.protocol import Access
    from twinstore.access.scope import Scope
    from twinstore.bulk.port import BulkPort
    from twinstore.clock import Clock
    from twinstore.plugins.backend import Capabilities, ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.testing import BackendFactory

R = TypeVar("R")


class FirstBackend(MemoryBackend[R]):
    """Declares no bulk and leaves everything that has a default to core."""

    @property
    @override
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, bulk=False)

    @property
    @override
    def bulk(self) -> BulkPort:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # as the base of all drivers
        return super(MemoryBackend, self).bulk

    @override
    def unbound(self) -> Access:
        return DefaultsOnly(super().unbound())

    @contextmanager
    @override
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[Access]:
        with super().open_session(scope, causal_consistency=causal_consistency) as access:
            yield DefaultsOnly(access)

    @contextmanager
    @override
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Iterator[Access]:
        with super().open_transaction(scope, read_only=read_only) as access:
            yield DefaultsOnly(access)

    @override
    def join(self, handle: object, scope: Scope) -> Access:
        return DefaultsOnly(super().join(handle, scope))


class MemoryVariant(MemoryDeployment):
    """A named store, opened by a backend that differs from ours in one point."""

    def __init__(self, backend: type[MemoryBackend[Any]], module: ModuleSpec[object], name: str) -> None:
        super().__init__(module, name)
        self._backend = backend

    @override
    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> SchedulerStorage:
        del expiring
        return SchedulerStorage(self._backend(MODULE, shared_store(self._name)), clock or SystemClock())

    @contextmanager
    @override
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        del clock  # that of the store judges
        with closing(self._backend(module, shared_store(self._name))) as backend:
            yield backend


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return partial(memory_deployments, make=partial(MemoryVariant, FirstBackend))


class TestScheduler(SchedulerContract):
    """What a driver is that was begun today."""

    # The default reads the row it changes, and these rows cannot be read.
    test_a_broken_schedule_is_soft_deleted_as_it_is: Any = None
    test_a_broken_schedule_is_soft_deleted_with_its_broken_trigger_in_a_unit: Any = None


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Return whether other tests make the same calls; conflicts and values are those of the kit in memory."""
    return not is_listed("mongo", kit, test, case)
