"""Writes the package ``aio`` of a module: an awaited class for each part of a session, and for the storage.

Everything is read from the source of the session and of the Protocols that it names, as text, so that a
broken output cannot keep this script from repairing it. For the same reason it is outside the packages that
it writes. ``twinstore dev aio MODULE`` does it for any module. ``python -m twinstore.codegen.aio`` does it
for the modules of this distribution, and also writes the stubs of names for type checkers; with ``--check``
it fails when a file is not current.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from twinstore.codegen.files import formatted, update_files
from twinstore.codegen.stubs import shipped_modules, stubs
from twinstore.errors import ConfigurationError
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import module_spec

# Under another name, because a module may have an entity of that name.
THREADS: Final = "CallThreads"
SHARED: Final = "SharedThreads"
AWAITED: Final = "Awaited"
HEADER: Final = '''"""{title} for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

'''


@dataclass(frozen=True, slots=True)
class Facade:
    """One attribute of the session: the Protocol behind it and the module that has it."""

    attribute: str
    protocol: str
    module: str

    @property
    def tree(self) -> ast.Module:
        """The source of the module."""
        return parsed(self.module)

    @property
    def definition(self) -> ast.ClassDef:
        """The definition of the Protocol."""
        return class_of(self.tree, self.protocol)

    @property
    def handles(self) -> tuple[ast.ClassDef, ...]:
        """The Protocols of the same module that its methods hand out."""
        return tuple(handles_of(self.tree, self.definition))

    @property
    def names(self) -> set[str]:
        """Every name that the signatures use."""
        functions = (item for source in (self.definition, *self.handles) for item in methods_of(source))
        named = {node.id for item in functions for node in ast.walk(item) if isinstance(node, ast.Name)}
        return named - {BLOCK}

    @property
    def defaults(self) -> set[str]:
        """The names that defaults of arguments use; they must exist when the output is imported."""
        return {
            node.id
            for function in methods_of(self.definition)
            for default in (*function.args.defaults, *function.args.kw_defaults)
            if default is not None
            for node in ast.walk(default)
            if isinstance(node, ast.Name)
        }


@dataclass(frozen=True, slots=True)
class Source:
    """Where the parts of a module are defined, for the generator.

    Attributes:
        title: the name of the module in names of classes.
        package: the generated package.
        session, storage: the names of the two classes.
        session_module, storage_module: the modules that define them.
    """

    title: str
    package: str
    session: str
    session_module: str
    storage: str
    storage_module: str

    @classmethod
    def of(cls, spec: ModuleSpec[object]) -> Source:
        """Return the parts of a module.

        Raises:
            ConfigurationError: the module names no session or no storage.
        """
        if spec.session is None or spec.storage is None:
            raise ConfigurationError(
                f"The module {spec.name!r} has no session or no storage class; name both in its ModuleSpec. "
                "A module of data alone has no classes for asyncio.",
                module=spec.name,
            )
        return cls(
            title=spec.title,
            package=f"{spec.package}.aio",
            session=spec.session.__name__,
            session_module=spec.session.__module__,
            storage=spec.storage.__name__,
            storage_module=spec.storage.__module__,
        )

    @property
    def folder(self) -> Path:
        """The folder of the generated package.

        Raises:
            ConfigurationError: the package of the module is not a folder of files.
        """
        found = find_spec(self.package.rpartition(".")[0])
        places = list(found.submodule_search_locations or ()) if found is not None else []
        if not places or not Path(places[0]).is_dir():
            raise ConfigurationError(f"The package {self.package} cannot be written; work in a checkout.")
        return Path(places[0]) / "aio"

    def facades(self) -> tuple[Facade, ...]:
        """Return the attributes of the session in order."""
        tree = parsed(self.session_module)
        origins = {
            alias.name: node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for alias in node.names
        }
        return tuple(
            Facade(node.target.id, node.annotation.id, origins.get(node.annotation.id, self.session_module))
            for node in class_of(tree, self.session).body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.annotation, ast.Name)
        )


def parsed(module: str) -> ast.Module:
    """Return the source of a module."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ConfigurationError(f"The source of {module} cannot be read; work in a checkout.")
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


def class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    """Return the definition of a class."""
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def methods_of(definition: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Return the public methods that a class defines."""
    return (
        node
        for node in definition.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )


def facades(spec: ModuleSpec[object]) -> tuple[Facade, ...]:
    """Return the attributes of the session of a module in order."""
    return Source.of(spec).facades()


def aio_files(spec: ModuleSpec[object]) -> dict[Path, str]:
    """Return the text of each generated file of a module by its path: one per module of Protocols."""
    source = Source.of(spec)
    found = source.facades()
    modules: dict[str, list[Facade]] = {}
    for facade in found:
        modules.setdefault(facade.module.rpartition(".")[2], []).append(facade)
    files = {f"{name}.py": facade_file(name, members) for name, members in modules.items()}
    files["__init__.py"] = session_file(source, found)
    # Formatted as if they were next to the package: ruff sorts imports by the packages that exist already.
    beside = source.folder.parent
    return {source.folder / name: formatted(beside / name, text) for name, text in files.items()}


def facade_file(name: str, members: list[Facade]) -> str:
    """Return the file of the Protocols that one module defines."""
    lazy: set[str] = set()
    eager = {f"from twinstore.aio.calls import {AWAITED}"}
    for facade in members:
        lazy |= set(imported(facade, facade.names))
        eager |= set(imported(facade, facade.defaults | {facade.protocol}))
    handles = {handle.name: handle for facade in members for handle in facade.handles}
    if handles:
        eager |= HANDLE_IMPORTS | {f"from {members[0].module} import {name}" for name in handles}
    body = "\n".join(f"    {line}" for line in sorted(lazy - eager))
    exported = sorted(f"Async{name}" for name in (*(facade.protocol for facade in members), *handles))
    return "\n\n".join(
        [
            HEADER.format(title=name.replace("_", " ").capitalize()),
            "\n".join(sorted(eager)),
            f"from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n{body}\n" if body else "",
            f"\n__all__ = {exported!r}\n",
            *map(handle_class, handles.values()),
            *(facade_class(facade.definition, frozenset(handles)) for facade in members),
        ]
    )


def session_file(source: Source, found: tuple[Facade, ...]) -> str:
    """Return the file of the session and the storage, which is the package itself."""
    session, storage = source.session, source.storage
    classes = [f"Async{name}" for name in (session, storage, *(facade.protocol for facade in found))]
    lines = [
        "from twinstore.aio.storage import AsyncModuleStorage",
        *(
            f"from {source.package}.{facade.module.rpartition('.')[2]} import Async{facade.protocol}"
            for facade in found
        ),
        f"from {source.session_module} import {session}",
    ]
    lazy = [
        f"    from {source.storage_module} import {storage}",
        f"    from twinstore.aio.calls import {THREADS}, {SHARED}",
    ]
    return "\n\n".join(
        [
            HEADER.format(title=source.title),
            "\n".join(lines),
            "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n" + "\n".join(lazy) + "\n",
            f"\n__all__ = {sorted(classes)!r}\n",
            session_class(session, found),
            storage_class(session, storage),
        ]
    )


def imported(facade: Facade, names: set[str]) -> Iterator[str]:
    """Yield one line for each of the names: from where its module has it, or from that module itself."""
    tree = facade.tree
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module not in {"__future__", "typing"}:
            yield from (f"from {node.module} import {item.name}" for item in node.names if item.name in names)
    for node in tree.body:
        yield from (f"from {facade.module} import {name}" for name in defined(node) if name in names)


def defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module defines."""
    if isinstance(node, ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def facade_class(protocol: ast.ClassDef, handles: frozenset[str] = frozenset()) -> str:
    """Return the class that awaits what the Protocol declares."""
    return "\n".join(
        [
            f"class Async{protocol.name}({AWAITED}[{protocol.name}]):",
            f'    """Awaits a :class:`{protocol.name}`, whose contracts hold."""\n',
            *(method(node, handles) for node in methods_of(protocol)),
        ]
    )


def method(node: ast.FunctionDef, handles: frozenset[str]) -> str:
    """Return one awaited method: its signature, the first line of its contract, and the call."""
    summary = (ast.get_docstring(node) or "").partition("\n")[0]
    positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)[1:]]
    keywords = [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
    call = ", ".join([f"self._sync.{node.name}", *positional, *keywords])
    returns, body = ast.unparse(node.returns or node), f"return await self._threads.run({call})"
    if found := handed_out(node, handles):
        name, always = found
        call = deferred_call(node, positional, keywords)
        # The synchronous contract says that it always is; the type of what is awaited does not.
        returns, given = f"Async{returns}", f"await handed_out(self._threads, {call}, Async{name})"
        body = f'return cast("Async{name}", {given})' if always else f"return {given}"
    return "\n".join(
        [
            f"    async def {node.name}({ast.unparse(node.args)}) -> {returns}:",
            f'        """{summary}"""',
            f"        {body}\n",
        ]
    )


def session_class(session: str, found: tuple[Facade, ...]) -> str:
    """Return the class with one attribute per repository and service."""
    return "\n".join(
        [
            f"class Async{session}:",
            '    """The repositories and services, bound or unbound as the session behind them."""\n',
            f"    def __init__(self, session: {session}, threads: {THREADS}) -> None:",
            '        """Take the synchronous session and the threads to call it in."""',
            *(
                f"        self.{item.attribute} = Async{item.protocol}(session.{item.attribute}, threads)"
                for item in found
            ),
            "",
        ]
    )


def storage_class(session: str, storage: str) -> str:
    """Return the class with the parts of the unbound session, sessions and units of work."""
    bases = f"AsyncModuleStorage[{session}, Async{session}], Async{session}"
    return "\n".join(
        [
            f"class Async{storage}({bases}):",
            '    """Repositories, services, sessions and units of work."""\n',
            f"    def __init__(self, storage: {storage}, threads: {SHARED}) -> None:",
            '        """Take the synchronous storage and the threads to call it in."""',
            f"        super().__init__(storage, threads, Async{session})",
            f"        Async{session}.__init__(self, storage.unbound, threads)",
            "",
        ]
    )


def main() -> int:
    """Write the files of this distribution, or compare them."""
    check = "--check" in sys.argv
    wanted = {path: formatted(path, text) for path, text in stubs().items()}
    for spec in map(module_spec, shipped_modules()):
        wanted |= aio_files(spec)
    stale = update_files(wanted, check=check)
    if check:
        print("stale: run python -m twinstore.codegen.aio" if stale else "current")  # noqa: T201  # a script
    return int(check and stale)


# What the generator of ``aio`` writes for handles: Protocols that calls of a module hand out.
#
# A handle is a Protocol with ``__enter__``, defined in the module of the Protocol whose methods return it.
# Its properties are read as they are, its methods are awaited, and its blocks become asynchronous ones.


BLOCK: Final = "AbstractContextManager"
# What a file with handles needs besides; ruff removes what one does not use.
HANDLE_IMPORTS: Final = {
    "from contextlib import AbstractAsyncContextManager",
    "from typing import cast",
    "from twinstore.aio.handles import AwaitedHandle, entered, handed_out, left",
}
ENTER: Final = "__enter__"
# By this name a Protocol says how long its caller is ready to wait.
TIMEOUT: Final = "timeout"
KEYWORD: Final = f"{TIMEOUT}={TIMEOUT}"


def handles_of(tree: ast.Module, definition: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """Yield the Protocols of a source that the methods of one of them hand out."""
    returned = {
        node.id
        for function in definition.body
        if isinstance(function, ast.FunctionDef) and function.returns is not None
        for node in ast.walk(function.returns)
        if isinstance(node, ast.Name)
    }
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in returned and ENTER in map(name_of, node.body):
            yield node


def name_of(node: ast.stmt) -> str | None:
    """Return the name of a function, ``None`` of anything else."""
    return node.name if isinstance(node, ast.FunctionDef) else None


def handed_out(node: ast.FunctionDef, handles: frozenset[str]) -> tuple[str, bool] | None:
    """Return which handle a method hands out and whether always, ``None`` where it hands out none."""
    match node.returns:
        case ast.Name(id=name) if name in handles:
            return name, True
        case ast.BinOp(left=ast.Name(id=name), right=ast.Constant(value=None)) if name in handles:
            return name, False
        case _:
            return None


def deferred_call(node: ast.FunctionDef, positional: list[str], keywords: list[str]) -> str:
    """Return the call of a method that hands out a handle; it is made when a thread is free for it."""
    # Whatever time the caller gave has begun with his own call.
    given = [f"left({name}, waited)" if name == TIMEOUT else name for name in positional]
    named = [f"{TIMEOUT}=left({TIMEOUT}, waited)" if item == KEYWORD else item for item in keywords]
    return f"lambda waited: self._sync.{node.name}({', '.join([*given, *named])})"


def handle_class(protocol: ast.ClassDef) -> str:
    """Return the class of a handle for asyncio."""
    functions = [node for node in protocol.body if isinstance(node, ast.FunctionDef)]
    return "\n".join(
        [
            f"class Async{protocol.name}(AwaitedHandle[{protocol.name}]):",
            f'    """Awaits a :class:`{protocol.name}`, whose contracts hold."""\n',
            *(member(node) for node in functions if not node.name.startswith("_")),
        ]
    )


def member(node: ast.FunctionDef) -> str:
    """Return one property, block or method of a handle."""
    summary = (ast.get_docstring(node) or "").partition("\n")[0]
    returns = ast.unparse(node.returns or node)
    if any(isinstance(item, ast.Name) and item.id == "property" for item in node.decorator_list):
        head, body = f"    @property\n    def {node.name}(self) -> {returns}:", f"self._sync.{node.name}"
    elif returns.startswith(BLOCK):
        head = f"    def {node.name}(self) -> AbstractAsyncContextManager{returns.removeprefix(BLOCK)}:"
        body = f"entered(self._sync.{node.name}(), self._threads)"
    else:
        keywords = [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
        positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)[1:]]
        call = ", ".join([f"self._sync.{node.name}", *positional, *keywords])
        head = f"    async def {node.name}({ast.unparse(node.args)}) -> {returns}:"
        body = f"await self._threads.run({call})"
    return f'{head}\n        """{summary}"""\n        return {body}\n'


if __name__ == "__main__":
    sys.exit(main())
