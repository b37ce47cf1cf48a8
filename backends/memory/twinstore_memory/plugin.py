"""Describes the memory driver to twinstore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.plugins.backend import BACKEND_API_VERSION, BackendSpec
from twinstore.plugins.drivers import hookimpl
from twinstore_memory.settings import MemorySettings

if TYPE_CHECKING:
    from twinstore.plugins.backend import ModuleBackend, OpenRequest


def open_module(request: OpenRequest) -> ModuleBackend[object]:
    """Open one module in memory."""
    from twinstore_memory.backend import open_backend

    return open_backend(request)


@hookimpl
def twinstore_register_backend() -> BackendSpec:
    """Describe the driver."""
    return BackendSpec(
        name="Memory",
        schemes=("memory",),
        api_version=BACKEND_API_VERSION,
        settings=MemorySettings,
        factory=open_module,
        extra="twinstore",
    )
