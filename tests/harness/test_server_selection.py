from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.conftest import url_of
from tests.servers import (
    Source,
    choose_source,
    given_urls,
    kinds_of_run,
    mongo_config,
    postgres_config,
    postgres_url,
)

URLS = {
    "TWINSTORE_TEST_MONGO_URL": "mongodb://db:27017",
    "TWINSTORE_TEST_POSTGRES_URL": "postgresql://db/postgres",
}


def test_embedded_servers_are_the_default() -> None:
    assert choose_source({}) is Source.EMBEDDED


def test_an_empty_variable_counts_as_absent() -> None:
    assert choose_source(dict.fromkeys([*URLS, "TWINSTORE_TEST_SERVERS"], "")) is Source.EMBEDDED


def test_containers_are_used_on_request() -> None:
    assert choose_source({"TWINSTORE_TEST_SERVERS": "containers"}) is Source.CONTAINERS
    assert choose_source({"TWINSTORE_TEST_SERVERS": "podman"}) is Source.PODMAN


def test_given_urls_win_over_containers() -> None:
    environ = URLS | {"TWINSTORE_TEST_SERVERS": "containers"}
    assert choose_source(environ) is Source.URLS
    assert given_urls(environ).postgres == "postgresql://db/postgres"


@pytest.mark.parametrize("name", URLS)
def test_one_url_alone_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is set alone"):
        choose_source({name: URLS[name]})


def test_one_server_alone_needs_one_url_and_leaves_the_other_out() -> None:
    environ = {"TWINSTORE_TEST_ONLY": "postgres"}
    assert (choose_source(environ), kinds_of_run(environ)) == (Source.EMBEDDED, ("postgres",))
    environ |= {"TWINSTORE_TEST_POSTGRES_URL": URLS["TWINSTORE_TEST_POSTGRES_URL"]}
    assert choose_source(environ) is Source.URLS
    urls = given_urls(environ)
    assert urls["postgres"] == "postgresql://db/postgres"
    with pytest.raises(LookupError, match="This run has no mongo server"):
        urls["mongo"]
    assert url_of(urls, "postgres") == urls["postgres"]
    with pytest.raises(pytest.skip.Exception, match="This run has no mongo server"):
        url_of(urls, "mongo")
    assert kinds_of_run({"TWINSTORE_TEST_ONLY": ""}) == ("mongo", "postgres")
    with pytest.raises(ValueError, match="'sqlite' is unknown: use 'mongo' or 'postgres'"):
        choose_source({"TWINSTORE_TEST_ONLY": "sqlite"})


def test_an_unknown_kind_of_server_is_refused() -> None:
    with pytest.raises(ValueError, match="'docker' is unknown: use 'containers', 'podman' or 'embedded'"):
        choose_source({"TWINSTORE_TEST_SERVERS": "docker"})


@pytest.mark.parametrize(
    "base",
    [
        "postgresql://root:pw@db:5433/postgres?sslmode=disable",
        "postgresql://root:@/postgres?host=/tmp/a%20b",
        "dbname=x",
    ],
)
def test_a_postgres_url_changes_only_what_is_asked(base: str) -> None:
    changed = conninfo_to_dict(postgres_url(base, user="o'w/n@er", password="p:w", dbname="other"))
    assert changed == conninfo_to_dict(base) | {"user": "o'w/n@er", "password": "p:w", "dbname": "other"}


def test_settings_name_the_driver_the_urls_and_the_role() -> None:
    assert mongo_config("mongodb://db", "one") == {
        "Persistence": {
            "Scheduler": "Mongo",
            "Mongo": {"ConnectionString": "mongodb://db", "Database": "one"},
        }
    }
    assert postgres_config("postgresql://app@db/one", "postgresql://owner@db/one")["Persistence"] == {
        "Scheduler": "Postgres",
        "Postgres": {
            "ConnectionString": "postgresql://app@db/one",
            "OwnerConnectionString": "postgresql://owner@db/one",
            "ApplicationRole": "app",
        },
    }
