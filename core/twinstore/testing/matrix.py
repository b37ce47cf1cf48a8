"""A plug-in of pytest that writes which methods the cases of a kit exercise on a driver.

    pytest -p twinstore.testing.matrix --method-matrix matrix.json tests

The calls are observed while the cases run. The run fails where a method of a module whose kit ran has no
case that passed and was answered; see :func:`matrix_of`. Workers of pytest-xdist send what they saw. Without
the option nothing is observed.

A method is named by module, attribute of a session and name: ``library.books.get``. Those of a handle that a
call hands out bear its class: ``library.loans.LoanHandle.renew``.

Every session of a storage, and the storage itself, gets its repositories from ``session_over``. While a run
is recorded, what that returns is wrapped, so a call counts when a case makes it, and not when a service calls
a repository.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

import pytest

from twinstore.codegen.aio import facades
from twinstore.plugins.modules import complete_modules, module_spec
from twinstore.testing.base import Contract
from twinstore.testing.signatures import annotation_text
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from types import TracebackType

    from twinstore.codegen.aio import Facade
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage

__all__ = [
    "PROPERTY",
    "Calls",
    "Case",
    "Part",
    "Recorder",
    "matrix_of",
    "method_names",
    "missing_methods",
    "parts_of",
    "pytest_addoption",
    "pytest_configure",
    "record_sessions",
]

PASSED: Final = "passed"
Matrix = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Ids of cases, by method and driver."""


@dataclass(frozen=True, slots=True)
class Part:
    """A Protocol of which calls are observed.

    Attributes:
        prefix: what the names of its methods begin with.
        methods: the return annotation of each public method, as it is written, by name.
        handles: the Protocols that its methods hand out, by class.
    """

    prefix: str
    methods: Mapping[str, str]
    handles: Mapping[str, Part]

    def names(self) -> Iterator[str]:
        """Yield the names of its methods, and of its handles."""
        yield from (f"{self.prefix}.{name}" for name in self.methods)
        for handle in self.handles.values():
            yield from handle.names()


@dataclass(slots=True)
class Case:
    """What became of one case of a run.

    Attributes:
        id: its node id.
        module: the module whose kit it belongs to, ``None`` outside kits.
        driver: the driver of its storage, ``None`` outside kits.
        outcome: ``passed``, ``failed`` or ``skipped``.
        seconds: of its set-up, its call and its tear-down.
        methods: those it called on the driver; whether any call was answered with something.
    """

    id: str
    module: str | None = None
    driver: str | None = None
    outcome: str = PASSED
    seconds: float = 0.0
    methods: Mapping[str, bool] | None = None


def parts_of(spec: ModuleSpec[object]) -> dict[str, Part]:
    """Return the repositories and services of a session of a module, by attribute."""
    return {facade.attribute: _part(spec.name, facade) for facade in facades(spec)}


def method_names(spec: ModuleSpec[object]) -> tuple[str, ...]:
    """Return the name of every public method that a module offers, in the order of its session.

    One of data alone offers none.
    """
    if spec.session is None:
        return ()
    return tuple(name for part in parts_of(spec).values() for name in part.names())


def _part(module: str, facade: Facade) -> Part:
    prefix, source = f"{module}.{facade.attribute}", import_module(facade.module)
    handles = {
        definition.name: Part(
            f"{prefix}.{definition.name}", _returns(getattr(source, definition.name)), handles={}
        )
        for definition in facade.handles
    }
    return Part(prefix, _returns(getattr(source, facade.protocol)), handles)


def _returns(protocol: type) -> dict[str, str]:
    return {
        name: annotation_text(inspect.signature(function).return_annotation)
        for name, function in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    }


