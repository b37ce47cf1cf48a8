"""Who a service is to its server: logins, client certificates, rights and passwords, also while it runs.

Promised of both stores. A login that the server refuses is a ``ConfigurationError`` that names the server and
what to correct. Rights that are taken away from a running service fail its calls at once; nothing is
written, and the same storage serves again when the rights are back. Open connections survive a change of the
password. New ones are refused, a few attempts for each call and none without a call. No message and no log
line contains a password.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql
from pymongo import MongoClient
from typing_extensions import override

import twinstore
import twinstore_embedded
from tests.support import older_postgres
from tests.support.certificates import HOST, OPENSSL, WITHOUT_OPENSSL, Certificates
from tests.support.databases import without_retention
from tests.support.outages import eventually, server_directory
from tests.support.servers import mongo_config, postgres_config
from twinstore.errors import ConfigurationError, TwinstoreError, UnavailableError
from twinstore.testing.scheduler.builders import make_run
from twinstore_embedded.binaries import POSTGRES_VARIABLE, find_mongod
from twinstore_embedded.mongo_users import ADMIN, is_primary_with_users, key_file
from twinstore_embedded.mongod import CACHE_GB, fork
from twinstore_embedded.replica_set import SET_NAME, Login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_embedded import MongoServer, PostgresServer

pytestmark = [pytest.mark.long, pytest.mark.skipif(OPENSSL is None, reason=WITHOUT_OPENSSL)]
TENANT: Final = "acme"
DATABASE: Final = "mine"
PASSWORD: Final = "sécret/1"
OTHER: Final = "other~secret"
WRONG: Final = "wrong~secret"
SECRETS: Final = (PASSWORD, OTHER, WRONG, quote(PASSWORD, safe=""))
USER: Final = "service"
# The driver asks the server why no connection comes after half a second; the rest is for a busy machine.
AT_ONCE_SECONDS: Final = 4.0
# How long MongoDB's client waits for its next check of a server that has refused a login.
SELECTION_MS: Final = 2000
# With TLS and without, by the pool and for the caller.
MOST_LOGINS: Final = 4
READ_WRITE: Final = [{"role": "readWrite", "db": DATABASE}]


class Identity:
    """A server, and an administrator who changes what one user of it may do."""

    remedy: str
    refused: str

    def settings(self, password: str = PASSWORD) -> Settings:
        """Return the settings of a service that logs in as the user."""
        raise NotImplementedError

    def take_writes(self) -> None:
        """Leave the user the right to read."""
        raise NotImplementedError

    def take_all(self) -> None:
        """Leave the user no right but that to log in."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Give the user all rights again, and its first password."""
        raise NotImplementedError

    def change_password(self) -> None:
        """Give the user another password."""
        raise NotImplementedError

    def end_connections(self) -> None:
        """End the open connections of the user."""
        raise NotImplementedError

    def refused_logins(self) -> int:
        """Return how many logins the server has refused since its start."""
        raise NotImplementedError

    def stored(self) -> set[str]:
        """Return the runs that are stored."""
        raise NotImplementedError


class Tables(Identity):
    """PostgreSQL."""

    remedy = "run: twinstore migrate run (it grants what the application role needs)"
    refused = "Correct the password in the connection string."

    def __init__(self, server: PostgresServer, admin: psycopg.Connection[Any]) -> None:
        self.server, self._admin = server, admin
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(USER), PASSWORD))
        settings = self.settings()
        with twinstore.open_storage(settings) as storage:
            storage.scheduler.initializer.ensure_migrations()

    @override
    def settings(self, password: str = PASSWORD) -> Settings:
        app = f"postgresql://{USER}:{quote(password, safe='')}@{HOST}:{self.server.port}/twinstore"
        return without_retention(postgres_config(app, self.server.owner_url()))

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.server.superuser_url(database="twinstore"), autocommit=True) as owner:
            owner.execute(statement.encode())

    @override
    def take_writes(self) -> None:
        self._execute(f"REVOKE INSERT, UPDATE, DELETE ON scheduler.runs, scheduler.locks FROM {USER}")

    @override
    def take_all(self) -> None:
        self._execute(f"REVOKE USAGE ON SCHEMA scheduler FROM {USER}")

    @override
    def give_back(self) -> None:
        self._execute(f"GRANT INSERT, UPDATE, DELETE ON scheduler.runs, scheduler.locks TO {USER}")
        self._execute(f"GRANT USAGE ON SCHEMA scheduler TO {USER}")
        self._set_password(PASSWORD)

    @override
    def change_password(self) -> None:
        self._set_password(OTHER)

    def _set_password(self, password: str) -> None:
        self._admin.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(USER), password))

    @override
    def end_connections(self) -> None:
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s"
        self._admin.execute(ended, [USER])

    @contextmanager
    def reads_held(self) -> Iterator[Callable[[], bool]]:
        """Hold the readers of the runs until the end of the block; yield what says that one waits."""
        with psycopg.connect(self.server.superuser_url(database="twinstore")) as holder:
            holder.execute("LOCK TABLE scheduler.runs IN ACCESS EXCLUSIVE MODE")
            yield lambda: bool(self._admin.execute("SELECT FROM pg_locks WHERE NOT granted").rowcount)

    @override
    def refused_logins(self) -> int:
        return self.server.log.read_text().count("password authentication failed")

    @override
    def stored(self) -> set[str]:
        with psycopg.connect(self.server.superuser_url(database="twinstore")) as admin:
            return {name for (name,) in admin.execute("SELECT id FROM scheduler.runs")}


