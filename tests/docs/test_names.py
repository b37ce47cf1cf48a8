"""Whatever a reader can type or meet has its place in the pages."""

from __future__ import annotations

import re
from typing import Final

import pytest

import twinstore
from docs.parts.commands import commands
from docs.parts.drivers import contracts, hooks
from docs.parts.errors import core_errors, tool_errors
from docs.parts.settings import DRIVERS, driver_keys, option_keys
from tests.docs.pages import DOCS, PAGES, ROOT, prose
from tests.servers import MONGO_URL, ONLY, POSTGRES_URL, SERVERS
from twinstore import testing
from twinstore.backend import CAPABILITY_NAMES
from twinstore.config import CONFIG_VARIABLE
from twinstore.config.keys import modules
from twinstore.observing import Call, LockWait, Operation, SystemScopeOpening
from twinstore.observing.counters import METRICS, Metric
from twinstore_backfill.outcome import Exit

COMMANDS: Final = dict(commands())
CODE: Final = re.compile(r"`+([^`]+)`+")


def named(name: str, *pages: str) -> bool:
    """Whether a name stands in the pages as code."""
    text = prose(*(DOCS / page for page in pages))
    return any(name in span for span in CODE.findall(text))


@pytest.mark.parametrize("kind", [*core_errors(), *tool_errors()], ids=lambda kind: kind.__name__)
def test_every_error_has_its_row(kind: type[twinstore.TwinstoreError]) -> None:
    assert f"| `{kind.__name__}` | " in prose(DOCS / "errors.md")
    assert f"| `{kind.code}` |" in prose(DOCS / "errors.md")


@pytest.mark.parametrize("item", Exit)
def test_every_exit_code_is_explained_to_operators(item: Exit) -> None:
    for page in ("errors.md", "backfill.md"):
        assert f"| `{item.value}` |" in prose(DOCS / page), page


@pytest.mark.parametrize("name", sorted(CAPABILITY_NAMES))
def test_every_capability_is_explained(name: str) -> None:
    assert prose(DOCS / "capabilities.md").count(f"| `{name}` |") == 2


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_has_its_row_with_its_labels(metric: Metric) -> None:
    kind = "counter" if metric.buckets is None else "histogram"
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    assert f"| `{metric.name}` | {kind} | {labels} | " in prose(DOCS / "observing.md")


def test_every_event_and_its_fields_are_explained_to_observers() -> None:
    for event in (Operation, Call, LockWait, SystemScopeOpening):
        for name in (event.__name__, *event._fields):
            assert named(name, "observing.md"), name


@pytest.mark.parametrize("name", hooks())
def test_every_hook_is_explained(name: str) -> None:
    assert named(name, "writing-a-driver.md")


def test_every_public_name_of_the_contract_kit_is_explained() -> None:
    for name in {*testing.__all__, *(item.__name__ for item in contracts())} - {"Contract", "StoredRow"}:
        assert name in prose(DOCS / "writing-a-driver.md"), name


@pytest.mark.parametrize(
    "key",
    [
        *option_keys(),
        *(key for driver in DRIVERS for key in driver_keys(driver)),
        *(":".join(keys.switch) for keys in modules().values()),
        CONFIG_VARIABLE,
    ],
)
def test_every_setting_is_explained(key: str) -> None:
    assert named(key, "configuration.md")


@pytest.mark.parametrize("name", [MONGO_URL, POSTGRES_URL, SERVERS, ONLY])
def test_every_variable_of_the_tests_is_explained_to_contributors(name: str) -> None:
    assert name in prose(ROOT / "CONTRIBUTING.md")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_explained(name: str) -> None:
    section = re.search(
        rf"^##+ `{re.escape(name)}`\n(.*?)(?=^##|\Z)", prose(DOCS / "cli.md"), re.DOTALL | re.MULTILINE
    )
    assert section, name
    for parameter in COMMANDS[name].params:
        if getattr(parameter, "hidden", False):
            # What every command takes is explained where it is shown, with the program.
            continue
        shown = [option if option.startswith("-") else option.upper() for option in parameter.opts]
        assert parameter.name == "help" or all(f"`{option}" in section[1] for option in shown), name


def test_every_command_and_option_has_a_help_text() -> None:
    silent = [name for name, command in COMMANDS.items() if not command.help]
    silent += [
        f"{name} {parameter.opts[0]}"
        for name, command in COMMANDS.items()
        for parameter in command.params
        if not getattr(parameter, "help", None)
    ]
    assert silent == []


def test_every_backfill_command_is_explained_to_the_migration_engineer() -> None:
    for name in COMMANDS:
        if name.startswith("twinstore backfill "):
            assert named(name.removeprefix("twinstore "), "backfill.md"), name


def test_every_extra_of_the_distribution_is_explained_in_the_readme() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    section = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = ", section, re.MULTILINE)) - {"dev"}
    readme = prose(ROOT / "README.md")
    assert {extra for extra in extras if f"| `{extra}` |" not in readme} == set()


def test_no_page_speaks_of_extras_that_do_not_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for extras in re.findall(r"(?:twinstore|\.whl\)|'\.)\[([\w,]+)\]", prose(*PAGES)):
        for extra in extras.split(","):
            assert re.search(rf"^{extra} = ", project, re.MULTILINE), extra
