"""The filesystem driver: the task runner's files in one folder, for a service without a database."""

from __future__ import annotations

from twinstore.storage.driver_names import bound_name


def __getattr__(name: str) -> type:
    """Return a class that hosts import by name: initialiser, session factory or repository."""
    return bound_name(__name__, name, "Filesystem", "twinstore_filesystem.initializer:initializer_class")
