"""``twinstore backfill``."""

from __future__ import annotations

import typer

from twinstore_backfill.cli import copying, looking, overviews, quarantining, repairing, reporting, verifying

__all__ = ["app"]

app = typer.Typer(
    help="Copy a module between two stores and prove that both hold the same.", no_args_is_help=True
)
app.command()(overviews.plan)
app.command()(copying.copy)
app.command()(verifying.verify)
app.command()(looking.diff)
app.command()(repairing.recheck)
app.command()(repairing.repair)
app.add_typer(quarantining.app, name="quarantine")
app.command()(overviews.status)
app.command()(reporting.report)
