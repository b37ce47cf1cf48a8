"""``twinstore.aio`` has the names of the synchronous library, and the page says where it has not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import twinstore
from docs.parts.aio import ADDED, CHANGED, NOT_FOR_HOSTS, added, changed, surfaces
from tests.docs.pages import DOCS, prose
from twinstore import aio
from twinstore.plugins.modules import built_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docs.parts.aio import Surface


@pytest.fixture
def found() -> Iterator[list[Surface]]:
    settings = {"Persistence": dict.fromkeys(built_modules(), "Memory")}
    opened = aio.open_storage(settings)
    with twinstore.open_storage(settings) as storage:
        yield list(surfaces(storage, opened))
    asyncio.run(opened.close())


def test_every_difference_is_told_and_none_that_is_told_is_gone(found: list[Surface]) -> None:
    told = {name for name in CHANGED if not name.startswith("add_")}
    assert {name for surface in found for name in changed(surface)} == told | NOT_FOR_HOSTS
    assert {name for surface in found for name in added(surface)} == {*ADDED}


def test_every_module_and_each_of_its_parts_was_compared(found: list[Surface]) -> None:
    compared = {path.partition(".")[0] for path, _, _ in found}
    assert compared == {"", "<module>", *built_modules()}
    parts = [path for path, _, _ in found if path.startswith("scheduler.")]
    assert {"scheduler.runs.", "scheduler.locks.", "scheduler.run_summary_service."} <= set(parts)


def test_the_page_has_the_table() -> None:
    text = prose(DOCS / "asyncio.md")
    assert all(f"| `{name}` | {where} |" in text for name, (where, _) in CHANGED.items())
    assert all(name in text and same in text for name, same in ADDED.items())
