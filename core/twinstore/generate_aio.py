"""Writes the package ``twinstore/aio/scheduler``: an awaited class for each part of a session.

Everything is read from the source of the session and of the Protocols that it names, as text: a broken output
cannot keep this script from mending it, and it stands outside the package that it writes for the same reason.
Run ``python -m twinstore.generate_aio``; with ``--check`` it fails when a file is not current.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent
SESSION_MODULE: Final = "twinstore.scheduler.storage"
SESSION: Final = "SchedulerSession"
TARGET: Final = PACKAGE / "aio" / "scheduler"
OUTPUT: Final = "twinstore.aio.scheduler"
# Under a name of its own, because a module may have an entity of that name.
THREADS: Final = "CallWorker"
HEADER: Final = '''"""{title} for asyncio, as ``python -m twinstore.generate_aio`` wrote it."""

from __future__ import annotations

'''


@dataclass(frozen=True, slots=True)
class Facade:
    """One attribute of the session: the Protocol behind it and the module that defines that."""

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
    def names(self) -> set[str]:
        """Every name that the signatures use."""
        return {node.id for node in ast.walk(self.definition) if isinstance(node, ast.Name)}

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


def parsed(module: str) -> ast.Module:
    """Return the source of a module of this package."""
    path = PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    """Return the definition of a class."""
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def methods_of(definition: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Return the methods that a class defines."""
    return (node for node in definition.body if isinstance(node, ast.FunctionDef))


def facades() -> tuple[Facade, ...]:
    """Return the attributes of the session in order."""
    tree = parsed(SESSION_MODULE)
    origins = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }
    return tuple(
        Facade(node.target.id, node.annotation.id, origins[node.annotation.id])
        for node in class_of(tree, SESSION).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.annotation, ast.Name)
    )


def sources() -> dict[str, str]:
    """Return the text of each generated file by its name, before formatting: one per module of Protocols."""
    found = facades()
    rooms: dict[str, list[Facade]] = {}
    for facade in found:
        rooms.setdefault(facade.module.rpartition(".")[2], []).append(facade)
    files = {f"{room}.py": facade_file(room, members) for room, members in rooms.items()}
    return files | {"__init__.py": session_file(found)}


def facade_file(room: str, members: list[Facade]) -> str:
    """Return the file of the Protocols that one module defines."""
    lazy = {f"from twinstore.aio.threads import Worker as {THREADS}"}
    eager: set[str] = set()
    for facade in members:
        lazy |= set(imported(facade, facade.names | {facade.protocol}))
        eager |= set(imported(facade, facade.defaults))
    body = "\n".join(f"    {line}" for line in sorted(lazy - eager))
    exported = sorted(f"Async{facade.protocol}" for facade in members)
    return "\n\n".join(
        [
            HEADER.format(title=room.replace("_", " ").capitalize()),
            "\n".join(sorted(eager)),
            f"from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n{body}\n",
            f"\n__all__ = {exported!r}\n",
            *(facade_class(facade.definition) for facade in members),
        ]
    )


def session_file(found: tuple[Facade, ...]) -> str:
    """Return the file of the session, which is the package itself."""
    classes = sorted(f"Async{facade.protocol}" for facade in found)
    lines = [
        f"from {OUTPUT}.{facade.module.rpartition('.')[2]} import Async{facade.protocol}" for facade in found
    ]
    lazy = [
        f"    from {SESSION_MODULE} import {SESSION}",
        f"    from twinstore.aio.threads import Worker as {THREADS}",
    ]
    return "\n\n".join(
        [
            HEADER.format(title="The scheduler"),
            "\n".join(lines),
            "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n" + "\n".join(lazy) + "\n",
            f"\n__all__ = {sorted([f'Async{SESSION}', *classes])!r}\n",
            session_class(found),
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


def facade_class(protocol: ast.ClassDef) -> str:
    """Return the class that awaits what the Protocol declares."""
    return "\n".join(
        [
            f"class Async{protocol.name}:",
            f'    """Awaits a :class:`{protocol.name}`, whose contracts hold."""\n',
            f"    def __init__(self, sync: {protocol.name}, worker: {THREADS}) -> None:",
            '        """Take the synchronous answer and the threads to call it in."""',
            "        self._sync = sync",
            "        self._worker = worker\n",
            *(method(node) for node in methods_of(protocol)),
        ]
    )


def method(node: ast.FunctionDef) -> str:
    """Return one awaited method: its signature, the first line of its contract, and the call."""
    summary = (ast.get_docstring(node) or "").partition("\n")[0]
    positional = [argument.arg for argument in node.args.args[1:]]
    keywords = [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
    call = ", ".join([f"self._sync.{node.name}", *positional, *keywords])
    return "\n".join(
        [
            f"    async def {node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns or node)}:",
            f'        """{summary}"""',
            f"        return await self._worker.run({call})\n",
        ]
    )


def session_class(found: tuple[Facade, ...]) -> str:
    """Return the class with one attribute per repository and service."""
    return "\n".join(
        [
            f"class Async{SESSION}:",
            '    """The repositories and services, bound or unbound as the session behind them."""\n',
            f"    def __init__(self, session: {SESSION}, worker: {THREADS}) -> None:",
            '        """Take the synchronous session and the threads to call it in."""',
            *(
                f"        self.{item.attribute} = Async{item.protocol}(session.{item.attribute}, worker)"
                for item in found
            ),
            "",
        ]
    )


def formatted(name: str, text: str) -> str:
    """Return the text of a file as ruff formats and sorts it."""
    for command in (["check", "--fix", "--quiet", "--select", "I,RUF022"], ["format", "--quiet"]):
        done = subprocess.run(  # noqa: S603  # the formatter of this repository
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET / name), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


def main() -> int:
    """Write the files, or compare them."""
    wanted = {name: formatted(name, text) for name, text in sources().items()}
    if "--check" in sys.argv:
        real = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.py")}
        print("current" if real == wanted else "stale: run python -m twinstore.generate_aio")  # noqa: T201  # a script
        return 0 if real == wanted else 1
    TARGET.mkdir(exist_ok=True)
    for path in TARGET.glob("*.py"):
        path.unlink()
    for name, text in wanted.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
