"""The PostgreSQL driver of twinstore: psycopg 3, row-level security, plain SQL migrations."""

from __future__ import annotations

from twinstore.storage.driver_names import bound_name


def __getattr__(name: str) -> type:
    """Return a class that hosts import by name, such as an initialiser or a connection source."""
    return bound_name(
        __name__,
        name,
        "Postgres",
        "twinstore_postgres.schema.initializer:initializer_class",
        "twinstore_postgres.connection.data_source:source_class",
    )