def matrix_of(cases: Iterable[Case], methods: Iterable[str], drivers: Iterable[str]) -> Matrix:
    """Return the cases that exercise each method on each driver, sorted.

    A case exercises a method when it passed and a call of it was answered: with anything but ``None``,
    ``False``, 0 and what is empty, unless the method returns nothing. That a call was refused, or found
    nothing, shows little of what it is for.
    """
    found: dict[str, dict[str, list[str]]] = {
        method: {driver: [] for driver in sorted(drivers)} for method in methods
    }
    for case in cases:
        for method, answered in (case.methods or {}).items():
            if case.outcome == PASSED and answered and case.driver in found.get(method, {}):
                found[method][case.driver].append(case.id)
    return {
        method: {driver: tuple(sorted(ids)) for driver, ids in by_driver.items()}
        for method, by_driver in found.items()
    }


def missing_methods(matrix: Matrix) -> tuple[tuple[str, str], ...]:
    """Return the pairs of method and driver that no case exercises."""
    return tuple(
        (method, driver)
        for method, by_driver in matrix.items()
        for driver, ids in by_driver.items()
        if not ids
    )


Seen = Callable[[str, object], object]


class Calls:
    """The calls that the running case makes on the driver that it is about.

    Attributes:
        observing: whether storages that are opened now belong to a kit; others are left as they are.
    """

    def __init__(self) -> None:
        self.observing = False
        self._driver: str | None = None
        self._answered: dict[str, bool] = {}

    def begin(self, driver: str) -> None:
        """Start a case about a driver; calls on others, such as the target of a copy, are not recorded."""
        self._driver, self._answered = driver, {}

    def end(self) -> dict[str, bool]:
        """Return the methods that were called since, and whether any call of each was answered."""
        answered, self._driver = self._answered, None
        return answered

    def record(self, driver: str, method: str, *, answered: bool) -> None:
        """Note a call; between cases nothing is noted. Threads of a case may call at once."""
        if driver == self._driver:
            self._answered[method] = answered or self._answered.get(method, False)


class Observed:
    """Wraps a session, a repository, a service or a handle, and reports each attribute that is read."""

    __slots__ = ("_inner", "_seen")

    def __init__(self, inner: object, seen: Seen) -> None:
        self._inner = inner
        self._seen = seen

    def __getattr__(self, name: str) -> object:
        return self._seen(name, getattr(self._inner, name))

    def __enter__(self) -> Self:
        """Enter a handle."""
        self._inner.__enter__()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a handle has it, and nothing else is entered
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object:
        """Leave a handle."""
        leave = cast("Callable[..., object]", getattr(self._inner, "__exit__"))  # noqa: B009  # of a handle
        return leave(kind, error, trace)


def record_sessions(spec: ModuleSpec[object], calls: Calls, patch: pytest.MonkeyPatch) -> None:
    """Record the calls of all sessions of a module until the patch is undone.

    Args:
        spec: a module that has a storage and a session.
        calls: records each call.
        patch: changes the class of the storage.
    """
    assert spec.storage is not None
    plain = cast("type[ModuleStorage[object, object]]", spec.storage).session_over
    parts = parts_of(spec)

    @wraps(plain)
    def session_over(
        storage: ModuleStorage[object, object], repositories: object, *, in_unit: bool = False
    ) -> object:
        session = plain(storage, repositories, in_unit=in_unit)
        if not calls.observing:
            return session
        return Observed(session, partial(_of_session, parts, partial(_record, calls, storage.driver)))

    patch.setattr(spec.storage, "session_over", session_over)


def _record(calls: Calls, driver: str, method: str, answered: bool) -> None:  # noqa: FBT001  # bound by partial
    calls.record(driver, method, answered=answered)


def _of_session(
    parts: dict[str, Part], record: Callable[[str, bool], None], name: str, found: object
) -> object:
    return Observed(found, partial(_of_part, parts[name], record)) if name in parts else found


