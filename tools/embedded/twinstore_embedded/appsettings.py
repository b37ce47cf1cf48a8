"""The settings file of a data directory, which makes ``twinstore --config`` work at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from twinstore.config.keys import module_keys
from twinstore.errors import ConfigurationError
from twinstore.plugins.modules import built_modules
from twinstore_embedded.roles import DATABASE
from twinstore_embedded.state import write_private

if TYPE_CHECKING:
    from twinstore_embedded.mongod import MongoServer
    from twinstore_embedded.postgres import PostgresServer

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
    """Write the connection strings into ``appsettings.json``, mode 0600, and keep every other key in it.

    Raises:
        ConfigurationError: the file holds something else than a JSON object, or a key in two spellings.
    """
    path = _path(directory)
    settings = _read(path)
    persistence = _section(settings, path)
    sections = settings_of(mongo, postgres)
    if sections:
        store = next(iter(sections))
        for name in built_modules():
            # Only where nothing is set: a switch that the user has changed stays.
            persistence.setdefault(existing_key(persistence, module_keys(name).section), store)
    for name, section in sections.items():
        # Key by key: settings that the user added to the connection strings, such as PoolMax, are kept.
        persistence[existing_key(persistence, name)] = replaced(persistence, name, section, path)
    content = {**settings, existing_key(settings, "Persistence"): persistence}
    write_private(path, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return path


def check_appsettings(directory: str | Path) -> None:
    """Refuse a settings file that could not be written again, before anything is started for it.

    Raises:
        ConfigurationError: the file holds something else than a JSON object, or a key in two spellings.
    """
    path = _path(directory)
    _section(_read(path), path)


def _path(directory: str | Path) -> Path:
    return Path(directory).expanduser().resolve() / FILE


def _read(path: Path) -> dict[str, object]:
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except orjson.JSONDecodeError as error:
        raise _unreadable(path) from error
    _refuse_two_spellings(_object(content, path), (), path)
    return _object(content, path)


def _refuse_two_spellings(section: Mapping[str, object], above: tuple[str, ...], path: Path) -> None:
    seen: dict[str, str] = {}
    for key, value in section.items():
        other = seen.setdefault(key.casefold(), key)
        if other != key:
            below = f" below {':'.join(above)}" if above else ""
            raise ConfigurationError(
                f"{path} has both {other!r} and {key!r}{below}. Settings ignore case, so they mean the same: "
                "remove one of them and try again."
            )
        if isinstance(value, dict):
            _refuse_two_spellings(value, (*above, key), path)


def existing_key(section: Mapping[str, object], name: str) -> str:
    """Return a key as the file spells it: settings ignore case, and refuse a key that is there twice."""
    return next((key for key in section if key.casefold() == name.casefold()), name)


def replaced(
    persistence: Mapping[str, object], name: str, values: Mapping[str, str], path: Path
) -> dict[str, object]:
    """Return the section of a driver with these values, and with all others as they were."""
    section = dict(_object(persistence.get(existing_key(persistence, name), {}), path))
    for key, value in values.items():
        section[existing_key(section, key)] = value
    return section


def _section(settings: dict[str, object], path: Path) -> dict[str, object]:
    return dict(_object(settings.get(existing_key(settings, "Persistence"), {}), path))


def _object(value: object, path: Path) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _unreadable(path)
    return value


def _unreadable(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is not a settings file (a JSON object); correct it or delete it and try again."
    )
