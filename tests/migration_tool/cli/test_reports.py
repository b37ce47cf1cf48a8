"""The four renderings of a parity report."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, cast
from xml.etree import ElementTree as ET

import orjson
import pydantic
import pytest
from typing_extensions import override

from twinstore.errors import ValidationError
from twinstore.fast.library import SWITCH
from twinstore_backfill.cli.copying import copy_texts
from twinstore_backfill.cli.verifying import report_texts
from twinstore_backfill.copy.report import CopyResult, Totals, copy_report
from twinstore_backfill.report.fast_path import FastPathReport, fast_path_report
from twinstore_backfill.report.model import (
    Check,
    Counts,
    Differing,
    DifferingList,
    EntityReport,
    Envelope,
    Equivalence,
    FieldReport,
    FindingGroup,
    KeyList,
    LeftOut,
    Named,
    ParityReport,
    RangeReport,
    SideDigest,
    SideReport,
    SubsetReport,
    TenantReport,
    Tool,
    parse_report,
)
from twinstore_backfill.report.writing import ReportFormat, render, write_reports

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore_backfill.report.model import Verdict
    from twinstore_backfill.stores import Store

EVIL = "<script>alert('x')</script> & | `co\x1bde`\n# \"q\""
SOURCE = SideDigest(count=3, xor="0" * 31 + "1", sum="0" * 31 + "2")
TARGET = SideDigest(count=3, xor="f" * 32, sum="e" * 32)
COUNTS = Counts(equal=1, missing=1, extra=1, different=1)


def entity(evil: str) -> EntityReport:
    different = Differing(
        key=("changed",),
        tenant=evil,
        source_digest="sha256:" + "a" * 64,
        target_digest="sha256:" + "b" * 64,
        paths=("doc.stats.completed", f'doc["{evil}"]'),
        path_count=5,
    )
    tenant = TenantReport(
        tenant=evil, stored_source=3, stored_target=4, source=SOURCE, target=TARGET, counts=COUNTS
    )
    return EntityReport(
        entity="runs",
        group="job_history",
        result="fail",
        counts=COUNTS,
        tenants=(tenant,),
        ranges=(
            RangeReport(tenant=None, lower=None, upper=(evil,), source=SOURCE, target=TARGET, equal=False),
        ),
        missing=KeyList(count=1, shown=(Named(key=("gone", evil), tenant=evil),)),
        extra=KeyList(count=150, shown=(Named(key=None, tenant=evil),)),
        different=DifferingList(count=1, shown=(different,)),
    )


def report(verdict: Verdict = "FAIL", *, evil: str = EVIL) -> ParityReport:
    return ParityReport(
        envelope=Envelope(
            generated_at="2025-10-26T14:05:00+00:00",
            host="here",
            as_of="now",
            seconds=1.5,
            fast_path=FastPathReport(state="off", reason=evil),
        ),
        tool=Tool(name="twinstore", version="0.1.0", checksum="sha256:00"),
        module="scheduler",
        mode="full",
        seed=None,
        sample_size=None,
        as_of=None,
        entities_asked=(),
        tenants_asked=(evil,),
        subset=SubsetReport(key_from=(evil,)),
        source=SideReport(backend="Mongo", identity="mongo://host/db", server_version="6.0.5"),
        target=SideReport(backend="Postgres", identity="postgres://host/db", server_version="18.6"),
        switch="Mongo",
        verdict=verdict,
        exit_code=1,
        cutover_ready=False,
        reasons=(f"C2 content: {evil}",),
        next_step="Look.",
        documents_equal=1,
        approval=None,
        checks=(
            Check(id="C2", title="content", result="fail", summary="compared", count=1, findings=(evil,)),
            Check(id="C3", title="mode", result="inconclusive", summary="sampled"),
            Check(id="C1", title="counts", result="skipped", summary="approved"),
        ),
        groups=(FindingGroup(name="job_history", entities=("runs",), result="fail"),),
        equivalences=(Equivalence(name="text_timestamp", documents=3),),
        entities=(entity(evil),),
    )


def alike(count: int) -> ParityReport:
    """Return a report of this many documents that differ in the same field."""
    (changed,) = entity("x").different.shown
    shown = tuple(
        changed.model_copy(
            update={"key": (f"key-{number:03}",), "paths": ("doc.stats.completed",), "path_count": 1}
        )
        for number in range(min(count, 100))
    )
    runs = EntityReport(
        entity="runs",
        group="job_history",
        result="fail",
        counts=Counts(different=count),
        tenants=(),
        ranges=(),
        different=DifferingList(count=count, shown=shown),
        fields=(FieldReport(kind="different", path="doc.stats.completed", documents=count),),
    )
    return report(evil="x").model_copy(update={"entities": (runs,)})


class Page(HTMLParser):
    """Collects tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "link", "br", "img"}:
            self.open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.text += "\n"

    @override
    def handle_data(self, data: str) -> None:
        self.text += data


