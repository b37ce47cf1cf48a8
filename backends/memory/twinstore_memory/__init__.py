"""The memory driver: the executable specification of the contracts, and a fast fake for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twinstore.drivernames import bound_name

if TYPE_CHECKING:
    from twinstore.modules import ModuleSpec


def __getattr__(name: str) -> type:
    """Return a class that hosts import by name: initialiser, session factory or repository."""
    return bound_name(__name__, name, "Memory", _initializer)


def _initializer() -> Callable[[ModuleSpec[object]], type]:
    from twinstore_memory.initializer import initializer_class  # noqa: PLC0415  # the package itself stays light

    return initializer_class
