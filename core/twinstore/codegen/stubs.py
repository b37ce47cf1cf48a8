"""The stubs of the names that derive from our modules and drivers, for type checkers.

At run time the names come from what is installed; a type checker installs nothing, so the stubs list what
this distribution brings. See :mod:`twinstore.codegen.aio`, which writes them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore import driver, module
from twinstore.plugins.drivers import ENTRY_POINT_GROUP, installed_backend_names
from twinstore.plugins.modules import MODULE_GROUP, built_modules, module_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[1]
OWN_DISTRIBUTION: Final = "twinstore"
HEADER: Final = """# {title}, as `python -m twinstore.codegen.aio` wrote it.

"""
CONFIG: Final = "config: ConfigSource = None, *, clock: Clock | None = None"
OPTIONS: Final = (
    "options: Mapping[str, object] | None = None, observers: Iterable[Observer] = (), role: str | None = None"
)


def shipped_modules() -> tuple[str, ...]:
    """Return the names of the modules of this distribution that can be opened."""
    shipped = set(_shipped(MODULE_GROUP))
    return tuple(name for name in built_modules() if name in shipped)


def stubs() -> dict[Path, str]:
    """Return the text of each stub by its path, before formatting."""
    return {
        ROOT / "driver.pyi": exports_stub(driver.PARTS, "What the author of a driver imports"),
        ROOT / "module.pyi": exports_stub(module.PARTS, "What the author of a module imports"),
        ROOT / "storage" / "attributes.pyi": attributes_stub(),
        ROOT / "storage" / "installed.pyi": sync_stub(),
        ROOT / "aio" / "installed.pyi": aio_stub(),
    }


def sync_stub() -> str:
    """Return the stub of the synchronous names."""
    modules = {name: module_spec(name) for name in shipped_modules()}
    functions = {
        f"add_{title}_storage": f"{spec.title}Storage"
        for name, spec in modules.items()
        for title in (name, *(f"{name}_{driver}" for driver in _shipped(ENTRY_POINT_GROUP)))
    }
    factories = {
        f"{spec.title}{driver}SessionFactory": spec.session.__name__
        for spec in modules.values()
        for driver in installed_backend_names()
        if spec.session is not None and driver.casefold() in _shipped(ENTRY_POINT_GROUP)
    }
    classes = [kind for spec in modules.values() for kind in (spec.session, spec.storage) if kind is not None]
    return _stub(
        "The names that come from our modules and drivers",
        [
            "from collections.abc import Iterable, Mapping",
            "from typing import TypeAlias",
            "from twinstore.clock import Clock",
            "from twinstore.config import ConfigSource",
            "from twinstore.storage.module import SessionFactory",
            "from twinstore.observing.observer import Observer",
            *(f"from {kind.__module__} import {kind.__name__} as {kind.__name__}" for kind in classes),
        ],
        [*functions, *factories, *(kind.__name__ for kind in classes)],
        [
            # Their repositories are known to the driver alone.
            *(
                f"{name}: TypeAlias = SessionFactory[object, {session}]"
                for name, session in factories.items()
            ),
            *(f"def {name}({CONFIG}, {OPTIONS}) -> {result}: ..." for name, result in functions.items()),
            "def names() -> tuple[str, ...]: ...",
        ],
    )


def attributes_stub() -> str:
    """Return the stub of the attributes of a storage."""
    classes = [(name, spec.storage) for name in shipped_modules() if (spec := module_spec(name)).storage]
    return _stub(
        "The attributes of a storage, one for each of our modules",
        [f"from {kind.__module__} import {kind.__name__}" for _, kind in classes if kind],
        ["ModuleAttributes"],
        ["class ModuleAttributes:", *(_attribute(name, kind.__name__) for name, kind in classes if kind)],
    )


def exports_stub(parts: Sequence[str], title: str) -> str:
    """Return the stub of a module that hands on the public names of others."""
    found: dict[str, str] = {}
    for part in parts:
        for name in import_module(part).__all__:
            found.setdefault(name, part)
    imports = [f"from {part} import {name} as {name}" for name, part in found.items()]
    return _stub(title, imports, list(found), ["PARTS: tuple[str, ...]"])


def aio_stub() -> str:
    """Return the stub of the names for asyncio."""
    modules = {name: module_spec(name) for name in shipped_modules()}
    classes = {
        f"Async{kind.__name__}": spec.package
        for spec in modules.values()
        for kind in (spec.session, spec.storage)
        if kind is not None
    }
    return _stub(
        "The names for asyncio that come from our modules",
        [
            "from collections.abc import Callable",
            "from twinstore.aio.calls import CallThreads",
            *(f"from {package}.aio import {name} as {name}" for name, package in classes.items()),
        ],
        list(classes),
        [
            "class AsyncModuleAttributes:",
            *(_attribute(name, f"Async{spec.title}Storage") for name, spec in modules.items()),
            "def facade_of(module: str) -> Callable[[object, CallThreads], object]: ...",
            "def names() -> tuple[str, ...]: ...",
        ],
    )


def _stub(title: str, imports: list[str], names: list[str], body: list[str]) -> str:
    # With its type, because mypy reads the list before it has looked at all that the package imports.
    listed = f"__all__: list[str] = {sorted(names)!r}"
    parts = [HEADER.format(title=title), "\n".join(imports), listed, "\n".join(body)]
    return "\n\n".join([*parts, ""])


def _attribute(module: str, storage: str) -> str:
    return f"    @property\n    def {module}(self) -> {storage}: ..."


def _shipped(group: str) -> tuple[str, ...]:
    """Return the names of a group that this distribution brings, in the order of the group."""
    return tuple(
        point.name
        for point in entry_points(group=group)
        if point.dist and point.dist.name == OWN_DISTRIBUTION
    )