def rendered_evil() -> str:
    """Return the page of a report whose every text is hostile."""
    return render(report(evil="</script><script>alert(1)</script>"), ReportFormat.HTML).decode()


class TestHtml:
    def test_names_every_difference_with_its_paths(self) -> None:
        text = Page(render(report(), ReportFormat.HTML).decode()).text
        for expected in ("FAIL", "changed", "doc.stats.completed", "and 3 more", "gone", "(no usable key)"):
            assert expected in text

    def test_stands_alone_and_runs_only_its_own_script(self) -> None:
        content = render(report(evil="x"), ReportFormat.HTML).decode()
        page = Page(content)
        assert not {"link", "iframe", "img", "object"} & set(page.tags)
        # The script is the same in each report, so nothing of a report is in it.
        scripts = [
            re.findall(r"<script>.*?</script>", text, re.DOTALL) for text in (content, rendered_evil())
        ]
        assert scripts[0] == scripts[1]
        assert len(scripts[0]) == 1
        names = [name for name, _ in page.attributes]
        assert not [name for name in names if name in {"src", "action"} or name.startswith("on")]
        # Nothing but jumps inside the page, each to a section that is there.
        jumps = {value for name, value in page.attributes if name == "href"}
        assert jumps <= {f"#{value}" for name, value in page.attributes if name == "id"}
        assert "http" not in content
        assert "url(" not in content

    def test_what_a_chart_shows_is_next_to_it_as_text(self) -> None:
        page = Page(render(report(), ReportFormat.HTML).decode())
        assert ("aria-hidden", "true") in page.attributes
        (bars,) = re.findall(r"Each bar is all.*?(?=What was compared|Groups)", page.text, re.DOTALL)
        said = ["runs", "fail", "1 equal", "1 missing", "1 extra", "1 different"]
        assert [line.strip() for line in bars.splitlines() if line.strip()][1:7] == said

    def test_what_many_have_in_common_is_one_line_and_the_rest_is_where_all_are(self) -> None:
        page = Page(render(alike(1000), ReportFormat.HTML).decode())
        words = " ".join(page.text.split())
        assert (
            "runs: 1,000 different kind field or place documents different doc.stats.completed 1,000" in words
        )
        assert "Keys: 100 of 1,000 different" in words
        assert "… and 900 more: see differences.ndjson." in words
        assert words.index("Checks") < words.index("What differs") < words.index("key-000")

    def test_has_landmarks_headings_in_order_and_a_name_for_what_scrolls(self) -> None:
        content = render(report(evil="x"), ReportFormat.HTML).decode()
        page = Page(content)
        assert [tag for tag in page.tags if tag in {"header", "nav", "main", "footer"}] == [
            "header",
            "nav",
            "main",
            "footer",
        ]
        assert page.tags[0] == "html"
        assert ("lang", "en") in page.attributes
        assert content.startswith("<!doctype html>")
        assert "<title>FAIL: parity of scheduler</title>" in content
        levels = [int(tag[1]) for tag in page.tags if re.fullmatch(r"h\d", tag)]
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert page.tags.count("th") == [name for name, _ in page.attributes].count("scope")
        regions = re.findall(r'<div class="scroll"[^>]*>', content)
        assert all('role="group" aria-label="' in region and 'tabindex="0"' in region for region in regions)

    def test_works_in_the_dark_and_on_paper(self) -> None:
        style = render(report(), ReportFormat.HTML).decode()
        assert "prefers-color-scheme: dark" in style
        assert "@media print" in style
        # Nothing moves, so no reader needs reduced motion.
        assert not re.search(r"\b(animation|transition)\b", style)


