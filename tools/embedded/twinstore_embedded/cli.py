"""``twinstore up`` and ``twinstore down``, ready to be registered on a Typer application."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from twinstore.errors import ConfigurationError
from twinstore.runtime.secrets import mask_secret_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore_embedded.mongod import MongoServer
    from twinstore_embedded.postgres import PostgresServer


class ServerChoice(StrEnum):
    """One of the two servers."""

    MONGO = "mongo"
    POSTGRES = "postgres"


class Format(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class ServerLine:
    """One running server."""

    name: str
    port: int
    pid: int
    log: str


@dataclass(frozen=True)
class StartReport:
    """What ``up`` prints."""

    config: str
    servers: list[ServerLine]
    settings: dict[str, str]


DataDir = Annotated[Path, typer.Option("--data-dir", help="Directory of data, state and logs.")]
OnlyServer = Annotated[ServerChoice | None, typer.Option("--only", help="One server instead of both.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="Output format.")]
ShowSecrets = Annotated[bool, typer.Option("--show-secrets", help="Print passwords instead of ***.")]


def up(
    data_dir: DataDir = Path(".twinstore"),
    only: OnlyServer = None,
    output: OutputFormat = Format.TEXT,
    show_secrets: ShowSecrets = False,  # noqa: FBT002  # Typer makes a flag of it
) -> None:
    """Start a real MongoDB and a real PostgreSQL for development.

    Those that run are reused. They listen on 127.0.0.1 only and keep running until `twinstore down`.
    """
    with _extra():
        mongo, postgres, path = _start(data_dir, only)
    report = _report(mongo, postgres, path, show_secrets=show_secrets)
    typer.echo(_json(report) if output is Format.JSON else _text(report, show_secrets=show_secrets))


def down(
    data_dir: DataDir = Path(".twinstore"),
    only: OnlyServer = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Stop the servers that `twinstore up` started. The data stays."""
    with _extra():
        stopped = _stop(data_dir, only)
    if output is Format.JSON:
        typer.echo(_json({"stopped": stopped}))
    elif stopped:
        typer.echo(f"Stopped {' and '.join(stopped)} of {data_dir}. The data stays.")
    else:
        typer.echo(f"Nothing was running in {data_dir}.")


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"The embedded servers need {error.name!r}: pip install 'twinstore[embedded]'."
        raise ConfigurationError(message) from error


def _start(
    data_dir: Path, only: ServerChoice | None
) -> tuple[MongoServer | None, PostgresServer | None, Path]:
    # Imported late: the drivers belong to an extra, and other commands need none of this.
    from twinstore_embedded import appsettings, lifecycle, mongod, postgres  # noqa: PLC0415

    # First, or servers would run that no settings file names.
    appsettings.check_appsettings(data_dir)
    found = mongod.find_mongo(data_dir), postgres.find_postgres_server(data_dir)
    try:
        match only:
            case ServerChoice.MONGO:
                mongod.start_mongo(data_dir)
            case ServerChoice.POSTGRES:
                postgres.start_postgres(data_dir)
            case None:
                lifecycle.start(data_dir)
    except KeyboardInterrupt:
        # Servers that did not run before must not run after a command that did not finish.
        for before, stop in zip(found, (mongod.stop_mongo, postgres.stop_postgres), strict=True):
            if before is None:
                stop(data_dir)
        raise
    # Searched again, because a server that was not requested may run all the same.
    mongo, relational = mongod.find_mongo(data_dir), postgres.find_postgres_server(data_dir)
    return mongo, relational, appsettings.write_appsettings(data_dir, mongo, relational)


def _stop(data_dir: Path, only: ServerChoice | None) -> Sequence[str]:
    from twinstore_embedded import lifecycle, mongod, postgres  # noqa: PLC0415  # see _start

    match only:
        case ServerChoice.MONGO:
            return ["mongo"] if mongod.stop_mongo(data_dir) else []
        case ServerChoice.POSTGRES:
            return ["postgres"] if postgres.stop_postgres(data_dir) else []
        case None:
            return lifecycle.stop(data_dir)


def _report(
    mongo: MongoServer | None, postgres: PostgresServer | None, path: Path, *, show_secrets: bool
) -> StartReport:
    from twinstore_embedded.appsettings import settings_of  # noqa: PLC0415  # see _start

    running = {"MongoDB": mongo, "PostgreSQL": postgres}
    servers = [
        ServerLine(name, server.port, server.pid, str(server.log))
        for name, server in running.items()
        if server is not None
    ]
    settings = {
        f"Persistence:{section}:{key}": value if show_secrets else mask_secret_url(value)
        for section, values in settings_of(mongo, postgres).items()
        for key, value in values.items()
    }
    return StartReport(str(path), servers, settings)


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _text(report: StartReport, *, show_secrets: bool) -> str:
    lines = [f"{server.name:<10}  127.0.0.1:{server.port:<5}  pid {server.pid}" for server in report.servers]
    if show_secrets:
        lines += [_export(name, value) for name, value in report.settings.items()]
    else:
        lines += [f"{name}={value}" for name, value in report.settings.items()]
        lines += [f"# Passwords: {report.config} (mode 0600), or --show-secrets."]
    return "\n".join([*lines, _export("TWINSTORE_CONFIG", report.config)])


def _export(name: str, value: str) -> str:
    return f"export {name.replace(':', '__')}={shlex.quote(value)}"
