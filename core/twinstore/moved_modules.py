"""Import paths of earlier releases, which work for one release and warn."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.abc import Loader
    from types import ModuleType

__all__ = ["MOVED", "install"]

# Where the names of a module are now, the place of most of them first. Only modules that documentation and
# samples named are here.
MOVED: Final[Mapping[str, tuple[str, ...]]] = {
    "twinstore_postgres.datasource": ("twinstore_postgres.connection.data_source",),
    "twinstore_postgres.deadlines": ("twinstore_postgres.connection.deadlines",),
}

ABSENT: Final = object()


class MovedModules:
    """Finds a module under its earlier path; asked last, for what no other finder has found.

    The abstract base classes of finders would take longer to import than this package.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to import a moved module."""
        del path, target
        return ModuleSpec(fullname, cast("Loader", self)) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to create the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and let the module ask its new places for names."""
        places = MOVED[module.__name__]
        warnings.warn(
            f"{module.__name__} has moved to {' and '.join(places)}; the next release drops the old path.",
            DeprecationWarning,
            # The statement that imports: frames of the import system do not count.
            stacklevel=2,
        )
        module.__doc__ = f"Moved to {', '.join(places)}."
        vars(module).update(__getattr__=partial(_name_of, module.__name__, places))


def _name_of(module: str, places: Sequence[str], name: str) -> object:
    if not name.startswith("__"):  # of a module itself, such as its path
        for place in places:
            # Not `vars`: some modules make their names when they are asked for.
            if (found := getattr(import_module(place), name, ABSENT)) is not ABSENT:
                return found
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def install() -> None:
    """Let Python find the moved modules."""
    sys.meta_path.append(MovedModules())
