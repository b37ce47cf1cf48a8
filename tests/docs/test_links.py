"""Every relative link leads somewhere, headings included."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from docs.parts.entities import MODULES
from docs.parts.samples import folder_of, samples_of
from tests.docs.pages import DOCS, FENCE, PAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

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
