"""What a run of the contract kit has sent, and whether the file next to the migrations says the same.

``make test`` runs a part of the kit on a server: the operations, the cases about conflicts, and those of
``tests/drivers/*/recorded_cases.txt``, which sent every statement of every module when ``make statements``
last recorded them. Memory runs every case on every push, and ``make test-long`` every case on every driver.

A statement is named by the call of the driver that sends it, the same way on both servers.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access.protocol import UniqueKey
from twinstore.access.query import Query
from twinstore.catalog.conditions import Equals, OneOf
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.modules import module_spec
from twinstore.plugins.statements import Statement, format_statements, parse_statements, statements_file
from twinstore.testing import (
    AccessContract,
    IsolationContract,
    JoiningContract,
    ModuleContract,
    ResourceContract,
    SessionContract,
    StoreErrorContract,
    TransactionContract,
)
from twinstore.testing.contracts.access_units import AccessConcurrencyContract, AccessUnitContract
from twinstore.testing.contracts.deployment import InitializerContract
from twinstore.testing.contracts.driver import AccessDefaultsContract
from twinstore.testing.contracts.transactions import RaceContract
from twinstore.testing.scheduler import (
    LockContract,
    SchedulerIsolationContract,
    SchedulerJoiningContract,
    SchedulerSessionContract,
    SchedulerTransactionContract,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity, Module
    from twinstore.plugins.module_spec import ModuleSpec

ALWAYS: Final = (InitializerContract, RaceContract)
CONCURRENT_CASES: Final = re.compile(
    "arrival|concurrent|race|claim|lease|lock|fire|at_once|outage|unavailable|migrat|numbers_go_on"
)
# How connections, sessions and transactions are used.
CONNECTIONS: Final = (
    AccessConcurrencyContract,
    AccessUnitContract,
    IsolationContract,
    JoiningContract,
    LockContract,
    RaceContract,
    ResourceContract,
    SchedulerIsolationContract,
    SchedulerJoiningContract,
    SchedulerSessionContract,
    SchedulerTransactionContract,
    SessionContract,
    StoreErrorContract,
    TransactionContract,
)


def cases_file(store: str) -> Path:
    """Return the file that lists cases which send every statement of a driver."""
    return Path(__file__).parents[1] / "drivers" / store / "recorded_cases.txt"


def is_covered(store: str, kit: type[object], test: str, case: str) -> bool:
    """Return whether other cases of ``make test`` send what this one sends and prove what it proves."""
    if issubclass(kit, AccessDefaultsContract):
        return True
    if not issubclass(kit, ModuleContract) or CONCURRENT_CASES.search(test):
        return False
    if any(test in vars(contract) for contract in ALWAYS):
        return False
    return not is_listed(store, kit, test, case)


def is_about_answers(kit: type[object], test: str, case: str) -> bool:
    """Return whether a case has the same outcome whatever connection or server its statements reach.

    Cases of the operations without variants represent those with variants.
    """
    if CONCURRENT_CASES.search(test) or is_about_connections(test):
        return False
    return bool(case) or not issubclass(kit, AccessContract)


def is_about_connections(test: str) -> bool:
    """Return whether a test is about how connections, sessions and transactions are used."""
    return any(test in vars(contract) for contract in CONNECTIONS)


def few_that_send_all(sent: Mapping[str, set[tuple[str, str]]]) -> list[str]:
    """Return a few cases that send what those about conflicts do not."""
    concurrent_texts = [
        texts for case, texts in sent.items() if CONCURRENT_CASES.search(case.partition("[")[0])
    ]
    left = set[tuple[str, str]]().union(*sent.values()).difference(*concurrent_texts)
    found: list[str] = []
    while left:
        found.append(max(sorted(sent), key=lambda case: len(sent[case] & left)))
        left -= sent[found[-1]]
    return found


def is_listed(store: str, kit: type[object], test: str, case: str) -> bool:
    """Return whether a case is one of those that send every statement."""
    name = f"{kit.__name__}::{test}"
    return (f"{name}[{case}]" if case else name) in listed(store)


@cache
def listed(store: str) -> frozenset[str]:
    """Return the cases of a file; none if it does not exist, as before the first recording."""
    path = cases_file(store)
    names = frozenset(path.read_text("utf-8").split("\n")) - {""} if path.is_file() else frozenset[str]()
    assert names or not path.is_file(), f"{path} lists no case: write it by `make statements`"
    return names


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
        whole: the arguments deselected no test of it.
        writes: it writes the statements again.
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

    def check(self, run: KitRun) -> None:
        """Fail the test that calls it where a run has sent something else; write the files where it is to."""
        if run.writes:
            assert run.whole, "statements are written from a run of the whole kit"
            self.write()
        found = self.differences(complete=run.whole)
        if found:
            pytest.fail(found, pytrace=False)

    def differences(self, *, complete: bool) -> str:
        """Return how the files differ from this run; nothing where they say the same.

        A run of a part of the kit is not compared for statements that it has not sent.
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