class Documents(Identity):
    """A replica set of MongoDB that takes connections with TLS and without."""

    remedy = "log in with a user that has readWrite"
    refused = "rejects the login; check user, password"

    def __init__(self, server: MongoServer, certificates: Certificates) -> None:
        self.server, made = server, certificates.of_server("member")
        self._tls = (
            *("--tlsMode", "preferTLS", "--tlsAllowConnectionsWithoutCertificates"),
            *(
                "--tlsCAFile",
                certificates.authority,
                "--tlsCertificateKeyFile",
                made,
            ),
        )
        self.restart()
        self.admin = MongoClient[dict[str, Any]](server.url)
        self.admin[DATABASE].command("createUser", USER, pwd=PASSWORD, roles=READ_WRITE)
        owner = server.user_url(DATABASE, "owner", "readWrite", "dbAdmin")
        with twinstore.open_storage(without_retention(mongo_config(owner, DATABASE))) as storage:
            storage.scheduler.initializer.ensure_migrations()

    def restart(self) -> None:
        """End the server and start it with TLS."""
        server = self.server
        server.halt(signal.SIGTERM)
        options = ("--replSet", SET_NAME, "--keyFile", key_file(server.home), *self._tls)
        assert fork(find_mongod(), server.home, server.port, options, cache_gb=CACHE_GB, parameters={})
        login = Login(ADMIN, server.passwords[ADMIN])
        assert eventually(lambda: is_primary_with_users(server.port, login, server.home))

    def url(self, login: str, **options: object) -> str:
        """Return a connection string; the login is of the form ``user:password@``."""
        given = {"replicaSet": SET_NAME, "serverSelectionTimeoutMS": SELECTION_MS} | options
        words = "&".join(f"{name}={value}" for name, value in given.items())
        return f"mongodb://{login}{HOST}:{self.server.port}/{DATABASE}?{words}"

    @override
    def settings(self, password: str = PASSWORD) -> Settings:
        url = self.url(f"{USER}:{quote(password, safe='')}@")
        return without_retention(mongo_config(url, DATABASE))

    @override
    def take_writes(self) -> None:
        self.take_all()
        read = [{"role": "read", "db": DATABASE}]
        self.admin[DATABASE].command("grantRolesToUser", USER, roles=read)

    @override
    def take_all(self) -> None:
        self.admin[DATABASE].command("updateUser", USER, roles=[])

    @override
    def give_back(self) -> None:
        self.admin[DATABASE].command("updateUser", USER, roles=READ_WRITE, pwd=PASSWORD)

    @override
    def change_password(self) -> None:
        self.admin[DATABASE].command("updateUser", USER, pwd=OTHER)

    @override
    def end_connections(self) -> None:
        self.restart()

    @override
    def refused_logins(self) -> int:
        return self.server.log.read_text().count('"Authentication failed"')

    @override
    def stored(self) -> set[str]:
        return {str(found["_id"]) for found in self.admin[DATABASE]["runs"].find({}, {"_id": 1})}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def documents(certificates: Certificates) -> Iterator[Documents]:
    with server_directory("identity") as directory:
        server = twinstore_embedded.start_mongo(directory, users=True, owned=True)
        found = Documents(server, certificates)
        with found.admin:
            yield found


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with server_directory("identity") as directory:
        server = twinstore_embedded.start_postgres(directory, durable=False, owned=True)
        with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
            yield Tables(server, admin)


