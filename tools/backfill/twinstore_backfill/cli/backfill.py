"""``twinstore backfill``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from twinstore_backfill.cli.invocation import common
from twinstore_backfill.cli.job_file import defaults
from twinstore_backfill.cli.lazy_commands import CommandEntry, lazy_group
from twinstore_backfill.rules.job_file import read_job_file
from twinstore_backfill.rules.kinds import ACCEPTABLE, SCHEMA

JobFileOption = Annotated[
    Path | None,
    typer.Option(
        "--job-file", help="TOML file with options of the commands, and rules for what changes on the way."
    ),
]

# In the order in which a migration needs them.
COMMANDS: Final[dict[str, CommandEntry]] = {
    "run": ("run:run", "Plan, dry run, copy and verify; stop at what a person must decide."),
    "plan": ("copy:plan", "Show what a copy would do, refuse or change, and why. Writes nothing."),
    "copy": ("copy:copy", "Copy a module from one store to another. Without --execute nothing is written."),
    "work": ("work:work", "Join a copy that another process began. Without --execute it only says which."),
    "verify": ("verify:verify", "Prove that two stores hold the same. Stop writers first."),
    "diff": ("verify:diff", "Compare one row as a verification does, and show where it differs."),
    "recheck": ("repair:recheck", "Compare only the rows that a verification reported."),
    "repair": ("repair:repair", "Copy the rows that a verification reported again, and compare them."),
    "quarantine": ("quarantine:app", "Show documents that could not be copied, and retry them."),
    "status": ("copy:status", "Show the progress of the copies into a target, and their workers."),
    "serve": ("serve:serve", "Show the jobs of a ledger in browsers, until Ctrl-C. Reads only."),
    "report": ("verify:report", "Print a parity report in another format."),
    "selftest": ("selftest:selftest", "Corrupt a sample in every known way, and count what verify finds."),
    "pause": ("copy:pause", "Pause a running copy after its ranges in progress."),
    "resume": ("copy:resume", "Resume a paused copy."),
    "rate": ("copy:rate", "Change the rate limit of a running copy. Takes effect with the next range."),
}

app = typer.Typer(
    cls=lazy_group(COMMANDS),
    help="Copy a module between two stores and prove that both hold the same.",
    epilog=f"Job files have the JSON Schema twinstore_backfill/rules/{SCHEMA} of the package. Their table "
    f"accept takes these kinds: {', '.join(item.form for item in ACCEPTABLE)}.",
    no_args_is_help=True,
)


@app.callback()
def options(context: typer.Context, job_file: JobFileOption = None) -> None:
    """Take what a job file says as the values of options that are not given."""
    if job_file is not None:
        use_job_file(context, job_file)


def use_job_file(context: typer.Context, job_file: Path) -> None:
    """Take what a job file says in the context of this group."""
    job = read_job_file(job_file)
    commands = dict(_commands(context.command))
    known = {
        name: {text: item.name for text, item in _options(command)} for name, command in commands.items()
    }
    every = [named for command in commands.values() for named in _options(command)]
    flags = {text for text, item in every if getattr(item, "is_flag", False)}
    multiple = {
        name: {text for text, item in _options(command) if getattr(item, "multiple", False)}
        for name, command in commands.items()
    }
    context.default_map = defaults(job, known, flags, multiple)
    common_options = common(context)
    common_options.rules, common_options.field_reasons = job.rules, job.field_reasons


def _commands(group: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # Typer's copy of click is private
    """Yield each command by its name; of a group those that work between two stores, as the others do.

    The rest of a group works on one job, and its options of the same name mean something else.
    """
    commands: Mapping[str, Any] = getattr(group, "commands", {})
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield from (
                (f"{name} {inner}", item)
                for inner, item in _commands(command)
                if "from" in dict(_options(item))
            )
        else:
            yield name, command


def _options(command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # the same
    """Yield the parameters of a command by the names of their options."""
    for item in command.params:
        yield from ((text.lstrip("-"), item) for text in item.opts if not text.startswith("--help"))
