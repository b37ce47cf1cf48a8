"""No session may begin with a tenant, or without foreign keys; other settings of a database change nothing.

Such settings come from ALTER DATABASE, ALTER ROLE and the configuration of the server.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg_pool import ConnectionPool

import twinstore
import twinstore_embedded
from tests.support.copies import invoke, open_store, write_config
from tests.support.databases import APP_ROLE, OWNER_ROLE, PASSWORD, PostgresServer
from tests.support.outages import eventually
from tests.support.pgbouncer import pooler_before
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore.errors import ConfigurationError
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.verify.checks import schema_check
from twinstore_embedded.state import wait_until
from twinstore_postgres.connection import roles
from twinstore_postgres.connection.data_source import SchedulerDataSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase
    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerStorage

Connection = psycopg.Connection[Any]

TENANT: Final = "a-tenant-that-no-message-names"
STATEMENT: Final = re.compile(r"ALTER [^;]+ RESET [^;]+;(?: SELECT pg_reload_conf\(\);)?")
SECONDS: Final = 10.0


@pytest.fixture(scope="module")
def login(postgres_server: PostgresServer) -> Iterator[str]:
    """Create a role of these tests, which has what the application role has: other tests use that one."""
    name = f"Login {uuid4().hex[:8]}"
    with postgres_server.migrated_database():  # which creates the application role
        postgres_server.admin.execute(
            f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{PASSWORD}' IN ROLE {APP_ROLE}".encode()
        )
    yield name
    postgres_server.admin.execute(f'DROP ROLE "{name}"'.encode())


@pytest.fixture(scope="module")
def database(module_postgres_database: PostgresDatabase) -> PostgresDatabase:
    return module_postgres_database


@pytest.fixture(scope="module")
def settings(database: PostgresDatabase, login: str) -> Settings:
    return settings_of(database, login)


def settings_of(database: PostgresDatabase, login: str, **more: object) -> Settings:
    postgres = {
        "ConnectionString": postgres_url(database.app_url, user=login),
        "OwnerConnectionString": database.owner_url,
        "ApplicationRole": APP_ROLE,
        **more,
    }
    return {"Persistence": {"Scheduler": "Postgres", "Postgres": postgres}}


def url_of(settings: Settings) -> str:
    """Return the connection string."""
    return str(load_settings(settings).backend_section("scheduler", "Postgres")["ConnectionString"])


@pytest.fixture
def admin(database: PostgresDatabase) -> Iterator[Connection]:
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        yield connection


@contextmanager
def given(admin: Connection, place: str, name: str, value: str) -> Iterator[None]:
    """Give sessions a setting until the block ends."""
    admin.execute(f"ALTER {place} SET {name} = '{value}'".encode())
    try:
        yield
    finally:
        admin.execute(f"ALTER {place} RESET {name}".encode())


def refusal(act: Callable[[], object]) -> str:
    """Return what a refusal says."""
    with pytest.raises(ConfigurationError) as caught:
        act()
    assert TENANT not in caught.value.message
    return caught.value.message


def use(settings: Settings) -> None:
    """Open a storage, which connects to nothing, and make a call."""
    with twinstore.add_scheduler_postgres_storage(settings) as storage:
        storage.runs.get("acme", "r")


class Places:
    """The four that name an unsafe setting, with a storage that was in use before."""

    def __init__(self, settings: Settings, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.settings = settings
        self._config = write_config(directory / "settings.json", settings)
        self._capsys = capsys

    def answers(self, storage: SchedulerStorage) -> dict[str, tuple[bool, str]]:
        """Return whether each finds the database safe, and what it says."""
        verified = invoke(self._capsys, "--config", self._config, "migrate", "verify")
        doctored = invoke(self._capsys, "--config", self._config, "doctor")
        assert {verified.code, doctored.code} <= {0, 1}, (verified, doctored)
        return {
            "check_ready": ready(storage),
            "migrate verify": (verified.code == 0, verified.out),
            "doctor": (doctored.code == 0, doctored.out),
            "C8": self.checked(),
        }

    def checked(self) -> tuple[bool, str]:
        """Return the result of check C8."""
        with open_store("scheduler", "Postgres", load_settings(self.settings)) as store:
            check = schema_check(store)
            assert check.result in {"pass", "inconclusive"}
            return check.result == "pass", " ".join(check.findings)


def ready(storage: SchedulerStorage) -> tuple[bool, str]:
    """Return whether a storage is ready, and what it says if not."""
    try:
        storage.check_ready()
    except ConfigurationError as error:
        return False, error.message
    return True, ""


@pytest.fixture
def places(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Places:
    return Places(settings, tmp_path, capsys)


@pytest.fixture
def storage(settings: Settings) -> Iterator[SchedulerStorage]:
    with twinstore.add_scheduler_postgres_storage(settings) as opened:
        opened.check_ready()
        yield opened


# More than the pool keeps without work.
SESSIONS: Final = 5
WHERE: Final = (
    ("DATABASE {database}", "app.tenant_id", TENANT),
    ("DATABASE {database}", "session_replication_role", "replica"),
    ('ROLE "{login}"', "app.tenant_id", TENANT),
    ('ROLE "{login}" IN DATABASE {database}', '"APP"."Tenant_Id"', "system"),
    (f"ROLE {OWNER_ROLE} IN DATABASE {{database}}", "app.tenant_id", TENANT),
    (f"ROLE {APP_ROLE} IN DATABASE {{database}}", "session_replication_role", "replica"),
)


@pytest.mark.parametrize("where", WHERE, ids=lambda where: f"{where[0]} {where[1]}")
def test_all_four_name_it_with_the_statement_that_repairs_it(
    places: Places, storage: SchedulerStorage, admin: Connection, login: str, where: tuple[str, str, str]
) -> None:
    template, name, value = where
    place = template.format(database=admin.info.dbname, login=login)
    reset = f"ALTER {place} RESET {name};"
    with given(admin, place, name, value):
        answers = places.answers(storage)
        for safe, said in answers.values():
            assert not safe
            assert STATEMENT.findall(said) == [reset], answers
            assert TENANT not in said
        if OWNER_ROLE not in place and APP_ROLE not in place:  # no session of the service begins with it
            assert reset in refusal(lambda: use(places.settings))
        admin.execute(reset.encode())
        # The pool may have opened sessions meanwhile; the check that meets one closes it.
        assert eventually(lambda: all(ready(storage)[0] for _ in range(SESSIONS)))
        answers = places.answers(storage)
        assert all(safe for safe, _ in answers.values()), answers
        use(places.settings)


@pytest.mark.parametrize("value", ["origin", "local"])
def test_a_value_that_changes_nothing_is_safe(
    places: Places, storage: SchedulerStorage, admin: Connection, value: str
) -> None:
    place = f"DATABASE {admin.info.dbname}"
    with given(admin, place, "app.tenant_id", ""), given(admin, place, "session_replication_role", value):
        assert all(safe for safe, _ in places.answers(storage).values())


def test_a_session_that_names_no_tenant_would_see_the_rows_of_all(
    storage: SchedulerStorage, database: PostgresDatabase, admin: Connection
) -> None:
    storage.runs.create(make_run("acme", uuid4().hex))
    count = "SELECT count(*) > 0 FROM scheduler.runs"
    for safe in (True, False):
        with ExitStack() as stack:
            if not safe:
                stack.enter_context(given(admin, f"DATABASE {database.name}", "app.tenant_id", "system"))
            with psycopg.connect(database.app_url) as host:
                assert host.execute(count).fetchone() == (not safe,)
            assert ready(storage)[0] is safe


# ----------------------------------------------------------------------------- every way to the server


def test_a_service_goes_on_after_the_repair(settings: Settings, admin: Connection) -> None:
    with twinstore.add_scheduler_postgres_storage(settings) as storage:
        with given(admin, f"DATABASE {admin.info.dbname}", "app.tenant_id", TENANT):
            for _ in range(2):
                refusal(lambda: storage.runs.get("acme", "r"))
                assert not ready(storage)[0]
            refusal(lambda: storage.locks.try_acquire("lock", timeout=timedelta(0)))
            refusal(lambda: storage.bulk.counts(RUNS))
            with pytest.raises(ConfigurationError), storage.transaction("acme") as unit:
                unit.runs.get("acme", "r")
            # What repairs or names it goes on.
            assert storage.initializer.ensure_migrations().applied == ()
            assert storage.capabilities.row_level_security
        wait_until(lambda: ready(storage)[0], SECONDS)
        assert storage.runs.get("acme", "r") is None
        lock = storage.locks.try_acquire(uuid4().hex, timeout=timedelta(0))
        assert lock is not None
        lock.release()
        storage.check_ready()


def test_connections_of_a_host_are_refused_too(settings: Settings, login: str, admin: Connection) -> None:
    url = url_of(settings)
    place = f'ROLE "{login}"'
    with ConnectionPool(url, min_size=1, max_size=2) as pool:
        over_pool: Settings = {"Persistence": {"Postgres": {"Pool": pool}}}
        with twinstore.add_scheduler_postgres_storage(over_pool) as early:
            early.check_ready()
            with given(admin, place, "app.tenant_id", TENANT):
                refusal(lambda: use(over_pool))
                assert not ready(early)[0]
                with SchedulerDataSource(settings) as source:
                    refusal(lambda: source.open_connection("acme").__enter__())
                with (
                    twinstore.add_scheduler_postgres_storage(settings) as storage,
                    psycopg.connect(url) as joined,
                ):
                    refusal(lambda: storage.bind(joined, "acme").runs.get("acme", "r"))
            early.check_ready()
        use(over_pool)


def test_what_a_session_has_set_itself_is_the_business_of_the_application(
    settings: Settings, storage: SchedulerStorage
) -> None:
    with psycopg.connect(url_of(settings)) as host:
        host.execute("SET app.tenant_id = 'the-callers'")
        host.execute("SELECT set_config('app.tenant_id', 'now', true)")
        assert storage.bind(host, "acme").runs.get("acme", "r") is None
        assert host.execute("SELECT current_setting('app.tenant_id')").fetchone() == ("now",)
        host.commit()
        assert host.execute("SELECT current_setting('app.tenant_id')").fetchone() == ("the-callers",)


def test_an_option_of_the_connection_string_counts(
    settings: Settings, database: PostgresDatabase, login: str
) -> None:
    url = postgres_url(url_of(settings), options=f"-c app.tenant_id={TENANT}")
    changed = settings_of(database, login, ConnectionString=url)
    assert "or from the connection string" in refusal(lambda: use(changed))


@pytest.mark.pgbouncer
def test_it_is_noticed_behind_a_transaction_pooler(
    postgres_server: PostgresServer, database: PostgresDatabase, admin: Connection
) -> None:
    with pooler_before(postgres_server.url, default_pool_size=1) as pooler:
        settings = pooler.config(database)
        with twinstore.add_scheduler_postgres_storage(settings) as storage:
            storage.check_ready()
            with psycopg.connect(
                pooler.url(database.app_url), autocommit=True, prepare_threshold=None
            ) as other:
                other.execute(f"SET app.tenant_id = '{TENANT}'".encode())
            # Left by another client on the connection of the server; no session begins with it.
            storage.check_ready()
            use(settings)
            with given(admin, f"DATABASE {database.name}", "app.tenant_id", TENANT):
                # The connection of the server is older.
                assert not ready(storage)[0]
                assert f"ALTER DATABASE {database.name} RESET" in refusal(lambda: use(settings))
            storage.check_ready()
            use(settings)


# ------------------------------------------------------------------------- a role that may not read it


def test_a_role_that_may_not_read_the_catalogue_gets_unknown_with_the_grant(
    places: Places, settings: Settings, admin: Connection, login: str, caplog: pytest.LogCaptureFixture
) -> None:
    catalogue = "pg_catalog.pg_db_role_setting"
    admin.execute(b"REVOKE SELECT ON pg_catalog.pg_db_role_setting FROM PUBLIC")
    try:
        with twinstore.add_scheduler_postgres_storage(settings) as storage:
            storage.check_ready()
            assert f'GRANT SELECT ON {catalogue} TO "{login}";' in caplog.text
            answers = places.answers(storage)
            # A verdict is withheld. Its own session shows a service what counts for it.
            assert {name: safe for name, (safe, _) in answers.items()} == {
                "check_ready": True,
                "migrate verify": False,
                "doctor": True,
                "C8": False,
            }
            grant = f"GRANT SELECT ON {catalogue} TO {OWNER_ROLE};"
            for name in ("migrate verify", "doctor", "C8"):
                assert "Unknown: " in answers[name][1]
                assert grant in answers[name][1]
            with given(admin, f"DATABASE {admin.info.dbname}", "app.tenant_id", TENANT):
                said = refusal(lambda: use(settings))
                assert "app.tenant_id" in said
                assert "GRANT SELECT" in said
        admin.execute(grant.encode())
        with twinstore.add_scheduler_postgres_storage(settings) as storage:
            assert all(safe for safe, _ in places.answers(storage).values())
    finally:
        admin.execute(f"GRANT SELECT ON {catalogue} TO PUBLIC".encode())


# ------------------------------------------------------------------------------- the whole server


def test_settings_for_all_and_of_the_server_itself(
    tmp_path: Path, run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = run_directory / f"defaults-{uuid4().hex[:8]}"
    home.mkdir(mode=0o711)
    server = twinstore_embedded.start_postgres(home, durable=False, owned=True)
    try:
        with (
            closing(PostgresServer(server.superuser_url(), home)) as opened,
            opened.empty_database() as database,
            twinstore.add_scheduler_postgres_storage(settings_of(database, APP_ROLE)) as storage,
        ):
            storage.initializer.ensure_migrations()
            places = Places(settings_of(database, APP_ROLE), tmp_path, capsys)
            everywhere(places, storage, opened.admin)
    finally:
        server.stop()


def everywhere(places: Places, storage: SchedulerStorage, admin: psycopg.Connection) -> None:
    """Set what concerns every database of a server, and execute what is printed."""
    for place, name, value in (
        ("ROLE ALL", "app.tenant_id", TENANT),
        ("SYSTEM", "app.tenant_id", TENANT),
        ("SYSTEM", "session_replication_role", "replica"),
    ):
        admin.execute(f"ALTER {place} SET {name} = '{value}'".encode())
        admin.execute("SELECT pg_reload_conf()")
        assert wait_until(lambda: not ready(storage)[0], SECONDS)
        answers = places.answers(storage)
        expected = f"ALTER {place} RESET {name};"
        assert {safe for safe, _ in answers.values()} == {False}, (place, answers)
        (statement,) = {found for _, said in answers.values() for found in STATEMENT.findall(said)}
        assert statement.startswith(expected)
        assert all(statement in said and TENANT not in said for _, said in answers.values())
        assert expected in refusal(lambda: use(places.settings))
        for part in statement.split(";")[:-1]:
            admin.execute(part.encode())
        assert wait_until(lambda: ready(storage)[0], SECONDS)
        use(places.settings)
    assert {safe for safe, _ in places.answers(storage).values()} == {True}


# ---------------------------------------------------------------------------------- allowed settings


HOSTILE: Final = {
    "row_security": "'off'",
    "search_path": "theirs, pg_catalog",
    "default_transaction_read_only": "'on'",
    "default_transaction_isolation": "'serializable'",
    "default_transaction_deferrable": "'on'",
    "DateStyle": "'German, DMY'",
    "TimeZone": "'Asia/Kolkata'",
    "IntervalStyle": "'sql_standard'",
    "bytea_output": "'escape'",
    "extra_float_digits": "'-3'",
    "client_encoding": "'LATIN1'",
    "standard_conforming_strings": "'off'",
    "array_nulls": "'off'",
    "quote_all_identifiers": "'on'",
    "statement_timeout": "'5s'",
    "xmlbinary": "'hex'",
    "client_min_messages": "'error'",
    "lc_numeric": "'C'",
    "app.secret": f"'{TENANT}'",
}


@pytest.fixture
def hostile(postgres_server: PostgresServer, login: str) -> Iterator[PostgresDatabase]:
    """Make a database that gives sessions every setting on which a result could depend."""
    with postgres_server.migrated_database() as database:
        with psycopg.connect(database.superuser_url, autocommit=True) as admin:
            admin.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.runs ()")
            admin.execute("GRANT USAGE ON SCHEMA theirs TO PUBLIC")
            for place in (f"DATABASE {database.name}", f'ROLE "{login}" IN DATABASE {database.name}'):
                for name, value in HOSTILE.items():
                    admin.execute(f"ALTER {place} SET {name} = {value}".encode())
        yield database


def test_the_doctor_lists_them_by_name(
    hostile: PostgresDatabase, login: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "settings.json", settings_of(hostile, login))
    answer = invoke(capsys, "--config", config, "doctor", "--format", "json")
    assert (answer.code, TENANT in answer.out) == (0, False)
    (state,) = answer.json["databases"]
    assert (state["modules"], state["backend"]) == (["scheduler"], "Postgres")
    assert (state["defaults"]["unsafe"], state["defaults"]["unknown"]) == ([], [])
    names = {name.casefold() for name in HOSTILE}
    allowed = state["defaults"]["allowed"]
    for place in (f"(DATABASE {hostile.name})", f'(ROLE "{login}" IN DATABASE {hostile.name})'):
        assert {item.split()[0].casefold() for item in allowed if item.endswith(place)} == names
    shown = invoke(capsys, "--config", config, "doctor").out
    assert "Settings that change no result, and are allowed: " in shown
    assert invoke(capsys, "--config", config, "migrate", "verify").code == 0


def test_the_doctor_says_that_an_extension_such_as_citus_is_not_tested(
    database: PostgresDatabase,
    login: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = write_config(tmp_path / "settings.json", settings_of(database, login))
    assert "not tested" not in invoke(capsys, "--config", config, "doctor").out
    # Every database has this one, and no wheel has that of Citus.
    monkeypatch.setattr(roles, "UNTESTED", (*roles.UNTESTED, "plpgsql"))
    (state,) = invoke(capsys, "--config", config, "doctor", "--format", "json").json["databases"]
    assert state["defaults"]["remarks"] == ["The database has the extension plpgsql: not tested."]
    assert "the extension plpgsql: not tested." in invoke(capsys, "--config", config, "doctor").out


def test_the_doctor_says_what_it_could_not_ask(
    database: PostgresDatabase, login: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = settings_of(database, login, OwnerConnectionString=postgres_url(database.owner_url, port="1"))
    config = write_config(tmp_path / "settings.json", changed)
    answer = invoke(capsys, "--config", config, "doctor")
    assert answer.code == 0
    assert "Unknown: PostgreSQL at " in answer.out
    assert "fast path: " in answer.out
