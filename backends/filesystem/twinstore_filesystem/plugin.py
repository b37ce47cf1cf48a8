"""Describes the filesystem driver to twinstore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.plugins.backend import BACKEND_API_VERSION, BackendSpec
from twinstore.plugins.drivers import hookimpl
from twinstore_filesystem.settings import FilesystemSettings

if TYPE_CHECKING:
    from twinstore.plugins.backend import ModuleBackend, OpenRequest


def open_module(request: OpenRequest) -> ModuleBackend[object]:
    """Open the module; nothing is touched before its first use."""
    from twinstore_filesystem.backend import open_backend

    return open_backend(request)


@hookimpl
def twinstore_register_backend() -> BackendSpec:
    """Describe the driver."""
    return BackendSpec(
        name="Filesystem",
        schemes=("file",),
        api_version=BACKEND_API_VERSION,
        settings=FilesystemSettings,
        factory=open_module,
        extra="twinstore",
        # The layout of the files of an entity is a customer's, so no other module has one.
        modules=frozenset({"taskrunner"}),
    )
