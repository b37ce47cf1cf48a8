"""``twinstore backfill status --watch``: one job of a ledger, shown until it ends."""

from __future__ import annotations

import sys
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from twinstore_backfill.cli.output import cause_texts, emit_lines, table, visible_lines
from twinstore_backfill.copy.rates import EntityProgress, Job, Rates, has_ended, state_text, worker_texts
from twinstore_backfill.copy.status import latest_job, quarantine_reasons, status_document
from twinstore_backfill.report.texts import about

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.report.model import CauseReport
    from twinstore_backfill.stores import Store

COLUMNS: Final = ("entity", "ranges", "of", "rows read", "per second", "time left", "quarantined")
# Seconds between two looks; a log gets lines more rarely.
INTERVAL: Final = 1.0
LOG_INTERVAL: Final = 5.0
# Of those that fit on a screen.
MOST_WORKERS: Final = 20


def watch(store: Store, given: str | None, stop: StopSwitch) -> None:
    """Show a job each second until it ends, is stopped or loses its last worker, or until a signal.

    Raises:
        UnknownJobError: there is no such job.
    """
    name, rates, logged = latest_job(store, given).id, Rates(), float("-inf")
    terminal = sys.stdout.isatty()
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while not stop.requested:
            began = monotonic()
            (job,) = status_document(store, name)["jobs"]
            rates.add(job, began)
            ended = has_ended(job)
            if terminal:
                texts = watch_texts(job, rates, quarantine_reasons(store, name))
                live.update(Group(*texts), refresh=True)
            elif ended or began - logged >= LOG_INTERVAL:
                emit_lines(log_lines(job, rates))
                logged = began
            if ended:
                return
            # A large ledger must not be read all the time.
            stop.wait(max(INTERVAL, 4 * (monotonic() - began)))


def watch_texts(job: Job, rates: Rates, causes: Sequence[CauseReport]) -> Iterator[RenderableType]:
    """Yield what a terminal shows of a job."""
    yield Text(visible_lines(f"{job['id']}: {state_text(job)}, generation {job['generation']}"))
    rows = (_row(item, rates) for item in job["entities"])
    # Neither rows nor their rate are known of a job with too many ranges to read.
    yield table(
        COLUMNS, [(*row[:3], *(row[3:5] if row[3] is not None else ("", "")), *row[5:]) for row in rows]
    )
    yield from (Text(visible_lines(f"worker {text}")) for text in islice(worker_texts(job), MOST_WORKERS))
    for text in cause_texts(causes, "twinstore backfill quarantine list"):
        yield Text(visible_lines(text)) if isinstance(text, str) else text


def log_lines(job: Job, rates: Rates) -> Iterator[str]:
    """Yield what a log shows of a job: a line of each entity that has begun."""
    for item in job["entities"]:
        entity, live, every, read, rate, left, quarantined = _row(item, rates)
        if read or live:
            rows = "" if read is None else f"{read:,} rows, {rate:,}/s, "
            yield (
                f"{entity}: {live:,} of {every:,} ranges, {rows}"
                f"{left or 'no estimate'}, {quarantined:,} quarantined"
            )
    yield f"{job['id']}: {state_text(job)}"


def _row(item: Job, rates: Rates) -> tuple[str, int, int, int | None, int, str, int]:
    part = EntityProgress.of(item, rates)
    left = "" if part.seconds_left is None else about(part.seconds_left)
    return part.entity, part.live, part.ranges, part.read, round(part.rate), left, part.quarantined
