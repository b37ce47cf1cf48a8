"""Where the real servers of a test run come from, and the settings that name them.

In this order:

1. ``TWINSTORE_TEST_MONGO_URL`` (a replica set) and ``TWINSTORE_TEST_POSTGRES_URL`` (a superuser), both;
2. containers, with ``TWINSTORE_TEST_SERVERS=containers``;
3. the embedded servers, which come from pip and need nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

MONGO_URL: Final = "TWINSTORE_TEST_MONGO_URL"
POSTGRES_URL: Final = "TWINSTORE_TEST_POSTGRES_URL"
SERVERS: Final = "TWINSTORE_TEST_SERVERS"

Settings: TypeAlias = dict[str, object]


class Source(StrEnum):
    """Who runs the servers."""

    URLS = "urls"
    CONTAINERS = "containers"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class ServerUrls:
    """A MongoDB replica set, and PostgreSQL as its superuser."""

    mongo: str
    postgres: str


def choose_source(environ: Mapping[str, str]) -> Source:
    """Return who runs the servers; a contradiction is an error, never a guess."""
    given = [name for name in (MONGO_URL, POSTGRES_URL) if environ.get(name)]
    if len(given) == 1:
        raise ValueError(f"{given[0]} is set alone: set both {MONGO_URL} and {POSTGRES_URL}, or neither")
    if given:
        return Source.URLS
    wanted = environ.get(SERVERS) or Source.EMBEDDED
    if wanted not in {Source.CONTAINERS, Source.EMBEDDED}:
        raise ValueError(f"{SERVERS}={wanted!r} is unknown: use 'containers' or 'embedded'")
    return Source(wanted)


def given_urls(environ: Mapping[str, str]) -> ServerUrls:
    """Return the servers that the environment names."""
    return ServerUrls(environ[MONGO_URL], environ[POSTGRES_URL])


def postgres_url(base: str, **changes: str) -> str:
    """Return a PostgreSQL URL with another ``user``, ``password`` or ``dbname``; the rest stays."""
    parts = {name: str(value) for name, value in conninfo_to_dict(base).items()} | changes
    user, password, database = (
        quote(parts.pop(name, ""), safe="") for name in ("user", "password", "dbname")
    )
    host = "" if parts.get("host", "/").startswith("/") else parts.pop("host")
    port = f":{parts.pop('port')}" if host and "port" in parts else ""
    query = f"?{urlencode(parts, quote_via=quote)}" if parts else ""
    return f"postgresql://{user}:{password}@{host}{port}/{database}{query}"


def mongo_config(url: str, database: str) -> Settings:
    """Return the settings of a scheduler that is stored in one MongoDB database."""
    return {"Persistence": {"Scheduler": "Mongo", "Mongo": {"ConnectionString": url, "Database": database}}}


def postgres_config(app_url: str, owner_url: str) -> Settings:
    """Return the settings of a scheduler that is stored in one PostgreSQL database."""
    postgres = {
        "ConnectionString": app_url,
        "OwnerConnectionString": owner_url,
        "ApplicationRole": conninfo_to_dict(app_url)["user"],
    }
    return {"Persistence": {"Scheduler": "Postgres", "Postgres": postgres}}