class TestJunit:
    def parsed(self, evil: str = EVIL) -> ET.Element:
        return ET.fromstring(render(report(evil=evil), ReportFormat.JUNIT))  # noqa: S314  # made a moment ago

    def test_is_valid_for_ci_and_counts_its_cases(self) -> None:
        root = self.parsed()
        assert [suite.get("name") for suite in root] == ["scheduler.runs", "scheduler.checks"]
        for suite in root:
            cases = suite.findall("testcase")
            assert suite.get("tests") == str(len(cases))
            assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
            assert all(case.get("classname") and case.get("name") for case in cases)
        totals = [root.get(name) for name in ("tests", "failures", "errors", "skipped")]
        assert totals == ["5", "3", "1", "1"]

    def test_failures_name_keys_and_paths(self) -> None:
        texts = "\n".join(failure.text or "" for failure in self.parsed("acme").iter("failure"))
        assert 'different changed: doc.stats.completed, doc["acme"] and 3 more' in texts
        assert "missing gone / acme: in source only" in texts

    def test_inconclusive_is_not_green(self) -> None:
        errors = [case for case in self.parsed().iter("testcase") if case.find("error") is not None]
        assert [case.get("name") for case in errors] == ["C3 mode"]


class TestMarkdown:
    def test_names_every_difference_with_its_paths(self) -> None:
        text = render(report(evil="acme"), ReportFormat.MARKDOWN).decode()
        assert text.startswith("# FAIL: parity of scheduler\n")
        assert "| different | changed | acme | doc.stats.completed, " in text
        assert "| missing | gone / acme | acme | in source only |" in text


def test_json_survives_the_way_to_disk_and_back(tmp_path: Path) -> None:
    write_reports(report(), tmp_path)
    written = (tmp_path / "parity-report.json").read_bytes()
    assert parse_report(written, "report") == report()
    assert render(parse_report(written, "report"), ReportFormat.JSON) == written
    suffixes = sorted(path.suffix for path in tmp_path.iterdir())
    assert suffixes == [".html", ".json", ".md", ".xml"]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", orjson.dumps({"format": "twinstore.parity-report@9"})]
)
def test_something_else_is_refused_with_a_remedy(content: bytes) -> None:
    with pytest.raises(ValidationError, match=r"old.json is not a parity report .*backfill verify --out"):
        parse_report(content, "old.json")


def test_a_report_whose_exit_code_contradicts_its_verdict_cannot_be() -> None:
    with pytest.raises(pydantic.ValidationError, match="does not belong to the verdict PASS"):
        report("PASS")


class TestOwners:
    """Every rendering separates rows without tenant from rows whose tenant is unknown."""

    @pytest.fixture(params=ReportFormat, ids=str)
    def rendered(self, request: pytest.FixtureRequest) -> str:
        whole = report(evil="x")
        (one,) = whole.entities
        tenants = tuple(one.tenants[0].model_copy(update={"tenant": label}) for label in ("", ":none", "x"))
        changed = one.model_copy(update={"tenants": tenants})
        shown = whole.model_copy(update={"entities": (changed,)})
        return render(shown, request.param).decode().replace("\\", "")

    def test_are_named_separately(self, rendered: str) -> None:
        texts = ("(no tenant)", "(unknown tenant)")
        labels = ('"tenant": ":none"', '"tenant": ""')
        is_json = rendered.startswith("{")
        assert [text in rendered for text in texts] == [not is_json] * 2
        assert [label in rendered for label in labels] == [is_json] * 2


class TestPlaces:
    def test_people_are_shown_the_place_and_programs_both(self) -> None:
        source = SideReport(
            backend="Mongo", identity="6f2c/db", place="Mongo host/db", server_version="6.0.5"
        )
        shown = report().model_copy(update={"source": source})
        assert "Mongo host/db (server 6.0.5)" in render(shown, ReportFormat.MARKDOWN).decode().replace(
            "\\", ""
        )
        assert parse_report(render(shown, ReportFormat.JSON), "it").source == source

    def test_a_report_of_an_earlier_release_has_its_place_as_identity(self) -> None:
        assert "mongo://host/db (server 6.0.5)" in render(report(), ReportFormat.HTML).decode()