# Generators that read what a view of the bulk port gives, whose callers know the view only.
STREAMS: Final = frozenset(
    {"<genexpr>", "export_batches", "export_of", "rows", "rows_of", "with_time_checked"}
)
# Statements of migrations, of surveys of the catalog and of planted faults are pinned by the files of the
# migrations, or by separate tests.
UNRECORDED_MODULES: Final = (
    "backend",
    "comparison",
    "connection",
    "corruption",
    "database",
    "initializer",
    "migrator",
    "pool",
    "proposal",
    "inventory",
)


@dataclass(frozen=True, slots=True)
class Call:
    """The outermost call of a driver that is in progress.

    Attributes:
        operation: the method, such as ``page``; those of the bulk port begin with ``bulk``.
        entity: the entity that it is about, empty where its arguments name none.
        details: what of its arguments makes a difference to the statement.
    """

    operation: str
    entity: str
    details: str


def call_of(package: str) -> Call | None:
    """Return the call of a driver that the caller is inside of; ``None`` for none that is recorded."""
    outermost: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the only way to the callers of a call
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == f"{package}.connection.undocumented":
            return None  # tried out once for a process, in whichever call comes first
        if module.startswith(f"{package}."):
            outermost = frame
        frame = frame.f_back
    if outermost is None:
        return None
    parts = str(outermost.f_globals["__name__"]).split(".")[1:]
    if parts[-1] in UNRECORDED_MODULES or "inventory" in outermost.f_code.co_name:
        return None
    name = outermost.f_code.co_name.strip("_")
    values = outermost.f_locals
    entity = getattr(values.get("entity"), "name", "")
    if not parts[0].startswith("bulk"):
        return Call(name, str(entity), details_of(values))
    is_stream = name in STREAMS
    return Call(
        "bulk.view" if is_stream else f"bulk.{name}", str(entity), "" if is_stream else details_of(values)
    )


def details_of(values: dict[str, object]) -> str:
    """Return what of the arguments of a call makes a difference to its statements."""
    query = values.get("query")
    if isinstance(query, Query):
        return described(query, values.get("by"))
    keys, scope = values.get("keys"), values.get("scope")
    parts = [] if scope is None else [scope_text(scope)]
    if isinstance(keys, tuple | list) and keys:
        key = keys[0]
        parts.append(f"by {key.index.name}" if isinstance(key, UniqueKey) else "by key")
        parts += ["several"] if len(keys) > 1 else []
    return ", ".join(parts)


def described(query: Query, by: object) -> str:
    """Return a list in words, without the values of its conditions."""
    parts = [scope_text(query.scope)]
    if query.where:
        parts.append("where " + " and ".join(map(condition_text, query.where)))
    if isinstance(by, str):
        return ", ".join((*parts, f"by {by}"))
    parts.append("order " + order_text(query))
    return ", ".join((*parts, "next page") if query.after is not None else parts)


def condition_text(condition: Condition) -> str:
    """Return a condition in words."""
    if isinstance(condition, OneOf):
        return f"{condition.field} one of {'several' if len(condition.values) > 1 else 'one'}"
    if isinstance(condition, Equals):
        return condition.field
    return f"{condition.field} {type(condition).__name__}"


def order_text(query: Query) -> str:
    """Return an order as indexes write it."""
    return " ".join(f"{'-' if key.descending else ''}{key.field}" for key in query.order)


def scope_text(scope: object) -> str:
    """Return a scope in words."""
    if isinstance(scope, Tenant):
        return "a tenant"
    return "all tenants" if scope is ALL_TENANTS else "no tenant"


def statement_name(call: Call, entity: str, verb: str) -> str:
    """Return the name of a statement about an entity."""
    words: Sequence[str] = [
        f"{entity}.{call.operation}",
        f"({verb})" if verb else "",
        f"for {call.entity}" if call.entity not in {"", entity} else "",
        call.details,
    ]
    return " ".join(word for word in words if word)
