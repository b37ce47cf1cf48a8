"""A certificate that is not trusted is a setting to correct: the message says what helps."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict
from pymongo.uri_parser import parse_uri

import twinstore
from tests.support.certificates import HOST, OPENSSL, WITHOUT_OPENSSL, Certificates
from tests.support.outages import eventually
from tests.support.proxies import CountingProxy
from twinstore import ConfigurationError
from twinstore.errors import TwinstoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage

# What libpq sends first, and what a server answers that speaks TLS.
SSL_REQUEST: Final = bytes.fromhex("0000000804d2162f")
READY_SECONDS: Final = 15.0


def served(certificate: Path) -> ssl.SSLContext:
    """Return the context of a server with a certificate, which is in the file with its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@contextmanager
def front(server: tuple[str, int], context: ssl.SSLContext, *, asked: bool) -> Iterator[int]:
    """Speak TLS before a server that does not; give the port.

    Args:
        server: its address.
        context: with the certificate.
        asked: the client asks for TLS first, as libpq does.
    """
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
    database: PostgresDatabase, context: ssl.SSLContext, authority: Path, mode: str = "verify-full"
) -> Iterator[Section]:
    """Give the section of a PostgreSQL that is reached through TLS."""
    parts = {name: str(value) for name, value in conninfo_to_dict(database.app_url).items()}
    server = (parts["host"], int(parts["port"]))
    with front(server, context, asked=True) as port:
        url = (
            f"postgresql://{parts['user']}:{quote(parts['password'])}@{HOST}:{port}/{parts['dbname']}"
            f"?sslmode={mode}&sslrootcert={authority}"
        )
        yield {"ConnectionString": url}


@contextmanager
def mongo(database: MongoDatabase, context: ssl.SSLContext, authority: Path) -> Iterator[Section]:
    """Give the section of a MongoDB that is reached through TLS."""
    ((host, port), *_) = parse_uri(database.url)["nodelist"]
    with front((host, port), context, asked=False) as place:
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
        postgres(postgres_database, served(make(certificates)), authority) as tables,
        mongo(mongo_database, served(make(certificates)), authority) as documents,
    ):
        answers = answer("Postgres", tables), answer("Mongo", documents)
    for found, said in zip(answers, words, strict=True):
        assert isinstance(found, ConfigurationError), found
        assert not found.retryable
        assert said in found.message


def test_a_good_certificate_is_served(
    certificates: Certificates, postgres_database: PostgresDatabase, mongo_database: MongoDatabase
) -> None:
    good = served(certificates.of_server("trusted"))
    with postgres(postgres_database, good, certificates.authority) as section:
        assert answer("Postgres", section) is None
    with mongo(mongo_database, good, certificates.authority) as section:
        assert answer("Mongo", section) is None


def refused(storage: SchedulerStorage) -> TwinstoreError | None:
    """Return the error of a call."""
    try:
        storage.runs.get("acme", "r-1")
    except TwinstoreError as error:
        return error
    return None


@pytest.mark.parametrize("driver", ["Postgres", "Mongo"])
def test_a_service_whose_server_has_let_its_certificate_expire_serves_again_with_a_new_one(
    driver: str,
    certificates: Certificates,
    postgres_database: PostgresDatabase,
    mongo_database: MongoDatabase,
) -> None:
    context = served(certificates.of_server("old"))
    with ExitStack() as stack:
        section = stack.enter_context(
            postgres(postgres_database, context, certificates.authority)
            if driver == "Postgres"
            else mongo(mongo_database, context, certificates.authority)
        )
        url = str(section["ConnectionString"])
        port = url.partition(f"{HOST}:")[2].partition("/")[0]
        line = stack.enter_context(CountingProxy(socket.AF_INET, (HOST, int(port))))
        # A read whose connection was lost looks for another one as long as it may last.
        limit = "" if driver == "Postgres" else "&timeoutMS=5000"
        section["ConnectionString"] = url.replace(f":{port}/", f":{line.port}/") + limit
        settings = {"Persistence": {"Scheduler": driver, driver: section}}
        storage = stack.enter_context(twinstore.open_storage(settings)).scheduler
        assert refused(storage) is None
        context.load_cert_chain(certificates.of_server("overdue", days=-1))
        # What is open stays open: a certificate is read at the beginning.
        assert refused(storage) is None
        line.cut()
        line.restore()
        assert eventually(lambda: isinstance(refused(storage), ConfigurationError), READY_SECONDS)
        assert "expired" in str(refused(storage))
        context.load_cert_chain(certificates.of_server("renewed"))
        assert eventually(lambda: refused(storage) is None, READY_SECONDS)


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
    context = served(certificates.of_server("served"))
    with postgres(postgres_database, context, certificates.authority) as section:
        text = str(section["ConnectionString"]).partition("&sslrootcert=")[0]
        url = f"{text}&{option.format(authority=certificates.authority)}"
        found = answer("Postgres", {"ConnectionString": url})
    assert isinstance(found, ConfigurationError), found
    assert words in found.message
