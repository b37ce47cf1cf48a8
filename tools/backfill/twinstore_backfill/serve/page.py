"""The page as HTML; its words are in ``templates/``, and its style sheet is that of the reports."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from twinstore_backfill.report.html import (
    BAR,
    MIN_PIECE_WIDTH,
    TONES,
    Bar,
    Column,
    Piece,
    Table,
    environment,
    pieces,
)
from twinstore_backfill.report.texts import SHARES, about, instant_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2 import Environment

Document = dict[str, Any]
PACKAGES: Final = ("twinstore_backfill.serve", "twinstore_backfill.report")


def page(progress: Document, found: Document) -> str:
    """Return the whole page."""
    return _templates().get_template("serve.html").render(_words(progress, found))


def body(progress: Document, found: Document) -> str:
    """Return the part of it that changes."""
    return _templates().get_template("body.html").render(_words(progress, found))


def _words(progress: Document, found: Document) -> Document:
    """Return what the templates show."""
    running = sum(not job["ended"] for job in progress["jobs"])
    state = ("RUNNING", "running") if running else ("IDLE", "skipped")
    return {
        "progress": progress,
        "state": state if progress["answers"] else ("NO ANSWER", "fail"),
        "running": running,
        "answered": instant_text(progress["answered_at"] or "never"),
        "jobs": [_job(job) for job in progress["jobs"]],
        "reports": [_report(item) for item in found["reports"]],
        "unreadable": found["unreadable"],
    }


@cache
def _templates() -> Environment:
    return environment(*PACKAGES)


def _job(job: Document) -> Document:
    facts = {
        "job": job["id"],
        "from": job["source"],
        "started": instant_text(job["started_at"]),
        "generation": f"{job['generation']:,}",
        "holder": job["holder"],
        "limit": job["max_rate"] and f"{job['max_rate']:,} documents per second",
        "failed ranges": job["failed_ranges"] and f"{job['failed_ranges']:,}",
    }
    rows = [(item["entity"], item["cause"], f"{item['documents']:,}") for item in job["causes"]]
    columns = tuple(map(Column, ("entity", "cause", "documents")))
    return {
        "id": job["id"],
        "module": job["module"],
        "said": job["said"],
        "tone": _tone(job),
        "facts": {name: value for name, value in facts.items() if value},
        "entities": [(_bar(item), _texts(item)) for item in job["entities"] if not _is_empty(item)],
        "empty": [item["entity"] for item in job["entities"] if _is_empty(item)],
        "causes": Table("Quarantine", columns, rows) if rows else None,
    }


def _tone(job: Document) -> str:
    if not job["ended"]:
        return "running"
    return "pass" if job["state"] == "complete" else "fail"


def _is_empty(item: Document) -> bool:
    return item["read"] is not None and not item["read"] and item["ranges_done"] == item["ranges"]


def _bar(item: Document) -> Bar:
    done, ranges = item["ranges_done"], item["ranges"]
    # The last range is seen as well as the first.
    width = BAR if done == ranges else min(BAR * done // ranges, BAR - MIN_PIECE_WIDTH)
    return Bar(item["entity"], f"{done:,} of {ranges:,} ranges", (Piece("equal", "", 0, width),), BAR)


def _texts(item: Document) -> Iterator[str]:
    if not item["ranges_done"]:
        yield "no range is done yet"
    elif item["read"] is not None:
        yield f"{item['read']:,} rows read"
    if item["rate"]:
        yield f"{item['rate']:,.0f} per second"
    if item["rate"] is not None and item["ranges_done"]:
        yield "no estimate" if item["seconds_left"] is None else f"{about(item['seconds_left'])} left"
    if item["quarantined"]:
        yield f"{item['quarantined']:,} quarantined"


def _report(report: Document) -> Document:
    now = {"generated_at": report["envelope"]["generated_at"], "verdict": report["verdict"]}
    points = [{**now, **report["documents"]}, *reversed(report["envelope"]["trend"])]
    return {
        "name": report["report"],
        "verdict": report["verdict"],
        "tone": TONES.get(report["verdict"], "pass"),
        "note": f"{report['module']}, {report['mode']}: from {report['source']['place'] or 'nothing'} "
        f"to {report['target']['place']}",
        "bars": [_point(point) for point in points],
    }


def _point(point: Document) -> Bar:
    parts = [(name, point[name], f"{point[name]:,} {name}") for name in SHARES]
    verdict = point["verdict"]
    found, width = pieces(parts, sum(count for _, count, _ in parts))
    return Bar(instant_text(point["generated_at"]), TONES.get(verdict, "pass"), found, width)
