"""Whatever form a connection string has, and however it fails: nothing recorded shows the password."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest

import twinstore
from tests.support.leaks import PASSWORD, assert_hidden, recorded
from tests.support.servers import postgres_url
from twinstore import ConfigurationError, UnavailableError
from twinstore.errors import TwinstoreError

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, PostgresDatabase

ENCODED: Final = "".join(f"%{ord(character):02x}" for character in PASSWORD)
FAST: Final = "serverSelectionTimeoutMS=50"

POSTGRES_FORMS: Final = {
    "a URL": f"postgresql://user:{PASSWORD}@127.0.0.1:1/db",
    "the short scheme": f"postgres://user:{PASSWORD}@127.0.0.1:1/db",
    "encoded": f"postgresql://user:{ENCODED}@127.0.0.1:1/db",
    "in the query": f"postgresql://127.0.0.1:1/db?user=user&password={PASSWORD}",
    "several hosts": f"postgresql://user:{PASSWORD}@127.0.0.1:1,127.0.0.1:2/db",
    "keywords": f"host=127.0.0.1 port=1 dbname=db user=user password={PASSWORD}",
    "quoted": f"host=127.0.0.1 port=1 dbname=db user=user password='{PASSWORD}'",
    "with blanks": f"host=127.0.0.1 port=1 dbname=db user=user password = {PASSWORD}",
    "a passphrase": f"host=127.0.0.1 port=1 dbname=db user=u sslpassword={PASSWORD}",
    "a port that is none": f"postgresql://user:{PASSWORD}@127.0.0.1:port/db",
    "no host": f"postgresql://user:{PASSWORD}",
    "an unknown keyword": f"host=127.0.0.1 password={PASSWORD} colour=red",
    "rest behind a keyword": f"host=127.0.0.1 password={PASSWORD} rest",
    "of another world": f"Host=127.0.0.1;Password={PASSWORD};Database=db",
    "an @ inside": f"postgresql://user:{PASSWORD}@x@127.0.0.1:1/db",
    "files that are missing": (
        f"postgresql://user:{PASSWORD}@127.0.0.1:1/db?sslmode=verify-full&sslrootcert=/nowhere/ca.pem"
        "&sslcert=/nowhere/c.pem&sslkey=/nowhere/k.pem"
    ),
    "a host without address": f"postgresql://user:{PASSWORD}@nowhere.invalid/db?connect_timeout=2",
}
MONGO_FORMS: Final = {
    "a URL": f"mongodb://user:{PASSWORD}@127.0.0.1:1/db?{FAST}",
    "encoded": f"mongodb://user:{ENCODED}@127.0.0.1:1/db?{FAST}",
    "several hosts": f"mongodb://user:{PASSWORD}@127.0.0.1:1,127.0.0.1:2/db?{FAST}",
    "a mechanism": f"mongodb://user:{PASSWORD}@127.0.0.1:1/db?authMechanism=SCRAM-SHA-256&{FAST}",
    "a token": (
        f"mongodb://user:{PASSWORD}@127.0.0.1:1/db?authMechanism=MONGODB-AWS&"
        f"authMechanismProperties=AWS_SESSION_TOKEN:{PASSWORD}&{FAST}"
    ),
    "a port that is none": f"mongodb://user:{PASSWORD}@127.0.0.1:port/db",
    "a port that is too large": f"mongodb://user:{PASSWORD}@127.0.0.1:99999/db",
    "no host": f"mongodb://user:{PASSWORD}",
    "an @ inside": f"mongodb://user:{PASSWORD}@x@127.0.0.1:1/db",
    "a slash inside": f"mongodb://user:{PASSWORD}/x@127.0.0.1:1/db",
    "an option that is none": f"mongodb://user:{PASSWORD}@127.0.0.1:1/db?timeoutMS=soon",
    "options that contradict": f"mongodb://user:{PASSWORD}@127.0.0.1:1/db?tls=true&ssl=false",
    "a passphrase": (
        f"mongodb://user:{PASSWORD}@127.0.0.1:1/db?tls=true&tlsCertificateKeyFile=/nowhere/c.pem"
        f"&tlsCertificateKeyFilePassword={PASSWORD}&{FAST}"
    ),
    "an authority that is missing": f"mongodb://user:{PASSWORD}@127.0.0.1:1/db?tls=true&tlsCAFile=/nowhere/ca&{FAST}",
    "a mechanism that is none": f"mongodb://user:{PASSWORD}@127.0.0.1:1/db?authMechanism=NONE",
    "a host without address": f"mongodb://user:{PASSWORD}@nowhere.invalid/db?{FAST}",
    "a service without record": f"mongodb+srv://user:{PASSWORD}@nowhere.invalid/db?{FAST}",
    "another scheme": f"http://user:{PASSWORD}@127.0.0.1:1/db",
}
# From the first call to the answer; nothing here waits for a server that may come.
PATIENCE: Final = 20


def fails(driver: str, connection_string: str, caplog: pytest.LogCaptureFixture) -> TwinstoreError:
    """Return why a storage serves nothing; neither that nor a log shows the password."""
    section = {"ConnectionString": connection_string}
    storage = twinstore.open_storage({"Persistence": {"Scheduler": driver, driver: section}})
    started = time.monotonic()
    with caplog.at_level(logging.DEBUG), pytest.raises(TwinstoreError) as caught:
        storage.scheduler.runs.get("acme", "r-1")
    assert time.monotonic() - started < PATIENCE
    storage.close()
    assert_hidden(caught.value)
    assert PASSWORD not in caplog.text
    return caught.value


@pytest.mark.parametrize("form", POSTGRES_FORMS)
def test_a_connection_to_postgresql_that_fails_shows_no_password(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = fails("Postgres", POSTGRES_FORMS[form], caplog)
    # The same frames as a tracker draws them, once: that takes a second.
    assert form != "a URL" or PASSWORD not in recorded(error)


@pytest.mark.parametrize("form", MONGO_FORMS)
def test_a_connection_to_mongodb_that_fails_shows_no_password(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = fails("Mongo", MONGO_FORMS[form], caplog)
    assert form != "a URL" or PASSWORD not in recorded(error)


@pytest.mark.parametrize(
    "change", [{"password": PASSWORD}, {"dbname": "nowhere"}, {"user": "nobody"}], ids=str
)
def test_a_server_that_refuses_is_reported_without_the_password(
    change: dict[str, str], postgres_database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres_url(postgres_database.app_url, **({"password": PASSWORD} | change))
    assert isinstance(fails("Postgres", url, caplog), ConfigurationError)


def test_a_mongod_that_refuses_is_reported_without_the_password(
    mongo_database: MongoDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    rest = mongo_database.url.removeprefix("mongodb://")
    host, _, options = rest.partition("/?")
    url = f"mongodb://nobody:{quote(PASSWORD)}@{host.rstrip('/')}/db?authSource=admin&{options}"
    assert isinstance(fails("Mongo", url, caplog), ConfigurationError)


def test_files_of_tls_that_are_missing_are_settings_to_correct(caplog: pytest.LogCaptureFixture) -> None:
    for form in ("a passphrase", "an authority that is missing"):
        assert isinstance(fails("Mongo", MONGO_FORMS[form], caplog), ConfigurationError), form
    found = fails("Postgres", POSTGRES_FORMS["files that are missing"], caplog)
    assert isinstance(found, (ConfigurationError, UnavailableError))
