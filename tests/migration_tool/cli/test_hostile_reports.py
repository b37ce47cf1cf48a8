"""Texts of a report come from stored rows: none of them may build, hide or stretch anything in any format."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from xml.etree import ElementTree as ET

import mistune
import pytest
from junit2htmlreport.parser import Junit
from junitparser import JUnitXml
from markdown_it import MarkdownIt
from typing_extensions import override

from tests.migration_tool.cli.test_reports import report
from twinstore_backfill.cli import main
from twinstore_backfill.report.model import (
    IgnoredReport,
    LeftOut,
    Named,
    ParityReport,
    QueryTimes,
    SubsetReport,
)
from twinstore_backfill.report.writing import REPORT_FILES, ReportFormat, render

if TYPE_CHECKING:
    from twinstore_backfill.report.model import KeyList

HOSTILE: Final = {
    "a script": "<script>alert('x')</script>",
    "the end of a style": "</style></title><img src=x onerror=alert(1)>",
    "the end of an attribute": '" onmouseover="alert(1)" x=\'',
    "a template": "{{ report }}{% raw %}{# #}${7*7}",
    "entities": "&lt;b&gt; &amp; &#x3c; ]]> <!-- -->",
    "a table": "a | b \\| c \\\\| d\n| --- |\n# head",
    "markdown": "- `x` **b** ~~s~~ [l](javascript:alert(1)) ![i](x) <b> @someone #1 https://e.vil www.e.vil",
    "directions": "\u202eevil\u2066 \u200f\u061c",
    "control characters": "\x00\x1b[2J\x1b]8;;x\x07\r\n\t\x9b31m\u2028\ufeff",
    "many": "key-" * 2500,
    "many invisible ones": "\u202e" * 10_000,
    "many markers": "|*_`<" * 2000,
}
# What programs read; no text of a stored row gets there.
FIXED: Final = frozenset(
    {"format", "verdict", "mode", "result", "xor", "sum", "generated_at", "kind", "entity", "state"}
)
LONGEST_SHOWN: Final = 10_000


def with_text(text: str) -> ParityReport:
    """Return a report that has a text in every place."""
    whole = report(evil="x")
    (runs,) = whole.entities
    quarantined: KeyList = runs.missing.model_copy(
        update={"shown": (Named(key=("bad",), tenant="x", reason="why"),)}
    )
    envelope = whole.envelope.model_copy(
        update={
            "benchmark": (
                QueryTimes(query="x", source_median=1, source_p95=1, target_median=1, target_p95=1),
            )
        }
    )
    full = whole.model_copy(
        update={
            "envelope": envelope,
            "warnings": ("x",),
            "subset": SubsetReport(
                key_from=("x",), key_to=("x",), since="x", until="x", dated_by={"runs": "x"}
            ),
            "ignored": (
                IgnoredReport(entity="runs", path="x", reason="x"),
                IgnoredReport(entity="runs", path="x", reason="x", kind="field"),
            ),
            "left_out": (LeftOut(entity="workers", why="x", source={}, target={}),),
            "entities_asked": ("x",),
            "entities": (
                runs.model_copy(
                    update={
                        "quarantined": quarantined,
                        "undecodable": quarantined,
                        "stale": runs.different,
                        "unproved": runs.different,
                        "counts": runs.counts.model_copy(
                            update={"quarantined": 1, "undecodable": 1, "stale": 1, "unproved": 1}
                        ),
                    }
                ),
            ),
        }
    )
    return ParityReport.model_validate(_replaced(full.model_dump(), text))


def _replaced(value: object, text: str) -> object:
    if isinstance(value, str):
        return text
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        # Words of the program, in which backticks mark a command.
        plain = text.replace("`", "")
        return {
            name: item if name in FIXED else _replaced(item, plain if name == "next_step" else text)
            for name, item in items
        }
    if isinstance(value, list | tuple):
        return tuple(_replaced(item, text) for item in cast("tuple[object, ...]", value))
    return value


class Structure(HTMLParser):
    """The tags and the names of attributes of a page, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[object] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))

    @override
    def handle_endtag(self, tag: str) -> None:
        self.found.append(tag)

    @override
    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))

    @override
    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@cache
def rendered(text: str, output: ReportFormat) -> str:
    return render(with_text(text), output).decode()


