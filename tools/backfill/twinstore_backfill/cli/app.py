"""The command tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinstore_backfill.cli import backends, backfill, config, demo, dev, migrate, purge
from twinstore_backfill.cli.params import CommonOptions
from twinstore_embedded.cli import down, up

__all__ = ["app"]

app = typer.Typer(
    name="twinstore",
    help="What a service stores in MongoDB or PostgreSQL: move it from one to the other, with proof.",
    epilog="Exit codes: 0 done or equal, 1 differences or conflicts, 2 usage or configuration, "
    "3 inconclusive, 4 failed but resumable, 6 pre-flight refused, 7 another worker holds the lease, "
    "130/143 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    # Its tracebacks can show local variables, and those hold documents and passwords.
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    context: typer.Context,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", help="Settings file (JSON, YAML or TOML). Default: TWINSTORE_CONFIG."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show log and traceback of a failure.")] = False,  # noqa: FBT002  # Typer makes a flag of it
) -> None:
    """Keep what stands in front of the command."""
    context.obj = CommonOptions(config_file, debug)


# In the order in which somebody who is new meets them.
app.add_typer(backfill.app, name="backfill")
app.add_typer(migrate.app, name="migrate")
app.add_typer(config.app, name="config")
app.command()(backends.backends)
app.command()(purge.purge)
app.command()(demo.demo)
app.command()(up)
app.command()(down)
app.add_typer(dev.app, name="dev")
