"""The least that a driver can be: no bulk, and the six operations that have no default in core."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest
from typing_extensions import override

from tests.contract.deployments.memory import MemoryVariant, memory_deployments
from twinstore.testing import SchedulerContract
from twinstore.testing.defaults import DefaultsOnly
from twinstore_memory.backend import MemoryBackend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access import Access
    from twinstore.backend import Capabilities
    from twinstore.bulk import BulkPort
    from twinstore.scope import Scope
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


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return partial(memory_deployments, make=partial(MemoryVariant, FirstBackend))


class TestFirstDriver(SchedulerContract):
    """What a driver is that was begun today."""
