"""The command tree."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from twinstore_backfill.cli.lazy_commands import CommandEntry, lazy_group
from twinstore_backfill.cli.version import VersionOption

# In the order in which a new user needs them.
COMMANDS: Final[dict[str, CommandEntry]] = {
    "init": ("init:init", "Ask for two stores, test them, and write settings and a job file."),
    "backfill": ("backfill:app", "Copy a module between two stores and prove that both hold the same."),
    "migrate": ("migrate:app", "Create, upgrade and check the schema of a module."),
    "config": ("config:app", "Show the settings, or check that they work."),
    "backends": ("config:backends", "List the installed drivers, without importing their client libraries."),
    "doctor": ("config:doctor", "Show what is installed, the fast path, and what databases give sessions."),
    "smoke": ("smoke:smoke", "Check a deployed store: roles, schema, lists, locks and states."),
    "purge": ("repair:purge", "Remove by hand what has outlived its retention, such as finished runs."),
    "demo": (
        "demo:demo",
        "Move a live service from MongoDB to PostgreSQL, and prove both equal.",
    ),
    "up": ("twinstore_embedded.cli:up", "Start a real MongoDB and a real PostgreSQL for development."),
    "down": ("twinstore_embedded.cli:down", "Stop the servers that `twinstore up` started. The data stays."),
    "dev": ("dev:app", "Tools for the author of a module, in a checkout of it."),
}

app = typer.Typer(
    name="twinstore",
    cls=lazy_group(COMMANDS, root=True),
    help="Move the data of a service between MongoDB and PostgreSQL, and prove that nothing was lost.",
    epilog="The options above may be at any position. Exit codes: 0 done or equal, 1 differences or "
    "conflicts, 2 usage or configuration, 3 inconclusive, 4 failed but resumable, 6 refused or a decision "
    "needed, 7 another worker holds the lease, 130/143 interrupted.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    # Its tracebacks can show local variables, and those hold documents and passwords.
    pretty_exceptions_enable=False,
)


@app.callback()
def root(version: Annotated[bool, VersionOption] = False) -> None:  # noqa: FBT002  # Typer makes a flag of it
    """Show the versions where they are asked for; the option does so by itself."""
