"""The MongoDB driver of twinstore."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twinstore.drivernames import bound_name

if TYPE_CHECKING:
    from twinstore.modules import ModuleSpec


def __getattr__(name: str) -> type:
    """Return a class that hosts import by name: initialiser, session factory or repository."""
    return bound_name(__name__, name, "Mongo", _initializer)


def _initializer() -> Callable[[ModuleSpec[object]], type]:
    from twinstore_mongo.migrator import initializer_class  # noqa: PLC0415  # the package itself stays light

    return initializer_class
