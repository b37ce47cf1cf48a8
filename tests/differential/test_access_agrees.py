"""Whatever is done to rows of any kind, every way through every driver answers and stores the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.differential.access_machine import AccessSide, run_access_machine
from twinstore.testing.defaults import MODULE_BY_DEFAULTS
from twinstore.testing.entities import MODULE
from twinstore_memory.backend import MemoryBackend

if TYPE_CHECKING:
    import hypothesis

    from twinstore.access import Access
    from twinstore.modules import ModuleSpec


def memory_access(name: str, module: ModuleSpec[Access]) -> AccessSide:
    """Return a side in memory."""
    backend = MemoryBackend(module)
    return AccessSide(name, backend, backend.store.clear)


def test_what_a_driver_overrides_and_the_defaults_of_core_agree(profile: hypothesis.settings) -> None:
    sides = [memory_access("overrides", MODULE), memory_access("defaults", MODULE_BY_DEFAULTS)]
    run_access_machine(sides, profile)
