"""``twinstore smoke``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from twinstore_backfill.cli.options import Format, OneStore, OutputFormat
from twinstore_backfill.cli.output import emit, table, toned
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.process.stopping import stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from twinstore_backfill.smoke.engine import SmokeReport


LONGEST: Final = 3600


def smoke(  # the options of a command
    one: OneStore,
    tenant: Annotated[
        list[str] | None,
        typer.Option(
            "--tenant",
            help="Tenant whose lists to compare (repeatable). Default: the 10 largest and 10 others.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=1, max=LONGEST, help="Stop starting new steps after this many seconds."
        ),
    ] = 60,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Check a deployed store: roles, schema, lists, locks and states.

    The run happens in a tenant that the command makes up and empties again, also after a failure or a signal;
    rows of other tenants are only read. It ends with 0 where all is well, 1 where a step failed, 2 for wrong
    settings and 4 where the server does not answer.
    """
    from twinstore.access.scope import tenant_argument
    from twinstore_backfill.smoke.engine import SmokeOptions, refused, run_smoke

    name, place = one.resolved()
    driver, _ = place.resolved(name)
    options = SmokeOptions(
        timeout=timedelta(seconds=timeout), tenants=tuple(map(tenant_argument, tenant or ()))
    )
    try:
        with place.opened(name) as store, stop_on_signals() as stop:
            report = run_smoke(store, options, stop)
    except PreflightError as error:
        # A role that no policy binds, or a server that lacks what the driver needs.
        report = refused(name, driver, error)
    emit(output, report.document(), *texts(report))
    if not report.passed:
        raise typer.Exit(Exit.FAILED if report.unreachable else Exit.DIFFERENT)


def texts(report: SmokeReport) -> Iterator[RenderableType]:
    """Yield the verdict, the steps, and what is wrong."""
    from twinstore_backfill.smoke.engine import SHOWN

    verdict = "SMOKE OK" if report.passed else "SMOKE FAILED"
    place = f"{report.module} on {report.store['place']}"
    yield toned(f"{verdict}: {place}", "pass" if report.passed else "fail")
    yield table(
        ("step", "result", "ms", "what"),
        [(step.name, step.result, step.milliseconds, step.summary) for step in report.steps],
    )
    for step in report.steps:
        yield from (f"{step.name}: {problem}" for problem in step.problems[:SHOWN])
        if len(step.problems) > SHOWN:
            yield f"{step.name}: and {len(step.problems) - SHOWN} more."
