"""What a run of the contract kit has sent, and whether the file beside the migrations says the same."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import pytest

from tests.contract.recording.shapes import cases_file, few_that_send_all
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.modules import module_spec
from twinstore.plugins.statements import Statement, format_statements, parse_statements, statements_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog.entity import Entity, Module
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["MODULES", "KitRun", "Recorded"]

MODULES: Final[tuple[ModuleSpec[object], ...]] = (
    *map(module_spec, ("scheduler", "tracking", "taskrunner")),
    LEDGER_MODULE,
)
# What a run does not always send: further pages of what is due, where other tests have left rows in front.
OCCASIONAL: Final = (
    "triggers.due_pairs *next page*",
    "schedules.due_pairs *next page*",
    "triggers.page all tenants, where enabled and nextFireAt AtMost*next page*",
    "schedules.page *id one of several*",
    # Where another one was faster with the same new row.
    "run_summaries.put a tenant",
    "locks.put all tenants",
)
AGAIN: Final = "Run `make statements` to write it again, and read the difference before you commit it."
TITLE: Final = (
    "# What the {store} driver sends for the module {module}, recorded from a run of the contract kit.\n"
    "# `make statements` writes this file; `twinstore dev sql` prints it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KitRun:
    """How the contract kit is run.

    Attributes:
        whole: no test of it was left out by the arguments.
        writes: it is to write the statements again.
    """

    whole: bool
    writes: bool


def current_case() -> str:
    """Return the running test by class and name, as pytest reports it."""
    return os.environ["PYTEST_CURRENT_TEST"].partition(" (")[0].partition("::")[2].partition("::")[2]


class Recorded:
    """Statements by module and name; those of one name are counted in the order of their texts."""

    def __init__(self, store: str, columns: Mapping[str, str]) -> None:
        self.modules = tuple(spec.catalog for spec in MODULES)
        self.entities: dict[str, Entity] = {
            entity.collection: entity for module in self.modules for entity in module.entities
        }
        self._store = store
        self._columns = columns
        self._texts: dict[str, dict[str, set[str]]] = {module.name: {} for module in self.modules}
        self._sent: dict[str, set[tuple[str, str]]] = {}
        # Calls of several threads at once are what races are about.
        self._lock = Lock()

    def add(self, module: Module, name: str, text: str) -> None:
        """Note a statement."""
        with self._lock:
            self._texts[module.name].setdefault(name, set()).add(text)
            self._sent.setdefault(current_case(), set()).add((name, text))

    def session(self, name: str, text: str) -> None:
        """Note a statement about no entity, which every module sends."""
        self.add(self.modules[0], f"session.{name}", text)

    def module_of(self, entity: Entity) -> Module:
        """Return the module of an entity."""
        return next(module for module in self.modules if module.name == entity.module)

    def statements(self, module: Module) -> tuple[Statement, ...]:
        """Return what was sent for a module."""
        return tuple(
            Statement(name if number == 1 else f"{name} #{number}", text)
            for name, texts in self._texts[module.name].items()
            for number, text in enumerate(sorted(texts), 1)
        )

    def text(self, spec: ModuleSpec[object]) -> str:
        """Return the file of a module as this run would write it."""
        statements = [*self.statements(spec.catalog), *self._occasional(spec)]
        title = TITLE.format(
            store={"postgres": "PostgreSQL", "mongo": "MongoDB"}[self._store], module=spec.name
        )
        return format_statements(title, statements, self._columns)

    def _occasional(self, spec: ModuleSpec[object]) -> list[Statement]:
        """Return what the file has of the statements that this run did not happen to send."""
        path = self._path(spec)
        pinned = parse_statements(path.read_text("utf-8")) if path.is_file() else ()
        sent = {item.name for item in self.statements(spec.catalog)}
        return [
            item
            for item in pinned
            if item.name not in sent and any(fnmatchcase(item.name, pattern) for pattern in OCCASIONAL)
        ]

    def write(self) -> None:
        """Write the files of all modules."""
        for spec in MODULES:
            path = self._path(spec)
            path.parent.mkdir(exist_ok=True)
            path.write_text(self.text(spec), encoding="utf-8")
        cases = sorted(few_that_send_all(self._sent))
        cases_file(self._store).write_text("".join(f"{case}\n" for case in cases), "utf-8")

    def judge(self, run: KitRun) -> None:
        """Fail the test that calls it where a run has sent something else; write the files where it is to."""
        if run.writes:
            assert run.whole, "statements are written from a run of the whole kit"
            self.write()
        found = self.differences(complete=run.whole)
        if found:
            pytest.fail(found, pytrace=False)

    def differences(self, *, complete: bool) -> str:
        """Return how the files differ from this run; nothing where they say the same.

        A run of a part of the kit says nothing of what it has not sent.
        """
        return "\n".join(filter(None, (self._difference(spec, complete=complete) for spec in MODULES)))

    def _difference(self, spec: ModuleSpec[object], *, complete: bool) -> str:
        path = self._path(spec)
        pinned = path.read_text("utf-8") if path.is_file() else ""
        if complete:
            lines = difflib.unified_diff(
                pinned.splitlines(), self.text(spec).splitlines(), str(path), "this run", lineterm="", n=1
            )
            found = "\n".join(lines)
        else:
            known = {item.text for item in parse_statements(pinned)}
            new = [item for item in self.statements(spec.catalog) if item.text not in known]
            found = "\n".join(f"not in {path}: {item.name}\n{item.text}" for item in new)
        return f"{found}\n{AGAIN}" if found else ""

    def _path(self, spec: ModuleSpec[object]) -> Path:
        path = statements_file(spec, self._store)
        assert isinstance(path, Path), "statements are written in a checkout only"
        return path
