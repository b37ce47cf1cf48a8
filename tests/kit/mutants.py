"""A fault that is planted in the memory driver, and the case of the kit that must catch it."""

# ruff: noqa: ANN401  # faults are planted inside, where types do not help

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from twinstore.scheduler.module import MODULE
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing.scheduler import SchedulerContract, SchedulerWorkspace
from twinstore_memory.backend import CAPABILITIES, MemoryBackend
from twinstore_memory.testing import memory_deployments

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, and the test that must catch it."""

    name: str
    plant: Callable[[Patch], None]
    case: Callable[[SchedulerWorkspace], object]


def replacing(owner: Any, name: str, value: Any) -> Callable[[Patch], None]:
    """Return what puts a value in the place of another one."""
    return lambda patch: patch.setattr(owner, name, value)


def case(
    name: str, /, *arguments: Any, of: type = SchedulerContract, **named: Any
) -> Callable[[SchedulerWorkspace], object]:
    """Return what performs a case of a contract, by its name, with what it is given besides the workspace."""
    return lambda workspace: getattr(of(), name)(workspace, *arguments, **named)


def declaring(**flags: Any) -> Callable[[Patch], None]:
    """Return what makes the driver declare something else than it can do."""
    return replacing(MemoryBackend, "capabilities", property(lambda _: replace(CAPABILITIES, **flags)))


@contextmanager
def workspace_in_memory() -> Iterator[SchedulerWorkspace]:
    """Open the scheduler on a separate store."""
    with memory_deployments(MODULE) as deployment, deployment.open() as storage:
        assert isinstance(storage, SchedulerStorage)
        yield SchedulerWorkspace(deployment, storage)
