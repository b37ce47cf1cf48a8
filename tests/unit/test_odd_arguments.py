"""Whatever a caller passes, only errors of the library leave a repository or a service."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import pytest

from twinstore import open_storage
from twinstore.errors import TwinstoreError
from twinstore.scheduler import enums as scheduler_enums
from twinstore.scheduler.audit import AuditQueryOptions, SchedulerAuditService
from twinstore.scheduler.graph_job_store import GraphJobStore
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions
from twinstore.scheduler.policy_runs import PolicyRunService
from twinstore.scheduler.run_summaries import RunSummaryService
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.scheduler.workers import WorkerStatus
from twinstore.taskrunner import enums as taskrunner_enums
from twinstore.taskrunner.pack_runs import PackRunQueryOptions
from twinstore.testing.instants import at
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.signatures import annotation_text
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES
from twinstore.tracking import enums as tracking_enums
from twinstore.tracking.sessions import SessionQueryOptions
from twinstore.tracking.tasks import TaskQueryOptions

if TYPE_CHECKING:
    from twinstore import Storage
    from twinstore.testing.examples import ModuleExamples

MODULES: Final = (SCHEDULER_EXAMPLES, TRACKING_EXAMPLES, TASKRUNNER_EXAMPLES)
SERVICES: Final = {
    "audit_service": SchedulerAuditService,
    "graph_job_store": GraphJobStore,
    "policy_run_service": PolicyRunService,
    "run_summary_service": RunSummaryService,
}
OPTIONS: Final[dict[str, Any]] = {
    kind.__name__: kind
    for kind in (
        *(AuditQueryOptions, PolicyJobQueryOptions, RunQueryOptions, ScheduleQueryOptions),
        *(SessionQueryOptions, TaskQueryOptions, PackRunQueryOptions),
    )
}
TENANT: Final = "t"
ODD: Final[tuple[object, ...]] = (
    *(5, -1, 2**70, 1.5, float("nan"), True, None, Decimal(1)),
    *("", " ", "x" * 300, "\x00", "\ud800", b"x"),
    *([], {}, set[object](), [[]], [{}], [None], ("x",)),
    *(object(), iter(())),
    *(datetime(2025, 1, 1), date(2025, 1, 1), timedelta(days=-1), timedelta.max),  # noqa: DTZ001  # odd: without an offset
)
ENUMS: Final = {
    name: member
    for module in (scheduler_enums, tracking_enums, taskrunner_enums)
    for name, member in vars(module).items()
    if isinstance(member, type) and issubclass(member, StrEnum) and list(member)
} | {"WorkerStatus": WorkerStatus}


def repositories() -> Iterator[tuple[ModuleExamples, str, type]]:
    """Yield the attributes of every module, each with its Protocol."""
    for module in MODULES:
        for name, protocol in {item.repository: item.protocol for item in module.examples}.items():
            yield module, name, protocol
    for name, protocol in SERVICES.items():
        yield SCHEDULER_EXAMPLES, name, protocol


def calls() -> Iterator[Any]:
    """Yield every method, with its repository."""
    for module, name, protocol in repositories():
        for method, function in inspect.getmembers(protocol, inspect.isfunction):
            if not method.startswith("_"):
                yield pytest.param(module, name, method, function, id=f"{module.module.name}-{name}.{method}")


def ordinary(module: ModuleExamples, name: str, annotation: str) -> object:  # noqa: PLR0911  # one for each kind
    """Return an argument that is acceptable, or at least of the right kind."""
    if "None" in annotation.replace("| None", "") or annotation.endswith("| None"):
        return None
    models = {type(model).__name__: model for model in small_models(module)}
    for kind, model in models.items():
        if annotation == kind or annotation.startswith(f"{kind} |"):
            return model
        if kind in annotation and annotation.startswith("Sequence"):
            return [model]
    if annotation in ENUMS:
        return next(iter(ENUMS[annotation]))
    kinds: dict[str, object] = {"datetime": at(), "timedelta": timedelta(0), "int": 1, "bool": True}
    if name == "lease":
        return timedelta(seconds=1)
    if annotation.startswith("Callable"):
        return lambda stored: stored
    return kinds.get(annotation, TENANT if name == "tenant_id" else "x")


def small_models(module: ModuleExamples) -> list[object]:
    """Return one model of each entity."""
    return [item.small(TENANT, "x") for item in module.examples]


def odd_calls(module: ModuleExamples, function: Callable[..., object]) -> Iterator[dict[str, object]]:
    """Yield the arguments of calls in each of which one is odd."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    usual = {
        item.name: ordinary(module, item.name, annotation_text(item.annotation))
        for item in parameters
        # As short as may be: whoever waits for a lock that a call before took waits until its lease ends.
        if item.default is item.empty or item.name == "lease"
    }
    for item in parameters:
        for odd in ODD:
            yield {**usual, item.name: odd}
        if item.name == "options":
            options = OPTIONS[annotation_text(item.annotation).split(" ")[0]]
            for field in fields(options):
                for odd in ODD:
                    yield {**usual, item.name: options(**{field.name: odd})}


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    section = ("Scheduler", "Tracking", "TaskRunner")
    with open_storage({"Persistence": dict.fromkeys(section, "Memory")}) as opened:
        yield opened


@pytest.mark.parametrize(("module", "repository", "method", "function"), list(calls()))
def test_odd_arguments_end_in_errors_of_the_library(
    storage: Storage, module: ModuleExamples, repository: str, method: str, function: Callable[..., object]
) -> None:
    foreign: list[tuple[dict[str, object], Exception]] = []
    of_module: Any = storage.module(module.module.name)
    call = getattr(getattr(of_module, repository), method)
    for arguments in odd_calls(module, function):
        try:
            call(**arguments)
        except TwinstoreError:
            pass
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            foreign.append((arguments, error))
    assert foreign == []
