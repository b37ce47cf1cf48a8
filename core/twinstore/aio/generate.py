"""Writes ``twinstore/aio/scheduler.py`` from the Protocols of the scheduler.

Run ``python -m twinstore.aio.generate``; with ``--check`` it fails when the file is not current.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOM: Final = Path(__file__).parents[1] / "scheduler"
TARGET: Final = Path(__file__).parent / "scheduler.py"
# Attribute of a session, the file of its Protocol, and the Protocol.
FACADES: Final = (
    ("schedules", "schedules", "ScheduleRepository"),
    ("triggers", "triggers", "TriggerRepository"),
    ("runs", "runs", "RunRepository"),
    ("impact_snapshots", "impact_snapshots", "ImpactSnapshotRepository"),
    ("audit", "audit", "AuditRepository"),
    ("run_summaries", "run_summaries", "RunSummaryRepository"),
    ("run_summary_service", "run_summaries", "RunSummaryService"),
    ("audit_service", "audit", "SchedulerAuditService"),
)
HEADER: Final = '''"""The scheduler for asyncio, as ``python -m twinstore.aio.generate`` wrote it."""

from __future__ import annotations

'''


def source() -> str:
    """Return the text of the generated module, before formatting."""
    classes: list[str] = []
    names: set[str] = {"SchedulerSession", "Worker"}
    for _, room, protocol in FACADES:
        definition = protocol_of(room, protocol)
        classes.append(facade(definition))
        names |= {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)} | {protocol}
    exported = sorted(["AsyncSchedulerSession", *(f"Async{protocol}" for _, _, protocol in FACADES)])
    parts = [HEADER, imports(names), f"\n__all__ = {exported!r}\n", *classes, session()]
    return "\n\n".join(parts)


def protocol_of(room: str, name: str) -> ast.ClassDef:
    """Return the definition of a Protocol."""
    tree = ast.parse((ROOM / f"{room}.py").read_text(encoding="utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def imports(names: set[str]) -> str:
    """Return the imports of the given names, taken from the modules that use them."""
    lines = {
        "from twinstore.scheduler.storage import SchedulerSession",
        "from twinstore.aio.threads import Worker",
    }
    for room in sorted({room for _, room, _ in FACADES}):
        tree = ast.parse((ROOM / f"{room}.py").read_text(encoding="utf-8"))
        lines |= set(imported(tree, names))
        defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        lines |= {f"from twinstore.scheduler.{room} import {name}" for name in defined & names}
    body = "\n".join(f"    {line}" for line in sorted(lines))
    return f"from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n{body}\n"


def imported(tree: ast.Module, names: set[str]) -> list[str]:
    """Return one line for each of the names that a module imports from elsewhere."""
    return [
        f"from {node.module} import {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module not in {"__future__", "typing"}
        for alias in node.names
        if alias.name in names
    ]


def facade(protocol: ast.ClassDef) -> str:
    """Return the class that awaits what the Protocol declares."""
    methods = [method(node) for node in protocol.body if isinstance(node, ast.FunctionDef)]
    return "\n".join(
        [
            f"class Async{protocol.name}:",
            f'    """Awaits a :class:`{protocol.name}`, whose contracts hold."""\n',
            f"    def __init__(self, sync: {protocol.name}, worker: Worker) -> None:",
            '        """Take the synchronous answer and the threads to call it in."""',
            "        self._sync = sync",
            "        self._worker = worker\n",
            *methods,
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


def session() -> str:
    """Return the class with one attribute per repository and service."""
    assignments = [
        f"        self.{attribute} = Async{protocol}(session.{attribute}, worker)"
        for attribute, _, protocol in FACADES
    ]
    return "\n".join(
        [
            "class AsyncSchedulerSession:",
            '    """The repositories and services, bound or unbound as the session behind them."""\n',
            "    def __init__(self, session: SchedulerSession, worker: Worker) -> None:",
            '        """Take the synchronous session and the threads to call it in."""',
            *assignments,
            "",
        ]
    )


def formatted(text: str) -> str:
    """Return the text as ruff formats and sorts it."""
    for command in (["check", "--fix", "--quiet", "--select", "I,RUF022"], ["format", "--quiet"]):
        done = subprocess.run(  # noqa: S603  # the formatter of this repository
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


def main() -> int:
    """Write the file, or compare it."""
    text = formatted(source())
    if "--check" in sys.argv:
        current = TARGET.read_text(encoding="utf-8") == text
        print("current" if current else "stale: run python -m twinstore.aio.generate")  # noqa: T201  # a script
        return 0 if current else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
