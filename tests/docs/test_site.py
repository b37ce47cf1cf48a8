"""The site: every page in its navigation, nothing from another host, figures that everybody can read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from xml.etree import ElementTree as ET

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from docs.parts.api import EXTENDING
from docs.parts.site import foreign, relinked, titled, unescaped
from tests.docs.pages import DOCS, ROOT, prose
from tests.support.chromium import measured

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG: Final = str(ROOT / "mkdocs.yml")
FIGURES: Final = sorted((DOCS / "figures").glob("*.svg"))
SVG: Final = "{http://www.w3.org/2000/svg}"
# What readers look for, by their own words. A page may answer that it is not supported.
SEARCHED: Final = (
    "transform logging pagination iterate count delete downtime dashboard notebook airflow django fastapi "
    "windows docker kubernetes limits platforms"
)
IMAGE: Final = re.compile(r"!\[(?P<alt>[^\]]*)\]\(figures/(?P<name>[^)]+)\)")


def navigation() -> list[object]:
    return cast("list[object]", load_config(CONFIG)["nav"])


def pages(part: object) -> Iterator[str]:
    """Yield the pages of a part of the navigation, in order."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for inner in cast("dict[str, object]", part).values():
            yield from pages(inner)
    else:
        for inner in cast("list[object]", part):
            yield from pages(inner)


def test_every_page_is_in_the_navigation_once() -> None:
    found = [page for page in pages(navigation()) if not page.startswith("repository/")]
    assert sorted(found) == sorted([*(page.name for page in DOCS.glob("*.md")), f"{EXTENDING}.md"])


def test_the_navigation_has_the_four_parts_and_begins_with_the_index() -> None:
    first, *parts = navigation()
    assert first == {"Home": "index.md"}
    assert [name for part in parts for name in cast("dict[str, Any]", part)] == [
        "Tutorials",
        "How-to",
        "Reference",
        "Explanation",
    ]


def built(folder: Path, pages: dict[str, str]) -> None:
    """Build a small site with our settings, without the hooks that add other pages."""
    for name, text in pages.items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text)
    shutil.copytree(DOCS / "assets", folder / "docs" / "assets")
    config = load_config(
        CONFIG, docs_dir=str(folder / "docs"), site_dir=str(folder / "site"), nav=["index.md"]
    )
    hook = config.plugins["docs/parts/site.py"]
    config.plugins.events["files"].remove(hook.on_files)
    build(config)


FAULTS: Final = {
    "[there is no such page](gone.md)": "'gone.md', but the target is not found",
    "[there is no such heading](#gone)": "'#gone', but there is no such anchor",
    "[absolute](/etc/passwd)": "'/etc/passwd'",
    "![picture](https://elsewhere.example/a.png)": "loads https://elsewhere.example/a.png",
    '<script src="//elsewhere.example/b.js"></script>': "loads //elsewhere.example/b.js",
}


def test_each_fault_of_a_page_is_named_and_ends_the_build(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = "\n\n".join(["# Title", *FAULTS])
    with pytest.raises(Abort):
        built(tmp_path, {"index.md": page, "forgotten.md": "# Forgotten\n"})
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    expected = {*FAULTS.values(), "forgotten.md"}
    assert {part for part in expected if not any(part in text for text in warnings)} == set()


def test_a_sound_site_is_built_with_an_index_for_the_search_over_http_and_from_files(tmp_path: Path) -> None:
    row = "| A | B |\n| --- | --- |\n| `text\\|json` | a \\| b |"
    built(tmp_path, {"index.md": f"# Title\n\n[link](https://elsewhere.example)\n\n## A heading\n\n{row}\n"})
    page = (tmp_path / "site" / "index.html").read_text()
    assert 'id="a-heading"' in page
    assert 'src="assets/iframe-worker.js"' in page
    assert "<td><code>text|json</code></td>" in page
    assert "<td>a | b</td>" in page
    assert "a-heading" in (tmp_path / "site" / "search" / "search_index.json").read_text()
    assert (tmp_path / "site" / "search" / "search_index.js").read_text().startswith("var __index = ")


def test_what_is_no_page_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "docs" / "__pycache__").mkdir(parents=True)
    (tmp_path / "docs" / "__pycache__" / "generate.cpython-311.pyc").write_bytes(b"x")
    built(tmp_path, {"index.md": "# Title\n"})
    assert (tmp_path / "site" / "index.html").is_file()
    assert not (tmp_path / "site" / "__pycache__").exists()


