"""What the generator of ``aio`` writes for handles: Protocols that calls of a module hand out.

A handle is a Protocol with ``__enter__``, defined beside the Protocol whose methods return it. Its properties
are read as they are, its methods are awaited, and its blocks become asynchronous ones.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

__all__ = ["BLOCK", "HANDLE_IMPORTS", "asked", "handed_out", "handle_class", "handles_of"]

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


def asked(node: ast.FunctionDef, positional: list[str], keywords: list[str]) -> str:
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
        positional = [argument.arg for argument in node.args.args[1:]]
        call = ", ".join([f"self._sync.{node.name}", *positional, *keywords])
        head = f"    async def {node.name}({ast.unparse(node.args)}) -> {returns}:"
        body = f"await self._threads.run({call})"
    return f'{head}\n        """{summary}"""\n        return {body}\n'