def _of_part(part: Part, record: Callable[[str, bool], None], name: str, found: object) -> object:
    """Return a method of a part that reports whether it was answered, or an attribute as it is."""
    returns = part.methods.get(name)
    if returns is None:
        return found
    handle = part.handles.get(returns.partition(" ")[0])

    @wraps(cast("Callable[..., object]", found))
    def call(*args: object, **kwargs: object) -> object:
        record(f"{part.prefix}.{name}", False)  # noqa: FBT003  # until it is answered
        answer = cast("Callable[..., object]", found)(*args, **kwargs)
        record(f"{part.prefix}.{name}", returns == "None" or bool(answer))
        return (
            answer
            if handle is None or answer is None
            else Observed(answer, partial(_of_part, handle, record))
        )

    return call


OPTION: Final = "--method-matrix"
# The property of a case with its driver, module and calls as JSON. Workers send it; a JUnit file has it, too.
PROPERTY: Final = "twinstore_case"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run name the file."""
    parser.addoption(OPTION, type=Path, metavar="FILE", help="write which methods the cases exercise")


def pytest_configure(config: pytest.Config) -> None:
    """Observe the run where it named a file."""
    file: Path | None = config.getoption(OPTION)
    if file is None:
        return
    config.pluginmanager.register(Recorder(config), "twinstore-recorder")
    if not hasattr(config, "workerinput"):  # of a worker, whose controller writes
        config.pluginmanager.register(Writer(file), "twinstore-matrix")


class Recorder:
    """Observes each case in the process that runs it."""

    def __init__(self, config: pytest.Config) -> None:
        self._calls = Calls()
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        for spec in complete_modules():
            if spec.storage is not None and spec.session is not None:
                record_sessions(spec, self._calls, patch)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Observe what a case of a kit opens, and what is opened for its class."""
        kit: object = getattr(item, "cls", None)
        self._calls.observing = isinstance(kit, type) and issubclass(kit, Contract)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what a case calls."""
        workspace = _workspace_of(item)
        if workspace is None:
            return (yield)
        driver = workspace.storage.driver
        self._calls.begin(driver)
        try:
            return (yield)
        finally:
            seen = {"driver": driver, "module": _module_of(item), "methods": self._calls.end()}
            item.user_properties.append((PROPERTY, json.dumps(seen)))


def _workspace_of(item: pytest.Item) -> Workspace | None:
    arguments: dict[str, object] = getattr(item, "funcargs", {})
    for value in arguments.values():
        if isinstance(value, Workspace):
            return cast("Workspace", value)
    return None


def _module_of(item: pytest.Item) -> str | None:
    kit: object = getattr(item, "cls", None)
    if isinstance(kit, type) and issubclass(kit, Contract) and hasattr(kit, "module"):
        return kit.module.module.name
    return None


class Writer:
    """Collects what became of all cases, and writes it when the run ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._cases: dict[str, Case] = {}
        self._missing: tuple[tuple[str, str], ...] = ()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a phase of a case, its own process's or a worker's."""
        case = self._cases.setdefault(report.nodeid, Case(report.nodeid))
        case.seconds += report.duration
        if report.outcome != "passed" and case.outcome != "failed":
            case.outcome = report.outcome
        for name, seen in report.user_properties:
            if name == PROPERTY and report.when == "call":
                for field, value in json.loads(str(seen)).items():
                    setattr(case, field, value)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file; a method without a case fails the run."""
        cases = [self._cases[name] for name in sorted(self._cases)]
        modules = sorted({case.module for case in cases if case.module is not None})
        drivers = {case.driver for case in cases if case.driver is not None}
        methods = [name for module in modules for name in method_names(module_spec(module))]
        matrix = matrix_of(cases, methods, drivers)
        self._missing = missing_methods(matrix)
        content = {"cases": [asdict(case) for case in cases], "methods": matrix, "missing": self._missing}
        self._file.write_text(json.dumps(content, indent=1), "utf-8")
        if self._missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each method without a case."""
        for method, driver in self._missing:
            terminalreporter.write_line(f"{method} has no case on {driver} that passed and was answered")
