"""A certificate that is not trusted is a setting to correct: the message says what helps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict
from pymongo.uri_parser import parse_uri

import twinstore
from tests.faults.tls import HOST, Certificates, front, openssl
from twinstore import ConfigurationError
from twinstore.errors import TwinstoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase

pytestmark = pytest.mark.skipif(openssl() is None, reason="nothing here makes certificates")

Section = dict[str, object]
# A certificate, the authority that is trusted, and the words that tell what is wrong on either store.
BAD: Final[dict[str, tuple[Callable[[Certificates], Path], bool, str, str]]] = {
    "of a stranger": (
        lambda made: made.of_server("good"),
        False,
        "sslrootcert",
        "signed by nobody who is trusted here; give the authority as tlsCAFile",
    ),
    "of another host": (
        lambda made: made.of_server("elsewhere", address="DNS:elsewhere.example"),
        True,
        "Connect by a name that stands in the certificate",
        "is for another address; connect by a name",
    ),
    "expired": (
        lambda made: made.of_server("expired", days=-1),
        True,
        "renew a certificate that has expired",
        "has expired; renew it",
    ),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@contextmanager
def postgres(
    database: PostgresDatabase, certificate: Path, authority: Path, mode: str = "verify-full"
) -> Iterator[Section]:
    """Give the section of a PostgreSQL that is reached through TLS."""
    parts = {name: str(value) for name, value in conninfo_to_dict(database.app_url).items()}
    server = (parts["host"], int(parts["port"]))
    with front(server, certificate, asked=True) as port:
        url = (
            f"postgresql://{parts['user']}:{quote(parts['password'])}@{HOST}:{port}/{parts['dbname']}"
            f"?sslmode={mode}&sslrootcert={authority}"
        )
        yield {"ConnectionString": url}


@contextmanager
def mongo(database: MongoDatabase, certificate: Path, authority: Path) -> Iterator[Section]:
    """Give the section of a MongoDB that is reached through TLS."""
    ((host, port), *_) = parse_uri(database.url)["nodelist"]
    with front((host, port), certificate, asked=False) as place:
        url = (
            f"mongodb://{HOST}:{place}/?tls=true&tlsCAFile={authority}&directConnection=true"
            "&serverSelectionTimeoutMS=1000"
        )
        yield {"ConnectionString": url, "Database": database.name}


def answer(driver: str, section: Section) -> object:
    """Return what a storage with this section answers, or its error."""
    with twinstore.open_storage({"Persistence": {"Scheduler": driver, driver: section}}) as storage:
        try:
            return storage.scheduler.runs.get("acme", "r-1")
        except TwinstoreError as error:
            return error


@pytest.mark.parametrize("case", BAD)
def test_a_bad_certificate_is_a_setting_to_correct(
    case: str,
    certificates: Certificates,
    postgres_database: PostgresDatabase,
    mongo_database: MongoDatabase,
) -> None:
    make, trusted, *words = BAD[case]
    authority = certificates.authority if trusted else certificates.other
    with (
        postgres(postgres_database, make(certificates), authority) as tables,
        mongo(mongo_database, make(certificates), authority) as documents,
    ):
        answers = answer("Postgres", tables), answer("Mongo", documents)
    for found, said in zip(answers, words, strict=True):
        assert isinstance(found, ConfigurationError), found
        assert not found.retryable
        assert said in found.message


def test_a_good_certificate_is_served(
    certificates: Certificates, postgres_database: PostgresDatabase, mongo_database: MongoDatabase
) -> None:
    good = certificates.of_server("trusted")
    with postgres(postgres_database, good, certificates.authority) as section:
        assert answer("Postgres", section) is None
    with mongo(mongo_database, good, certificates.authority) as section:
        assert answer("Mongo", section) is None


def test_a_server_without_tls_is_told(
    certificates: Certificates, postgres_database: PostgresDatabase, mongo_database: MongoDatabase
) -> None:
    found = answer("Postgres", {"ConnectionString": f"{postgres_database.app_url}?sslmode=require"})
    assert isinstance(found, ConfigurationError), found
    assert "Switch TLS on" in found.message
    ((host, port), *_) = parse_uri(mongo_database.url)["nodelist"]
    url = f"mongodb://{host}:{port}/db?tls=true&tlsCAFile={certificates.authority}&serverSelectionTimeoutMS=1000"
    found = answer("Mongo", {"ConnectionString": url})
    assert isinstance(found, TwinstoreError), found


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("sslrootcert=/nowhere/ca.pem", "sslrootcert"),
        ("sslrootcert={authority}&sslcert={authority}&sslkey=/nowhere/k.pem", "sslkey"),
    ],
)
def test_files_of_postgresql_that_are_missing_are_told(
    option: str, words: str, certificates: Certificates, postgres_database: PostgresDatabase
) -> None:
    with postgres(postgres_database, certificates.of_server("served"), certificates.authority) as section:
        text = str(section["ConnectionString"]).partition("&sslrootcert=")[0]
        url = f"{text}&{option.format(authority=certificates.authority)}"
        found = answer("Postgres", {"ConnectionString": url})
    assert isinstance(found, ConfigurationError), found
    assert words in found.message
