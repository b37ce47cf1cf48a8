"""The PostgreSQL driver of twinstore: psycopg 3, row-level security, plain SQL migrations.

For each installed module ``library`` a host imports ``LibraryDataSource`` from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinstore_postgres.datasource import PostgresDataSource

__all__: list[str] = []


def __getattr__(name: str) -> type[PostgresDataSource]:
    """Return the connection source of a module; psycopg is imported here first."""
    if name.endswith("DataSource"):
        from twinstore_postgres import datasource, initializer  # noqa: PLC0415  # the plug-in must stay light

        found: object = getattr(initializer, name, None)
        if isinstance(found, type) and issubclass(found, datasource.PostgresDataSource):
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
