"""The settings file of a data directory, which makes ``twinstore --config`` work at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from twinstore.config.keys import module_keys
from twinstore.errors import ConfigurationError
from twinstore.modules import built_modules
from twinstore_embedded.roles import DATABASE
from twinstore_embedded.state import write_private

if TYPE_CHECKING:
    from twinstore_embedded.mongod import MongoServer
    from twinstore_embedded.postgres import PostgresServer

__all__ = ["settings_of", "write_appsettings"]

FILE = "appsettings.json"


def settings_of(mongo: MongoServer | None, postgres: PostgresServer | None) -> dict[str, dict[str, str]]:
    """Return the sections ``Persistence:Mongo`` and ``Persistence:Postgres`` of what runs."""
    sections: dict[str, dict[str, str]] = {}
    if mongo is not None:
        sections["Mongo"] = {"ConnectionString": mongo.url, "Database": DATABASE}
    if postgres is not None:
        sections["Postgres"] = {
            "ConnectionString": postgres.app_url(),
            "OwnerConnectionString": postgres.owner_url(),
        }
    return sections


def write_appsettings(
    directory: str | Path, mongo: MongoServer | None, postgres: PostgresServer | None
) -> Path:
    """Write the connection strings into ``appsettings.json``, mode 0600, and keep what else is in it.

    Raises:
        ConfigurationError: the file holds something else than a JSON object.
    """
    path = Path(directory).expanduser().resolve() / FILE
    settings = _read(path)
    persistence = _section(settings, path)
    sections = settings_of(mongo, postgres)
    if sections:
        store = next(iter(sections))
        for name in built_modules():
            # Only where nothing is set: a switch that the user has changed stays.
            persistence.setdefault(module_keys(name).section, store)
    content = {**settings, "Persistence": {**persistence, **sections}}
    write_private(path, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return path


def _read(path: Path) -> dict[str, object]:
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except orjson.JSONDecodeError as error:
        raise _unreadable(path) from error
    return _object(content, path)


def _section(settings: dict[str, object], path: Path) -> dict[str, object]:
    return _object(settings.get("Persistence", {}), path)


def _object(value: object, path: Path) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _unreadable(path)
    return value


def _unreadable(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is not a settings file (a JSON object); correct it or delete it and try again."
    )
