"""Rows as large as they may be, through every method that stores one, and arguments of any length."""

from __future__ import annotations

import inspect
import time
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

import twinstore
from tests.every_module import for_every_module, migrate
from tests.stores import fresh_settings, kept
from twinstore.access.guard import MOST_BYTES, size_of
from twinstore.errors import TwinstoreError, ValidationError
from twinstore.scheduler import ExecutionLogEntry, RunState
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_run, moved
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.taskrunner.builders import make_log_entry, make_pack_run
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.models.canonical import CanonicalModel
    from twinstore.storage.open import Storage
    from twinstore.testing.examples import Example, ModuleExamples

TENANT: Final = "acme"
SERVERS: Final = {"mongo": "Mongo", "postgres": "Postgres"}
MODULES: Final = (SCHEDULER_EXAMPLES, TASKRUNNER_EXAMPLES, TRACKING_EXAMPLES)
# What a server adds of its own beside a row, such as a second form of the key.
ALLOWANCE: Final = 10_000
# What is repeated is repeated for ten seconds at least.
SECONDS: Final = 9
LONGEST_MESSAGE: Final = 2000
# No bounded text may be as long.
PROBE: Final = 10_000


whose_messages_are_bounded: Final = pytest.mark.parametrize(
    "storage", ["mongo", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)


@pytest.fixture(params=SERVERS)
def storage(request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Open every module on a server."""
    with every_module(request.param, request) as found:
        yield found


@contextmanager
def every_module(server: str, request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Open every module on a server."""
    with fresh_settings(server, request) as fresh:
        settings = kept(for_every_module(fresh, SERVERS[server]))
        migrate(settings)
        with twinstore.open_storage(settings) as found:
            yield found


def grown(model: CanonicalModel, size: int) -> CanonicalModel | None:
    """Return a model with a text that makes it so large, ``None`` where every field of it is bounded."""
    for name in type(model).model_fields:
        for shape in (str, lambda text: {"a": text}):
            try:
                found = model.evolve(**{name: shape("x" * PROBE)})
            except ValueError:
                continue
            return model.evolve(**{name: shape("x" * (PROBE + size - size_of(found.wire())))})
    return None


def sized(module: ModuleExamples, size: int) -> Iterator[tuple[Example, CanonicalModel]]:
    """Yield the entities of a module that can have rows of any size, each with one of this size."""
    for item in module.examples:
        if (large := grown(item.small(TENANT, "large"), size)) is not None:
            yield item, large


def of_module(storage: Storage, module: ModuleExamples) -> Any:  # noqa: ANN401  # of any module
    """Return the repositories of a module."""
    return storage.module(module.module.name).unbound


def test_nearly_every_entity_can_be_large() -> None:
    found = [item.name for module in MODULES for item, _ in sized(module, 2 * PROBE)]
    assert len(found) >= 12, found


def store_parent(session: Any, module: ModuleExamples, item: Example) -> None:  # noqa: ANN401  # of any module
    """Store the parent of a row, if it has one."""
    if item.entity.parent is not None:
        parent = module.of(item.entity.parent.entity)
        parent.store(session, TENANT, parent.small(TENANT, "large"))


def stored_and_found(storage: Storage, module: ModuleExamples, item: Example, model: CanonicalModel) -> None:
    """Store a row and find it by every way."""
    session = of_module(storage, module)
    store_parent(session, module, item)
    stored = item.store(session, TENANT, model)
    assert size_of(stored.wire()) >= size_of(model.wire()) - ALLOWANCE
    assert item.found(session, TENANT, stored) is not None, item.name


@pytest.mark.parametrize(
    "module",
    [pytest.param(item, marks=[pytest.mark.long] * (item is not MODULES[0])) for item in MODULES],
    ids=lambda module: module.module.name,
)
def test_the_largest_row_is_taken_and_one_beyond_it_is_refused_alike(
    storage: Storage, module: ModuleExamples, *, long_form: bool
) -> None:
    """Of one entity, in the full form of each."""
    entities = None if long_form else 1
    for item, large in islice(sized(module, MOST_BYTES + 1), entities):
        refused(storage, module, item, large)
    for item, large in islice(sized(module, MOST_BYTES - ALLOWANCE), entities):
        stored_and_found(storage, module, item, large)


def refused(storage: Storage, module: ModuleExamples, item: Example, large: CanonicalModel) -> None:
    """Check that a row is refused."""
    session = of_module(storage, module)
    store_parent(session, module, item)
    with pytest.raises(ValidationError, match=r"16\.71 MB, and a row may have 16\.71 MB"):
        item.store(session, TENANT, large)


@whose_messages_are_bounded
def test_a_unit_of_a_long_error_and_its_summary_commits(storage: Storage) -> None:
    scheduler = storage.scheduler
    for number in range(3):
        run = scheduler.runs.create(make_run(TENANT, f"run-{number}", schedule_id="s"))
        for state in (RunState.QUEUED, RunState.RUNNING):
            run = moved(run, state)
            scheduler.runs.update(run)
        failed = moved(run, RunState.ERROR, error="x" * 8_100_000)
        with scheduler.transaction(TENANT) as unit:
            assert unit.runs.update(failed)
            unit.run_summary_service.project(failed)
    summary = scheduler.run_summaries.get_required(TENANT, "s")
    assert summary.counters.error == 3
    assert all("8100000 characters in all" in (entry.error or "") for entry in summary.recent)


@whose_messages_are_bounded
def test_thirty_megabytes_of_log_in_one_call_are_refused_with_what_to_do(storage: Storage) -> None:
    scheduler, taskrunner = storage.scheduler, storage.taskrunner
    scheduler.runs.create(make_run(TENANT, "run"))
    scheduler.runs.create(make_run(TENANT, "other"))
    taskrunner.pack_runs.create(make_pack_run(TENANT, "run"))
    text = "x" * 1_000_000
    entries = [
        ExecutionLogEntry(tenant_id=TENANT, run_id=run, logged_at=START, message=text)
        for run in ("run", "other")
        for _ in range(15)
    ]
    packed = [make_log_entry("run", number, message=text) for number in range(1, 31)]
    for refused in (
        lambda: scheduler.execution_logs.append(entries),
        lambda: taskrunner.pack_run_logs.append(packed, tenant_id=TENANT),
    ):
        with pytest.raises(ValidationError, match=r"have 30\.\d\d MB together, .* Split them over several"):
            refused()
    assert scheduler.execution_logs.list(TENANT, "run") == ()
    assert taskrunner.pack_run_logs.last_sequence("run", tenant_id=TENANT) == 0
    for part in (packed[:15], packed[15:]):
        assert taskrunner.pack_run_logs.append(part, tenant_id=TENANT) == 15


def methods_of(repository: object) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of a repository."""
    for name, method in inspect.getmembers(repository, inspect.ismethod):
        if not name.startswith("_") and name != "tuned":
            yield name, method


def texts_of(method: Any) -> list[str]:  # noqa: ANN401  # any method
    """Return the parameters of a method that are texts."""
    signature = inspect.signature(method)
    return [item.name for item in signature.parameters.values() if str(item.annotation).startswith("str")]


@pytest.mark.parametrize(
    "storage", ["postgres", pytest.param("mongo", marks=pytest.mark.long)], indirect=True
)
def test_texts_of_16_megabytes_as_arguments_are_judged_quickly_and_not_repeated(storage: Storage) -> None:
    text = "x" * 16_000_000
    slow: list[str] = []
    units = (storage.scheduler.unbound, storage.taskrunner.unbound, storage.tracking.unbound)
    for repository, found in chain.from_iterable(map(parts_of, units)):
        for name, method in methods_of(found):
            for parameter in texts_of(method):
                begun, told = time.monotonic(), ""
                try:
                    method(**filled(method, parameter, text))
                except (TwinstoreError, TypeError) as error:
                    told = str(error)
                if time.monotonic() - begun > SECONDS or len(told) > LONGEST_MESSAGE:
                    slow.append(f"{repository}.{name}({parameter}): {told[:200]}")
    assert slow == []


def parts_of(unit: object) -> list[tuple[str, object]]:
    """Return the attributes of a dataclass with slots."""
    return [(name, getattr(unit, name)) for name in cast("Any", unit).__dataclass_fields__]


def filled(method: Any, parameter: str, text: str) -> dict[str, object]:  # noqa: ANN401  # any method
    """Return arguments of which one is the text; the others are acceptable ids where they are texts."""
    found: dict[str, object] = {}
    for item in inspect.signature(method).parameters.values():
        if item.name == parameter:
            found[item.name] = text
        elif item.default is inspect.Parameter.empty and item.kind is not item.VAR_KEYWORD:
            found[item.name] = "acme" if str(item.annotation).startswith("str") else None
    return found
