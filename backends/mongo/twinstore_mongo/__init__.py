"""The MongoDB driver of twinstore."""

from __future__ import annotations

from twinstore.storage.driver_names import bound_name


def __getattr__(name: str) -> type:
    """Return a class that hosts import by name: initialiser, session factory or repository."""
    return bound_name(__name__, name, "Mongo", "twinstore_mongo.schema.migrator:initializer_class")
