"""Where the real servers of a test run come from, and the settings that name them.

In this order:

1. ``TWINSTORE_TEST_MONGO_URL`` (a replica set) and ``TWINSTORE_TEST_POSTGRES_URL`` (a superuser), both;
2. containers, with ``TWINSTORE_TEST_SERVERS=containers`` on the engine that Docker's variables name, or with
   ``TWINSTORE_TEST_SERVERS=podman`` on one that the run starts;
3. the embedded servers, which come from pip and need nothing else.

``TWINSTORE_TEST_ONLY=postgres`` (or ``mongo``) leaves the other server out: none is started, no URL is
needed, and the tests that need it are skipped.
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
# What runs in containers, where it is not mongo:7.0 and postgres:17.
MONGO_IMAGE: Final = "TWINSTORE_TEST_MONGO_IMAGE"
POSTGRES_IMAGE: Final = "TWINSTORE_TEST_POSTGRES_IMAGE"
SERVERS: Final = "TWINSTORE_TEST_SERVERS"
ONLY: Final = "TWINSTORE_TEST_ONLY"
KINDS: Final = {"mongo": MONGO_URL, "postgres": POSTGRES_URL}

Settings: TypeAlias = dict[str, object]


class Source(StrEnum):
    """Who runs the servers."""

    URLS = "urls"
    CONTAINERS = "containers"
    PODMAN = "podman"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class ServerUrls:
    """A MongoDB replica set, and PostgreSQL as its superuser; empty for one that the run leaves out."""

    mongo: str = ""
    postgres: str = ""

    def __getitem__(self, kind: str) -> str:
        """Return the URL of one server.

        Raises:
            LookupError: this run leaves it out.
        """
        url = {"mongo": self.mongo, "postgres": self.postgres}[kind]
        if not url:
            raise LookupError(f"This run has no {kind} server, because {ONLY} names another one.")
        return url


def kinds_of_run(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return which servers the run has."""
    only = environ.get(ONLY)
    if only and only not in KINDS:
        raise ValueError(f"{ONLY}={only!r} is unknown: use {' or '.join(map(repr, KINDS))}")
    return (only,) if only else tuple(KINDS)


def choose_source(environ: Mapping[str, str]) -> Source:
    """Return who runs the servers; a contradiction is an error, never a guess."""
    wanted_urls = [KINDS[kind] for kind in kinds_of_run(environ)]
    given = [name for name in wanted_urls if environ.get(name)]
    if len(given) < len(wanted_urls) and given:
        raise ValueError(f"{given[0]} is set alone: set both {MONGO_URL} and {POSTGRES_URL}, or neither")
    if given:
        return Source.URLS
    wanted = environ.get(SERVERS) or Source.EMBEDDED
    if wanted not in {Source.CONTAINERS, Source.PODMAN, Source.EMBEDDED}:
        raise ValueError(f"{SERVERS}={wanted!r} is unknown: use 'containers', 'podman' or 'embedded'")
    return Source(wanted)


def given_urls(environ: Mapping[str, str]) -> ServerUrls:
    """Return the servers that the environment names."""
    return ServerUrls(**{kind: environ[KINDS[kind]] for kind in kinds_of_run(environ)})


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
