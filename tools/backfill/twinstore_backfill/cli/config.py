"""``twinstore config``."""

from __future__ import annotations

from dataclasses import asdict

import typer

from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.cli.params import Backend, Format, ModuleName, OutputFormat, common
from twinstore_backfill.stores import chosen_module, open_store, preflight

__all__ = ["app"]

app = typer.Typer(help="Show the settings, or check that they work.", no_args_is_help=True)


@app.command()
def show(context: typer.Context, output: OutputFormat = Format.TEXT) -> None:
    """Print every setting with its source, without secrets."""
    described = common(context).settings().describe()
    rows = [(key, entry["value"], entry["source"]) for key, entry in described.items()]
    shown = [(key, str(value), source) for key, value, source in rows]
    emit(output, {"settings": described}, table(("setting", "value", "source"), shown))


@app.command()
def check(
    context: typer.Context,
    module: ModuleName = None,
    backend: Backend = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Connect, check server, roles and schema, and print what the driver can do there."""
    settings = common(context).settings()
    name = chosen_module(module, settings)
    with open_store(name, backend or settings.backend_name(name), settings) as store:
        capabilities = asdict(store.storage.capabilities)
        preflight(store.storage.check_ready)
        # A copy into this store connects with the owner role too, where the driver has one.
        preflight(store.storage.initializer.status)
        document = {"module": name, "ready": True, **store.described(), "capabilities": capabilities}
        emit(
            output,
            document,
            f"{name} on {store.backend} at {store.bulk.place}: ready.",
            table(
                ("capability", "value"),
                [(key, str(value)) for key, value in capabilities.items() if value != ""],
            ),
        )
