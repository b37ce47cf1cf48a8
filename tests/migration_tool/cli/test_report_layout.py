"""How reports look in a browser: on a phone, a tablet and a desktop, by day and by night."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.migration_tool.cli.test_hostile_reports import HOSTILE, with_text
from tests.migration_tool.cli.test_reports import alike, report
from tests.support.chromium import measured
from twinstore_backfill.report.writing import ReportFormat, render

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore_backfill.report.model import ParityReport

pytestmark = pytest.mark.chromium

# 720: a desktop of 1440 at 200 %.
WIDTHS: Final = (360, 390, 720, 1440)
SCHEMES: Final = ("light", "dark")
SCREENS: Final = [*((width, "light") for width in WIDTHS), (390, "dark")]
SMALLEST_TEXT: Final = 12
# WCAG 2.2: level AA of contrast, where nothing is large, and of what a finger meets.
CONTRAST: Final = 4.5
TARGET: Final = 24
SCRIPT: Final = """
const page = view.document;
for (const folded of page.querySelectorAll('details')) folded.open = true;
const colour = (text) => {
  const [red, green, blue, alpha = 1] = text.match(/[\\d.]+/g).map(Number);
  return {rgb: [red, green, blue], alpha};
};
const ground = (one) => {
  for (let at = one; at; at = at.parentElement) {
    const {rgb, alpha} = colour(view.getComputedStyle(at).backgroundColor);
    if (alpha === 1) return rgb;
  }
  return [255, 255, 255];
};
const light = (rgb) => {
  const [red, green, blue] = rgb.map((part) => part / 255).map(
    (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (one, other) => {
  const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
};
const width = page.documentElement.clientWidth;
const name = (one) => `${one.tagName}.${one.className?.baseVal ?? one.className}`;
const found = {
  width, content: page.documentElement.scrollWidth, sticking: [], small: [], pale: [], targets: [],
  ground: light(ground(page.body)), verdict: null, overlapping: [],
};
for (const one of page.body.querySelectorAll('*')) {
  const box = one.getBoundingClientRect();
  const style = view.getComputedStyle(one);
  if (!one.closest('.scroll') && (box.right > width + 0.5 || box.left < -0.5)) found.sticking.push(name(one));
  if (one.matches('a, summary') && box.height < TARGET) found.targets.push(name(one));
  const texts = [...one.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
  if (!texts.length) continue;
  if (parseFloat(style.fontSize) < SMALLEST) found.small.push(`${name(one)} ${style.fontSize}`);
  const ratio = contrast(colour(style.color).rgb, ground(one));
  if (ratio < CONTRAST) found.pale.push(`${name(one)} ${ratio.toFixed(2)}`);
}
for (const rect of page.querySelectorAll('rect')) {
  const ratio = contrast(colour(view.getComputedStyle(rect).fill).rgb, ground(page.body));
  if (ratio < 3) found.pale.push(`${name(rect)} ${ratio.toFixed(2)}`);
}
const verdict = page.querySelector('.verdict');
found.verdict = [verdict.textContent, verdict.getBoundingClientRect().bottom];
return found;
"""


def of_verdict(verdict: str) -> ParityReport:
    """Return a report without differences."""
    whole = report(evil="x")
    codes = {"PASS": 0, "PARTIAL": 0, "INCONCLUSIVE": 3}
    return whole.model_copy(update={"verdict": verdict, "exit_code": codes[verdict], "entities": ()})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a browser says of every page at every width by day and by night."""
    reports = {
        **{verdict: of_verdict(verdict) for verdict in ("PASS", "PARTIAL", "INCONCLUSIVE")},
        "FAIL": report(),
        "a thousand alike": alike(1000),
        **{name: with_text(text) for name, text in HOSTILE.items() if name.startswith(("many", "dir"))},
    }
    pages = {name: render(one, ReportFormat.HTML).decode() for name, one in reports.items()}
    directory: Path = tmp_path_factory.mktemp("chromium")
    script = SCRIPT.replace("SMALLEST", str(SMALLEST_TEXT))
    script = script.replace("CONTRAST", str(CONTRAST)).replace("TARGET", str(TARGET))
    return measured(pages, SCREENS, script, directory)


def told(found: dict[str, Any], key: str) -> dict[str, object]:
    """Return, by page, the faults of this kind that the pages report."""
    return {name: page[key] for name, page in found.items() if page[key]}


def test_no_page_is_wider_than_its_screen(found: dict[str, Any]) -> None:
    wide = {name: page["content"] for name, page in found.items() if page["content"] > page["width"]}
    assert (wide, told(found, "sticking")) == ({}, {})
    assert {page["width"] for page in found.values()} == set(WIDTHS)


def test_no_text_is_too_small_to_read(found: dict[str, Any]) -> None:
    assert told(found, "small") == {}


def test_every_text_and_bar_stands_out_by_day_and_by_night(found: dict[str, Any]) -> None:
    assert told(found, "pale") == {}
    grounds = {
        scheme: {page["ground"] for name, page in found.items() if name.endswith(scheme)}
        for scheme in SCHEMES
    }
    assert min(grounds["light"]) > 0.9
    assert max(grounds["dark"]) < 0.1


def test_a_finger_meets_what_it_points_at(found: dict[str, Any]) -> None:
    assert told(found, "targets") == {}


def test_the_verdict_is_the_first_that_is_seen(found: dict[str, Any]) -> None:
    for name, page in found.items():
        verdict, bottom = page["verdict"]
        assert verdict in {"PASS", "PARTIAL", "INCONCLUSIVE", "FAIL"}
        assert bottom < 120, name
