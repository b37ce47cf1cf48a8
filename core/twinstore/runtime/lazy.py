"""Packages whose public names are imported when they are used, because a plug-in inside must stay light."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

__all__ = ["from_submodules"]


def from_submodules(package: str, names: Sequence[str], submodules: Sequence[str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package: a name is that of the first submodule which exports it.

    Args:
        package: the import name of the package.
        names: its public names.
        submodules: by name relative to the package; they are imported in this order until one has the name.
    """

    def find(name: str) -> object:
        """Return a public name of the package."""
        if name in names:
            for submodule in submodules:
                module = import_module(f"{package}.{submodule}")
                if name in module.__all__:
                    return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
