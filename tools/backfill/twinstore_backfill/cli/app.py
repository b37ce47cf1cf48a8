"""The command tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from twinstore_backfill.cli.lazily import group_of
from twinstore_backfill.cli.params import CommonOptions

__all__ = ["app"]

OURS: Final = "twinstore_backfill.cli"
# In the order in which somebody who is new meets them.
COMMANDS: Final = {
    "backfill": f"{OURS}.backfill:app",
    "migrate": f"{OURS}.migrate:app",
    "config": f"{OURS}.config:app",
    "backends": f"{OURS}.backends:backends",
    "smoke": f"{OURS}.smoke:smoke",
    "purge": f"{OURS}.purge:purge",
    "demo": f"{OURS}.demo:demo",
    "up": "twinstore_embedded.cli:up",
    "down": "twinstore_embedded.cli:down",
    "dev": f"{OURS}.dev:app",
}

app = typer.Typer(
    name="twinstore",
    cls=group_of(COMMANDS),
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
    env_file: Annotated[
        Path | None,
        typer.Option("--env-file", help="File of lines NAME=value. Default: TWINSTORE_ENV_FILE."),
    ] = None,
    secrets_dir: Annotated[
        Path | None,
        typer.Option(
            "--secrets-dir", help="Directory with a file for each secret. Default: TWINSTORE_SECRETS_DIR."
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show log and traceback of a failure.")] = False,  # noqa: FBT002  # Typer makes a flag of it
) -> None:
    """Keep what stands in front of the command."""
    context.obj = CommonOptions(config_file, debug, env_file, secrets_dir)
