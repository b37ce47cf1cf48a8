"""A certificate that is not trusted is a setting to correct: the message says what helps."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict
from pymongo.uri_parser import parse_uri

import twinstore
from tests.support.certificates import HOST, OPENSSL, WITHOUT_OPENSSL, Certificates
from twinstore import ConfigurationError
from twinstore.errors import TwinstoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

# What libpq sends first, and what a server answers that speaks TLS.
SSL_REQUEST: Final = bytes.fromhex("0000000804d2162f")


@contextmanager
def front(server: tuple[str, int], certificate: Path, *, asked: bool) -> Iterator[int]:
    """Speak TLS before a server that does not; give the port.

    Args:
        server: its address.
        certificate: with its key.
        asked: the client asks for TLS first, as libpq does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=accept, args=(listener, server, context, asked), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Wakes the thread, which closing alone does not.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def accept(
    listener: socket.socket,
    server: tuple[str, int],
    context: ssl.SSLContext,
    asked: bool,  # noqa: FBT001
) -> None:
    """Serve each client in a thread until the listener is closed."""
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve, args=(client, server, context, asked), daemon=True).start()


def serve(
    client: socket.socket,
    server: tuple[str, int],
    context: ssl.SSLContext,
    asked: bool,  # noqa: FBT001
) -> None:
    """Carry what both sides say, decrypted, until one of them ends."""
    with suppress(OSError), client:
        if asked:
            if client.recv(len(SSL_REQUEST)) != SSL_REQUEST:
                return
            client.sendall(b"S")
        with (
            context.wrap_socket(client, server_side=True) as inside,
            socket.create_connection(server) as behind,
        ):
            answers = threading.Thread(target=carry, args=(behind, inside), daemon=True)
            answers.start()
            carry(inside, behind)
            answers.join(10)


def carry(source: socket.socket, target: socket.socket) -> None:
    """Carry one direction."""
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


pytestmark = pytest.mark.skipif(OPENSSL is None, reason=WITHOUT_OPENSSL)
Section = dict[str, object]
# A certificate, the trusted authority, and the words that say what is wrong on either store.
BAD: Final[dict[str, tuple[Callable[[Certificates], Path], bool, str, str]]] = {
    "of a stranger": (
        lambda made: made.of_server("good"),
        False,
        "sslrootcert",
        "not signed by an authority that is trusted here; give the authority as tlsCAFile",
    ),
    "of another host": (
        lambda made: made.of_server("elsewhere", address="DNS:elsewhere.example"),
        True,
        "Connect by a name that is in the certificate",
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


def test_a_server_without_tls_is_reported(
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
def test_files_of_postgresql_that_are_missing_are_reported(
    option: str, words: str, certificates: Certificates, postgres_database: PostgresDatabase
) -> None:
    with postgres(postgres_database, certificates.of_server("served"), certificates.authority) as section:
        text = str(section["ConnectionString"]).partition("&sslrootcert=")[0]
        url = f"{text}&{option.format(authority=certificates.authority)}"
        found = answer("Postgres", {"ConnectionString": url})
    assert isinstance(found, ConfigurationError), found
    assert words in found.message