def invisible(text: str) -> set[str]:
    """Return what acts instead of being seen, apart from the ends of lines."""
    return {
        one for one in text if one != "\n" and unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
class TestEveryPlace:
    def test_of_a_page_holds_it_as_text(self, text: str) -> None:
        page = Structure(rendered(text, ReportFormat.HTML))
        assert page.found == Structure(rendered("x", ReportFormat.HTML)).found
        assert max(map(len, page.texts[3:])) < LONGEST_SHOWN
        assert not invisible("".join(page.texts))

    @pytest.mark.parametrize("parser", ["mistune", "markdown-it"])
    def test_of_markdown_holds_it_as_text(self, text: str, parser: str) -> None:
        shown, plain = (Structure(_page(item, parser)) for item in (text, "x"))
        assert shown.found == plain.found
        assert not invisible("".join(shown.texts))

    def test_of_junit_holds_it_as_text(self, text: str, tmp_path: Path) -> None:
        content = rendered(text, ReportFormat.JUNIT)
        root, plain = (_parsed(item) for item in (content, rendered("x", ReportFormat.JUNIT)))
        assert [one.tag for one in root.iter()] == [one.tag for one in plain.iter()]
        assert [sorted(one.attrib) for one in root.iter()] == [sorted(one.attrib) for one in plain.iter()]
        values = [value for one in root.iter() for value in (*one.attrib.values(), one.text or "")]
        assert not invisible("".join(values))
        assert max(map(len, values)) < 10 * LONGEST_SHOWN
        file = tmp_path / "parity-report.xml"
        file.write_text(content)
        assert len([case for suite in JUnitXml.fromfile(str(file)) for case in suite]) == 5

    def test_of_a_terminal_holds_it_as_text(
        self, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / REPORT_FILES[0]).write_bytes(render(with_text(text), ReportFormat.JSON))
        assert main(["backfill", "report", "--in", str(tmp_path), "--format", "text"]) == 0
        shown = capsys.readouterr().out
        assert not invisible(shown)
        assert len(shown) < 20 * LONGEST_SHOWN


@cache
def _page(evil: str, parser: str) -> str:
    text = rendered(evil, ReportFormat.MARKDOWN)
    if parser == "mistune":
        return str(mistune.create_markdown(plugins=["table", "url", "strikethrough"])(text))
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


def _parsed(content: str) -> ET.Element:
    return ET.fromstring(content)  # noqa: S314  # made a moment ago


def test_nothing_says_of_a_text_that_it_is_markup() -> None:
    package = Path(str(files("twinstore_backfill")))
    sources = [*package.rglob("*.py"), *package.rglob("*.html")]
    told = re.compile(r"\bMarkup\(|\|\s*safe\b|\bautoescape\s+(false|off)|autoescape=(?!True)")
    assert [path.name for path in sources if told.search(path.read_text())] == []
    assert len(list(package.rglob("*.html"))) == 4


class TestTwoReadersOfJunit:
    """What programs that show the tests of a pipeline make of the file."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "parity-report.xml"
        path.write_bytes(render(report(evil="x"), ReportFormat.JUNIT))
        return path

    def test_find_the_same_cases_and_outcomes(self, file: Path) -> None:
        first = JUnitXml.fromfile(str(file))
        cases = [(suite.name, case.name) for suite in first for case in suite]
        failed = [case.name for suite in first for case in suite if case.result and not case.is_skipped]
        second = Junit(filename=str(file))
        assert [(suite.name, case.name) for suite in second for case in suite.all()] == cases
        assert [case.name for suite in second for case in suite.failed()] == failed
        assert failed == ["tenant x: counts", "tenant x: content", "C2 content", "C3 mode"]

    def test_find_when_where_and_of_what(self, file: Path) -> None:
        suites = list(JUnitXml.fromfile(str(file)))
        assert {(suite.timestamp, suite.hostname) for suite in suites} == {("2025-10-26T14:05:00", "here")}
        assert suites[-1].time == 1.5
        one = {item.name: item.value for item in suites[-1].properties()}  # type: ignore[no-untyped-call]
        two: Any = {item.name: item.value for item in Junit(filename=str(file)).suites[-1].properties}
        assert one == two
        assert (one["from"], one["to"], one["verdict"]) == ("Mongo", "Postgres", "FAIL")

    def test_find_parts_in_the_order_that_schemas_ask_for(self, file: Path) -> None:
        order = ["properties", "testcase", "system-out", "system-err"]
        for suite in _parsed(file.read_text()):
            places = [order.index(part.tag) for part in suite]
            assert places == sorted(places)
