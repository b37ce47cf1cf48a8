"""Packages whose public names are imported when they are used, because a plug-in inside must stay light."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from twinstore.runtime.moved_modules import renamed_getattr


def from_submodules(package: str, names: Sequence[str], submodules: Sequence[str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package: a name is that of the first submodule which exports it.

    Args:
        package: the import name of the package.
        names: its public names.
        submodules: by name relative to the package; they are imported in this order until one has the name.
    """

    def find(name: str) -> object:
        if name in names:
            for submodule in submodules:
                module = import_module(f"{package}.{submodule}")
                if name in module.__all__:
                    return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


def lazy_exports(
    package: str, parts: Sequence[str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module that hands on the public names of others.

    Args:
        package: its import name.
        parts: the others; they are imported in this order until one has the name.
    """
    earlier = renamed_getattr(package, 3)

    def names() -> list[str]:
        return sorted({name for part in parts for name in import_module(part).__all__})

    def find(name: str) -> object:
        if name == "__all__":
            return names()
        if not name.startswith("__"):
            for part in parts:
                module = import_module(part)
                if name in module.__all__:
                    return getattr(module, name)
        return earlier(name)

    return find, names