@pytest.mark.chromium
def test_what_the_button_copies_is_what_is_typed(tmp_path: Path) -> None:
    """It copies the inner text of the block, with this attribute on it while it does."""
    css = (ROOT / "docs" / "assets" / "site.css").read_text("utf-8")
    prompt = '<span class="gp">$ </span>'
    code = f'{prompt}pip list\n<span class="go">twinstore 0.1.0</span>\n{prompt}ls'
    page = f'<style>{css}</style><div class="highlight"><pre><code data-md-copying>{code}</code></pre></div>'
    asked = "return view.document.querySelector('code').innerText"
    (copied,) = measured({"page": page}, [(800, "light")], asked, tmp_path).values()
    assert copied.split() == ["pip", "list", "ls"]


def test_what_a_page_would_load_from_another_host_is_found() -> None:
    followed = '<a href="https://a.example">fine</a>'
    loaded = '<link href=https://b.example/x.css><img alt="" src="//c.example/y">'
    assert foreign(followed + loaded) == ["https://b.example/x.css", "//c.example/y"]


def test_a_fence_keeps_its_language_and_names_its_file() -> None:
    assert titled("```python no-run\n") == "```python\n"
    assert titled("```text output\n") == "```text\n"
    assert titled("```console terminal=2\n") == '```console title="Terminal 2"\n'
    assert titled("```python file=acme/a.py\n") == '```python title="acme/a.py"\n'


def test_a_bar_in_the_code_of_a_table_loses_its_escape() -> None:
    assert unescaped("| `text\\|json` | a \\| b |") == "| `text|json` | a \\| b |"
    assert unescaped("`a\\|b`") == "`a\\|b`"


def test_a_link_out_of_the_pages_leads_to_a_page_of_the_site() -> None:
    assert relinked("[a](../samples/x.json)", "docs/b.md") == "[a](repository/samples/x.json.md)"
    assert relinked("[a](docs/errors.md#top)", "CONTRIBUTING.md") == "[a](../errors.md#top)"
    assert relinked("[a](https://a.example)", "docs/b.md") == "[a](https://a.example)"
    assert relinked("[a](#here)", "docs/b.md") == "[a](#here)"
    code = "```python\ntable[row](../column)\n```"
    assert relinked(f"{code}\n[a](../x.md)", "docs/b.md") == f"{code}\n[a](repository/x.md)"


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.name)
def test_a_figure_is_described_and_reads_on_light_and_dark(path: Path) -> None:
    root = ET.parse(path).getroot()  # noqa: S314  # our own file
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    text = path.read_text()
    assert "prefers-color-scheme:dark" in text
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
    width = float(root.attrib["width"])
    # On a phone of 390 px the smallest text, of 13 px, has 8 or more.
    assert width <= 580


def test_every_figure_is_shown_with_a_text_for_those_who_do_not_see_it() -> None:
    shown = {match["name"]: match["alt"] for match in IMAGE.finditer(prose(*DOCS.glob("*.md")))}
    assert set(shown) == {path.name for path in FIGURES}
    assert [name for name, alt in shown.items() if len(alt) < 60] == []


def test_make_builds_the_site_strictly() -> None:
    # If MkDocs runs quietly, or not strictly, it reports no fault.
    line = re.search(r"^SITE = (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line
    assert line[1].endswith("mkdocs build")
    assert load_config(CONFIG).strict


@pytest.mark.long
def test_the_whole_site_is_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    html = sorted(tmp_path.rglob("*.html"))
    assert len(html) > 30
    assert [(page.name, foreign(page.read_text())) for page in html if foreign(page.read_text())] == []
    sections = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    assert [section for section in sections if "CHANGELOG" in section["location"]] == []
    beginnings = [f"{section['title']} {first_sentence(section['text'])}".lower() for section in sections]
    assert [word for word in SEARCHED.split() if not any(word in text for text in beginnings)] == []


def first_sentence(html: str) -> str:
    """Return how a section of the index begins."""
    return re.split(r"(?<=[.!?])\s", re.sub(r"<[^>]+>", "", html), maxsplit=1)[0]