@pytest.fixture(params=["tables", "documents"])
def identity(request: pytest.FixtureRequest) -> Identity:
    found: Identity = request.getfixturevalue(request.param)
    return found


def calls(scheduler: SchedulerStorage, name: str) -> dict[str, Callable[[], object]]:
    """Return calls of several kinds by name; those that write have to do with a run of this name."""

    def unit() -> None:
        with scheduler.transaction(TENANT) as opened:
            opened.runs.create(make_run(TENANT, f"unit-{name}"))

    def lock() -> None:
        scheduler.locks.acquire(name, timedelta(seconds=1)).release()

    return {
        "get": lambda: scheduler.runs.get(TENANT, "r-1"),
        "list": lambda: scheduler.runs.list(TENANT),
        "create": lambda: scheduler.runs.create(make_run(TENANT, f"single-{name}")),
        "unit": unit,
        "lock": lock,
    }


READS: Final = {"get", "list"}


def failure(call: Callable[[], object], seconds: float = AT_ONCE_SECONDS) -> TwinstoreError:
    """Return the error of a call, which shows no secret and comes soon."""
    begun = time.monotonic()
    with pytest.raises(TwinstoreError) as caught:
        call()
    assert time.monotonic() - begun < seconds
    shown = f"{caught.value!r} {caught.value.__cause__!r}"
    assert not any(secret in shown for secret in SECRETS)
    return caught.value


def refused(call: Callable[[], object], *words: str, seconds: float = AT_ONCE_SECONDS) -> None:
    """Check that a call is refused by an error which an operator must act on, and which says how."""
    error = failure(call, seconds)
    assert isinstance(error, ConfigurationError), error
    assert not error.retryable
    for word in words:
        assert word in error.message, error.message


def used(settings: Settings) -> object:
    """Open a storage and read."""
    with twinstore.open_storage(settings) as storage:
        return storage.scheduler.runs.get(TENANT, "absent")


@pytest.fixture
def no_secret_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert not any(secret in caplog.text for secret in SECRETS)


@pytest.mark.usefixtures("no_secret_in_logs")
def test_rights_that_are_taken_away_fail_calls_until_they_are_back(identity: Identity) -> None:
    with twinstore.open_storage(identity.settings()) as storage:
        for call in calls(storage.scheduler, "before").values():
            call()
        before = identity.stored()
        for name, take in {"writes": identity.take_writes, "all": identity.take_all}.items():
            take()
            for kind, call in calls(storage.scheduler, name).items():
                if name == "writes" and kind in READS:
                    call()
                else:
                    refused(call, identity.remedy)
            assert identity.stored() == before
            identity.give_back()
            for call in calls(storage.scheduler, f"{name}-again").values():
                call()
            before |= {f"single-{name}-again", f"unit-{name}-again"}
            assert identity.stored() == before


@pytest.mark.usefixtures("no_secret_in_logs")
def test_a_changed_password_is_met_by_new_connections_only(identity: Identity) -> None:
    with twinstore.open_storage(identity.settings()) as storage:
        for call in calls(storage.scheduler, "old").values():
            call()
        identity.change_password()
        for call in calls(storage.scheduler, "open").values():
            call()
        identity.end_connections()
        before, names = identity.stored(), calls(storage.scheduler, "refused")
        logins = identity.refused_logins()
        for call in names.values():
            refused(call, identity.refused, HOST)
        assert 0 < identity.refused_logins() - logins <= MOST_LOGINS * len(names)
        assert identity.stored() == before
        # Restarted with the new password.
        with twinstore.open_storage(identity.settings(OTHER)) as second:
            for call in calls(second.scheduler, "new").values():
                call()
        # Or the old password is given back.
        identity.give_back()
        assert eventually(lambda: served(storage.scheduler))
        for call in calls(storage.scheduler, "back").values():
            call()
        logins = identity.refused_logins()
    assert identity.refused_logins() == logins


