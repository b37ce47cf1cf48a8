"""The PostgreSQL driver of twinstore: psycopg 3, row-level security, plain SQL migrations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twinstore.drivernames import bound_name

if TYPE_CHECKING:
    from twinstore.modules import ModuleSpec


def __getattr__(name: str) -> type:
    """Return a class that hosts import by name, such as an initialiser or a connection source."""
    return bound_name(__name__, name, "Postgres", _initializer, _source)


def _initializer() -> Callable[[ModuleSpec[object]], type]:
    from twinstore_postgres.initializer import initializer_class  # noqa: PLC0415  # the package itself stays light

    return initializer_class


def _source() -> Callable[[ModuleSpec[object]], type]:
    from twinstore_postgres.datasource import source_class  # noqa: PLC0415  # the same

    return source_class
