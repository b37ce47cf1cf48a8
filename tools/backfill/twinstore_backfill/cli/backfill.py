"""``twinstore backfill``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from twinstore_backfill.cli.jobfile import defaults, read_job_file
from twinstore_backfill.cli.lazily import group_of
from twinstore_backfill.cli.params import common

__all__ = ["app"]

JobFileOption = Annotated[
    Path | None,
    typer.Option("--job-file", help="TOML file that says what the options of the commands would say."),
]

OURS: Final = "twinstore_backfill.cli"
# In the order in which a migration needs them.
COMMANDS: Final = {
    "plan": f"{OURS}.overviews:plan",
    "copy": f"{OURS}.copying:copy",
    "verify": f"{OURS}.verifying:verify",
    "diff": f"{OURS}.looking:diff",
    "recheck": f"{OURS}.repairing:recheck",
    "repair": f"{OURS}.repairing:repair",
    "quarantine": f"{OURS}.quarantining:app",
    "status": f"{OURS}.overviews:status",
    "report": f"{OURS}.reporting:report",
    "selftest": f"{OURS}.selftest:selftest",
    "pause": f"{OURS}.controlling:pause",
    "resume": f"{OURS}.controlling:resume",
    "rate": f"{OURS}.controlling:rate",
}

app = typer.Typer(
    cls=group_of(COMMANDS),
    help="Copy a module between two stores and prove that both hold the same.",
    no_args_is_help=True,
)


@app.callback()
def options(context: typer.Context, job_file: JobFileOption = None) -> None:
    """Take what a job file says as the values of options that are not given."""
    if job_file is None:
        return
    job = read_job_file(job_file)
    context.default_map = defaults(job, dict(_parameters(context)), set(_flags(context)))
    context.obj = replace(common(context), reasons=job.reasons, field_reasons=job.field_reasons)


def _parameters(context: typer.Context) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each command with the names of its parameters by those of its options."""
    commands: Mapping[str, Any] = getattr(context.command, "commands", {})
    for name, command in commands.items():
        options = {text.lstrip("-"): item.name for item in command.params for text in item.opts}
        if not hasattr(command, "commands"):
            yield name, {text: parameter for text, parameter in options.items() if text != "help"}


def _flags(context: typer.Context) -> Iterator[str]:
    """Yield the options that are on or off, and so may be true in a file."""
    commands: Mapping[str, Any] = getattr(context.command, "commands", {})
    for command in commands.values():
        for item in command.params:
            if getattr(item, "is_flag", False):
                yield from (text.lstrip("-") for text in item.opts)
