"""The PostgreSQL driver of twinstore: psycopg 3, row-level security, plain SQL migrations.

For each installed module ``library`` a host imports from here ``LibraryDataSource``,
``LibraryPostgresInitializer`` and a class such as ``PostgresBookRepository`` for each repository.
"""

from __future__ import annotations

import re
from typing import Final

__all__: list[str] = []

DERIVED: Final = re.compile(r"\w+(?:DataSource|Initializer|Repository)")


def __getattr__(name: str) -> type:
    """Return a class that hosts import by the name of its module; psycopg is imported here first."""
    if not DERIVED.fullmatch(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from twinstore_postgres import initializer  # noqa: PLC0415  # the plug-in beside it must stay light

    found: type = getattr(initializer, name)
    return found
