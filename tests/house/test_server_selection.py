"""The servers of a run are those that its environment names, and no others."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conftest import url_of
from tests.support.servers import Source, choose_source, given_urls, kinds_of_run

MONGO: Final = {"TWINSTORE_TEST_MONGO_URL": "mongodb://db:27017"}
POSTGRES: Final = {"TWINSTORE_TEST_POSTGRES_URL": "postgresql://db/postgres"}
CONTAINERS: Final = {"TWINSTORE_TEST_SERVERS": "containers"}
ONLY: Final = {"TWINSTORE_TEST_ONLY": "postgres"}


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        ({}, Source.EMBEDDED),
        (dict.fromkeys([*MONGO, *POSTGRES, *CONTAINERS, *ONLY], ""), Source.EMBEDDED),
        (CONTAINERS, Source.CONTAINERS),
        ({"TWINSTORE_TEST_SERVERS": "podman"}, Source.PODMAN),
        (MONGO | POSTGRES | CONTAINERS, Source.URLS),
        (ONLY, Source.EMBEDDED),
        (ONLY | POSTGRES, Source.URLS),
    ],
)
def test_servers_come_from_where_the_environment_says(environ: dict[str, str], source: Source) -> None:
    assert choose_source(environ) is source


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (MONGO, "TWINSTORE_TEST_MONGO_URL is set alone"),
        (POSTGRES, "TWINSTORE_TEST_POSTGRES_URL is set alone"),
        ({"TWINSTORE_TEST_ONLY": "sqlite"}, "'sqlite' is unknown: use 'mongo' or 'postgres'"),
        (
            {"TWINSTORE_TEST_SERVERS": "docker"},
            "'docker' is unknown: use 'containers', 'podman' or 'embedded'",
        ),
    ],
)
def test_what_is_no_choice_is_refused(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        choose_source(environ)


def test_a_run_about_one_server_skips_what_needs_the_other() -> None:
    environ = ONLY | POSTGRES
    assert (kinds_of_run(environ), kinds_of_run({})) == (("postgres",), ("mongo", "postgres"))
    urls = given_urls(environ)
    assert url_of(urls, "postgres") == urls["postgres"] == "postgresql://db/postgres"
    with pytest.raises(LookupError, match="This run has no mongo server"):
        urls["mongo"]
    with pytest.raises(pytest.skip.Exception, match="This run has no mongo server"):
        url_of(urls, "mongo")
