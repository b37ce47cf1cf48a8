"""``twinstore config``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Final

import typer

from twinstore.errors import ConfigurationError
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.cli.params import Backend, Format, ModuleName, OutputFormat, common
from twinstore_backfill.outcome import Exit
from twinstore_backfill.stores import chosen_module, open_store, preflight

__all__ = ["app"]

VARIABLE: Final = "environment variable "
WORDS: Final[Mapping[object, str]] = {True: "yes", False: "no", None: "no limit of its own"}

app = typer.Typer(help="Show the settings, or check that they work.", no_args_is_help=True)


@app.command()
def show(context: typer.Context, output: OutputFormat = Format.TEXT) -> None:
    """Print every setting with its default and its source, without secrets, and check the values."""
    settings = common(context).settings()
    described, problems = settings.describe(), settings.problems()
    rows = [(key, _text(entry["value"]), _source(key, entry["source"])) for key, entry in described.items()]
    emit(
        output,
        {"settings": described, "problems": problems},
        table(("setting", "value", "source"), rows),
        *([settings.note] if settings.note else []),
    )
    if problems and output is Format.JSON:
        raise typer.Exit(Exit.USAGE)
    if problems:
        raise ConfigurationError(" ".join(problems))


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
            f"{name} on {store.bulk.place}: ready.",
            table(("capability", "value"), list(_capability_rows(capabilities))),
            *([f"For a capability that it lacks: {remedy}"] if (remedy := capabilities["remedy"]) else []),
        )


def _capability_rows(capabilities: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in capabilities.items():
        if name != "remedy" and value != "":
            plain = isinstance(value, bool) or value is None
            yield name.replace("_", " "), WORDS[value] if plain else str(value)


def _source(key: str, source: object) -> str:
    """Return where a value came from; a variable that is the key itself need not be repeated."""
    text = str(source)
    variable = text.removeprefix(VARIABLE).replace("__", ":")
    return VARIABLE.split(" ", maxsplit=1)[0] if variable.casefold() == key.casefold() else text


def _text(value: object) -> str:
    """Return a value as a settings file spells it."""
    if value is None or value == {}:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