@pytest.mark.parametrize("output", [ReportFormat.MARKDOWN, ReportFormat.HTML])
def test_what_was_ignored_is_not_said_to_be_equal_after_normalisation(output: ReportFormat) -> None:
    found = (Equivalence(name="ignored_field", documents=7), Equivalence(name="whitespace", documents=3))
    both = report(evil="x").model_copy(update={"equivalences": found})
    text = render(both, output).decode()
    if output is ReportFormat.HTML:
        text = Page(text).text
    text = text.replace("\\", "")
    normalised, ignored = (
        text.rindex("Equal after normalisation"),
        text.rindex("Fields that were not compared"),
    )
    assert normalised < text.index("whitespace") < ignored < text.index("ignored_field")
    alone = render(both.model_copy(update={"equivalences": found[:1]}), output).decode()
    assert "normalisation" not in alone


def test_what_is_not_compared_is_said_in_every_text() -> None:
    item = LeftOut(entity="workers", why="left out", source={":none": 2, "x": 1}, target={})
    shown = report(evil="x").model_copy(update={"left_out": (item,)})
    for output in (ReportFormat.MARKDOWN, ReportFormat.HTML):
        text = render(shown, output).decode()
        assert "workers: skipped; 3 rows in source, 0 in target" in text
    assert parse_report(render(shown, ReportFormat.JSON), "it").left_out == (item,)


NATIVE = FastPathReport(state="native", rows=199_600, of=200_000)
SAID = "fast path: native, 99.8 % of 200,000 rows"


@pytest.mark.parametrize(
    ("rows", "of", "said"),
    [
        (0, 0, "native, this command read no rows"),
        (1, 1, "native, 100 % of 1 row"),
        (0, 8, "native, 0 % of 8 rows"),
        (200_000, 200_000, "native, 100 % of 200,000 rows"),
        (199_999, 200_000, "native, 99.9 % of 200,000 rows"),
        (1, 200_000, "native, 0.1 % of 200,000 rows"),
    ],
)
def test_the_share_is_never_rounded_to_all_or_nothing(rows: int, of: int, said: str) -> None:
    assert str(FastPathReport(state="native", rows=rows, of=of)) == f"fast path: {said}"


def test_why_it_was_off_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    found = fast_path_report(0, 5)
    assert (found.state, found.of) == ("off", 5)
    assert str(found) == f"fast path: off ({SWITCH}=off)"


def verified(found: FastPathReport | None) -> ParityReport:
    made = report(evil="x")
    return made.model_copy(update={"envelope": made.envelope.model_copy(update={"fast_path": found})})


@pytest.mark.parametrize("form", [ReportFormat.MARKDOWN, ReportFormat.HTML])
def test_a_verification_says_it_to_people(form: ReportFormat) -> None:
    assert f"; {SAID}." in render(verified(NATIVE), form).decode()
    assert "fast path" not in render(verified(None), form).decode()


def test_a_verification_says_it_on_the_terminal() -> None:
    assert SAID in map(str, report_texts(verified(NATIVE), None))


def test_two_reports_of_the_same_data_differ_by_it_in_the_envelope_only() -> None:
    one, other = (verified(found).model_dump(mode="json") for found in (NATIVE, None))
    assert one["envelope"]["fast_path"] == {"state": "native", "reason": "", "rows": 199_600, "of": 200_000}
    del one["envelope"], other["envelope"]
    assert one == other


class Described:
    """As much of a store as a report shows."""

    def described(self) -> dict[str, str]:
        return {"backend": "memory", "identity": "one", "place": "here", "server_version": "1"}


def test_a_copy_says_it_in_its_report_and_on_the_terminal(tmp_path: Path) -> None:
    now, store = datetime.now(UTC), cast("Store", Described())
    plain = CopyResult(
        executed=True,
        complete=True,
        source=store,
        target=store,
        entities=(),
        totals=Totals(),
        as_of=now,
        started=now,
    )
    made = replace(plain, fast_path=NATIVE)
    assert envelope(made)["fast_path"] == NATIVE.model_dump()
    assert SAID in map(str, copy_texts(copy_report(made), tmp_path))
    assert envelope(plain)["fast_path"] is None


def envelope(result: CopyResult) -> dict[str, object]:
    return cast("dict[str, object]", copy_report(result).document()["envelope"])