def served(scheduler: SchedulerStorage) -> bool:
    """Whether a call succeeds."""
    with suppress(TwinstoreError):
        scheduler.runs.get(TENANT, "absent")
        return True
    return False


def test_a_user_that_was_dropped_and_created_again_needs_a_restart_of_the_service(
    documents: Documents,
) -> None:
    users = documents.admin[DATABASE]
    with twinstore.open_storage(documents.settings()) as storage:
        for call in calls(storage.scheduler, "first").values():
            call()
        users.command("dropUser", USER)
        for call in calls(storage.scheduler, "dropped").values():
            refused(call, "restart this process", HOST)
        refused(lambda: used(documents.settings()), documents.refused, HOST)
        users.command("createUser", USER, pwd=PASSWORD, roles=READ_WRITE)
        refused(lambda: storage.scheduler.runs.get(TENANT, "r"), "restart this process")
    assert used(documents.settings()) is None


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_both_mechanisms_of_passwords_of_mongodb(mechanism: str, documents: Documents) -> None:
    def settings(password: str, **options: object) -> Settings:
        login = f"{mechanism}:{quote(password, safe='')}@"
        return mongo_config(documents.url(login, **options), DATABASE)

    users = documents.admin[DATABASE]
    users.command("createUser", mechanism, pwd=PASSWORD, roles=READ_WRITE, mechanisms=[mechanism])
    assert used(settings(PASSWORD)) is None
    assert used(settings(PASSWORD, authMechanism=mechanism)) is None
    other = {"SCRAM-SHA-1": "SCRAM-SHA-256"}.get(mechanism, "SCRAM-SHA-1")
    refused(lambda: used(settings(PASSWORD, authMechanism=other)), "authMechanism", HOST)
    refused(lambda: used(settings(PASSWORD, authMechanism="PLAIN")), "authMechanism", HOST)
    refused(lambda: used(settings(PASSWORD, authSource="elsewhere")), "authSource", HOST)
    refused(lambda: used(settings(WRONG)), "password", HOST)


def test_client_certificates_of_mongodb(documents: Documents, certificates: Certificates) -> None:
    def settings(file: object, **options: object) -> Settings:
        given = {
            "authMechanism": "MONGODB-X509",
            "authSource": "$external",
            "tls": "true",
            "tlsCAFile": certificates.authority,
            **({"tlsCertificateKeyFile": file} if file else {}),
        }
        return mongo_config(documents.url("", **given, **options), DATABASE)

    known = certificates.of_client("known")
    for name in ("known", "expired", "foreign"):
        documents.admin["$external"].command("createUser", f"CN={name}", roles=READ_WRITE)
    assert used(settings(known)) is None
    refused(lambda: used(settings(certificates.of_client("unknown"))), "$external", HOST)
    refused(lambda: used(settings(None)), "tlsCertificateKeyFile", HOST)
    refused(lambda: used(settings(certificates.directory / "absent.pem")), "tlsCertificateKeyFile")
    refused(lambda: used(settings(known.with_suffix(".crt"))), "its private key")
    # The server says nothing to such a client but that it closes the connection.
    for bad in (
        certificates.of_client("expired", days=-1),
        certificates.of_client("foreign", authority=certificates.other),
    ):
        error = failure(lambda file=bad: used(settings(file)), AT_ONCE_SECONDS + SELECTION_MS / 1000)  # type: ignore[misc]  # of this turn
        assert isinstance(error, UnavailableError)
        assert "tlsCertificateKeyFile is missing, expired, or of an authority" in error.message


