"""The memory driver: the executable specification of the contracts, and a fast fake for tests."""

from __future__ import annotations

from twinstore.storage.driver_names import bound_name


def __getattr__(name: str) -> type:
    """Return a class that hosts import by name: initialiser, session factory or repository."""
    return bound_name(__name__, name, "Memory", "twinstore_memory.initializer:initializer_class")
