"""Whatever a reader can type or meet has its place in the pages, and every relative link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from docs.parts.commands import commands
from docs.parts.drivers import contracts, hooks
from docs.parts.entities import MODULES
from docs.parts.errors import core_errors, tool_errors
from docs.parts.samples import folder_of, samples_of
from docs.parts.settings import DRIVERS, driver_keys, option_keys
from tests.docs.pages import DOCS, FENCE, PAGES, ROOT, prose
from tests.support.servers import MONGO_URL, ONLY, POSTGRES_URL, SERVERS
from twinstore import testing
from twinstore.config import CONFIG_VARIABLE
from twinstore.config.keys import modules
from twinstore.observing import Call, LockWait, Operation, SystemScopeOpening
from twinstore.observing.counters import METRICS
from twinstore.plugins.backend import CAPABILITY_NAMES
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
# What each folder of a module and of a driver says of itself.
FOLDERS: Final = [
    *(ROOT / "core/twinstore" / module.name / "README.md" for module in MODULES),
    *(path.parent / "README.md" for path in sorted(ROOT.glob("backends/*/twinstore_*"))),
]
NO_ANCHOR: Final = re.compile(r"[^\w\- ]")


def links(page: Path) -> Iterator[str]:
    """Yield the relative links of a page."""
    for match in LINK.finditer(FENCE.sub("", page.read_text("utf-8"))):
        if "://" not in match["target"]:
            yield match["target"]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", page.read_text("utf-8")))
    return {NO_ANCHOR.sub("", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", [*PAGES, *FOLDERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", FOLDERS, ids=lambda page: page.parent.name)
def test_the_readme_of_a_folder_is_short_and_says_where_to_begin(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "\nBegin with [`" in text
    assert len(text.splitlines()) <= 25


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, todo = set[Path](), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            todo += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
    assert set(DOCS.glob("*.md")) <= reached


def test_every_sample_is_linked_from_the_data_schemas() -> None:
    linked = {
        (DOCS / link).resolve()
        for link in links(DOCS / "11_DATA_SCHEMAS.md")
        if link.endswith((".json", ".ndjson"))
    }
    folders = {folder_of(module) for module in MODULES if samples_of(module)}
    assert linked == {path for folder in folders for path in folder.iterdir() if path.is_file()}


COMMANDS: Final = dict(commands())
CODE: Final = re.compile(r"`+([^`]+)`+")


def named(name: str, *pages: str) -> bool:
    """Return whether the pages contain a name as code."""
    text = prose(*(DOCS / page for page in pages))
    return any(name in span for span in CODE.findall(text))


def missing(rows: Iterable[str], *pages: str) -> list[str]:
    """Return the beginnings of rows, or parts of them, that the pages lack."""
    return [row for row in rows for page in pages if row not in prose(DOCS / page)]


def test_every_error_exit_code_and_metric_has_its_row() -> None:
    errors = [*core_errors(), *tool_errors()]
    rows = [row for kind in errors for row in (f"| `{kind.__name__}` | ", f"| `{kind.code}` |")]
    assert missing(rows, "errors.md") == []
    assert missing([f"| `{item.value}` |" for item in Exit], "errors.md", "backfill.md") == []
    metrics = [
        f"| `{metric.name}` | {'counter' if metric.buckets is None else 'histogram'} | "
        + ", ".join(f"`{label}`" for label in metric.labels)
        for metric in METRICS
    ]
    assert missing(metrics, "observing.md") == []


def test_every_capability_is_explained() -> None:
    page = prose(DOCS / "capabilities.md")
    assert [name for name in sorted(CAPABILITY_NAMES) if page.count(f"| `{name}` |") != 2] == []


def test_every_event_and_its_fields_are_explained_to_observers() -> None:
    for event in (Operation, Call, LockWait, SystemScopeOpening):
        for name in (event.__name__, *event._fields):
            assert named(name, "observing.md"), name


def test_every_hook_is_explained() -> None:
    assert [name for name in hooks() if not named(name, "writing-a-driver.md")] == []


def test_every_public_name_of_the_contract_kit_is_explained() -> None:
    for name in {*testing.__all__, *(item.__name__ for item in contracts())} - {"Contract", "StoredRow"}:
        assert name in prose(DOCS / "writing-a-driver.md"), name


def test_every_setting_is_explained() -> None:
    keys = [
        *option_keys(),
        *(key for driver in DRIVERS for key in driver_keys(driver)),
        *(":".join(keys.switch) for keys in modules().values()),
        CONFIG_VARIABLE,
    ]
    assert [key for key in keys if not named(key, "configuration.md")] == []


def test_every_variable_of_the_tests_is_explained_to_contributors() -> None:
    page = prose(ROOT / "CONTRIBUTING.md")
    assert [name for name in (MONGO_URL, POSTGRES_URL, SERVERS, ONLY) if name not in page] == []


def test_every_command_and_option_is_explained() -> None:
    page, unexplained = prose(DOCS / "cli.md"), list[str]()
    for name, command in COMMANDS.items():
        heading = rf"^##+ `{re.escape(name)}`\n(.*?)(?=^##|\Z)"
        section = re.search(heading, page, re.DOTALL | re.MULTILINE)
        # What every command takes is explained where it is shown, with the program.
        shown = [
            item for item in command.params if item.name != "help" and not getattr(item, "hidden", False)
        ]
        options = [
            option if option.startswith("-") else option.upper() for item in shown for option in item.opts
        ]
        unexplained += [
            f"{name} {option}" for option in options if section is None or f"`{option}" not in section[1]
        ]
        unexplained += [name] if section is None else []
    assert unexplained == []


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