HBA: Final = """
hostssl all certified 127.0.0.1/32 cert
hostssl all twofold 127.0.0.1/32 scram-sha-256 clientcert=verify-full
host all hashed 127.0.0.1/32 md5
host all all 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def guarded(certificates: Certificates) -> Iterator[PostgresServer]:
    """Run a PostgreSQL with TLS, which that of the wheel lacks, and with a role for each kind of login."""
    with server_directory("identity") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv(POSTGRES_VARIABLE, str(older_postgres.PROGRAMS))
        server = twinstore_embedded.start_postgres(directory, durable=False, owned=True)
        data = server.home / "data"
        owner = data.stat()
        made = certificates.of_server("tables")
        for name, source in {
            "own.crt": made.with_suffix(".crt"),
            "own.key": made.with_suffix(".key"),
            "ca.crt": certificates.authority,
        }.items():
            shutil.copy(source, data / name)
            os.chown(data / name, owner.st_uid, owner.st_gid)
            (data / name).chmod(0o600)
        (data / "pg_hba.conf").write_text(HBA)
        files = {"ssl_cert_file": "own.crt", "ssl_key_file": "own.key", "ssl_ca_file": "ca.crt", "ssl": "on"}
        with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
            for name, value in files.items():
                admin.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            for role, encryption in {
                "certified": "scram-sha-256",
                "twofold": "scram-sha-256",
                "hashed": "md5",
            }.items():
                admin.execute(f"SET password_encryption = '{encryption}'".encode())
                created = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE twinstore_app")
                admin.execute(created.format(sql.Identifier(role), PASSWORD))
            admin.execute("SELECT pg_reload_conf()")
        settings = postgres_config(server.app_url(), server.owner_url())
        assert eventually(lambda: has_tls(server))
        with twinstore.open_storage(settings) as storage:
            storage.scheduler.initializer.ensure_migrations()
        yield server


def has_tls(server: PostgresServer) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(server.superuser_url() + "?sslmode=require"):
        return True
    return False


@pytest.mark.older_postgres
@pytest.mark.usefixtures("no_secret_in_logs")
def test_logins_of_postgresql(guarded: PostgresServer, certificates: Certificates) -> None:
    place = f"{HOST}:{guarded.port}/twinstore"

    def settings(user: str, password: str = "", file: Path | None = None, **options: object) -> Settings:
        login = f"{user}:{quote(password, safe='')}" if password else user
        given = {"sslmode": "verify-full", "sslrootcert": certificates.authority} | options
        if file is not None:
            given |= {"sslcert": file.with_suffix(".crt"), "sslkey": file.with_suffix(".key")}
        words = "&".join(f"{name}={value}" for name, value in given.items())
        section = {"ConnectionString": f"postgresql://{login}@{place}?{words}"}
        return {"Persistence": {"Scheduler": "Postgres", "Postgres": section}}

    certified, twofold = certificates.of_client("certified"), certificates.of_client("twofold")
    for good in (
        settings("certified", file=certified),
        settings("twofold", PASSWORD, twofold, require_auth="scram-sha-256", channel_binding="require"),
        settings("hashed", PASSWORD),
        settings("hashed", PASSWORD, sslmode="disable", require_auth="md5"),
    ):
        assert used(good) is None
    for bad, words in (
        (settings("certified", file=twofold), "sslcert whose common name is the user"),
        (settings("certified"), "Give sslcert and sslkey"),
        (settings("twofold", PASSWORD), "Give sslcert and sslkey"),
        (settings("twofold", WRONG, twofold), "Correct the password"),
        (settings("hashed", WRONG), "Correct the password"),
        (settings("hashed", PASSWORD, require_auth="scram-sha-256"), "Correct require_auth"),
        (settings("hashed", PASSWORD, sslmode="disable", channel_binding="require"), "channel_binding"),
        (settings("hashed", PASSWORD, host="localhost", hostaddr=HOST), "name that is in the certificate"),
        (settings("certified", file=certificates.of_client("certified", days=-1)), "Renew the client"),
    ):
        refused(lambda found=bad: used(found), place.partition("/")[2], words)  # type: ignore[misc]  # of this turn
    foreign = certificates.of_client("certified", authority=certificates.other)
    refused(lambda: used(settings("certified", file=foreign)), "an authority of the server")


@pytest.mark.older_postgres
def test_a_role_that_may_not_connect_is_told_what_to_grant(guarded: PostgresServer) -> None:
    settings = postgres_config(guarded.app_url(), guarded.owner_url())
    with psycopg.connect(guarded.superuser_url(), autocommit=True) as admin, ExitStack() as stack:
        admin.execute("REVOKE CONNECT ON DATABASE twinstore FROM PUBLIC, twinstore_app")
        stack.callback(admin.execute, "GRANT CONNECT ON DATABASE twinstore TO PUBLIC")
        refused(lambda: used(settings), "GRANT CONNECT ON DATABASE")
        admin.execute("ALTER ROLE twinstore_app NOLOGIN")
        stack.callback(admin.execute, "ALTER ROLE twinstore_app LOGIN")
        refused(lambda: used(settings), "ALTER ROLE ... LOGIN")
    assert used(settings) is None
