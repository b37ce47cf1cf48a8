"""The protection of tenants is checked: row-level security, policies and rights, by the role that answers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from docs.parts.entities import MODULES
from tests.support.databases import APP_ROLE, OWNER_ROLE, PASSWORD, for_every_module
from tests.support.databases import POSTGRES_FILES as FILES
from tests.support.servers import postgres_url
from twinstore import open_storage
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import ConfigurationError, MigrationError, TwinstoreError
from twinstore.ledger import LEDGER_MODULE
from twinstore.ledger.catalog import WORKERS
from twinstore.scheduler.module import MODULE
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.schema import migrator
from twinstore_postgres.schema.migrator import shipped_migrations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.databases import PostgresDatabase, PostgresServer
    from tests.support.servers import Settings
    from twinstore.storage.open import Storage

Connection = psycopg.Connection[Any]

# Every table whose rows belong to tenants, of every module that is shipped.
OWNED: Final = [
    (module.name, entity.name)
    for module in MODULES
    for entity in module.catalog.entities
    if table_of(entity).owned
]


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """Create a database with every module and the ledger of copies; each test restores what it changes."""
    with postgres_server.complete_database() as found:
        yield found


@pytest.fixture(scope="module")
def settings(database: PostgresDatabase) -> Settings:
    return for_every_module(database.config, "Postgres")


@pytest.fixture(scope="module")
def storage(settings: Settings) -> Iterator[Storage]:
    """Open every module, and use each: what is changed later was right at the first use."""
    with open_storage(settings) as opened:
        for module in MODULES:
            opened.module(module.name).check_ready()
        yield opened


@pytest.fixture
def owner(database: PostgresDatabase) -> Iterator[Connection]:
    with psycopg.connect(database.owner_url, autocommit=True) as connection:
        yield connection


@contextmanager
def changed(owner: Connection, change: str, undo: str) -> Iterator[None]:
    """Change something for the length of a block."""
    owner.execute(change.encode())
    try:
        yield
    finally:
        owner.execute(undo.encode())


def refused(act: Callable[[], object], kind: type[TwinstoreError] = MigrationError) -> str:
    """Return what a refusal says."""
    with pytest.raises(TwinstoreError) as caught:
        act()
    assert type(caught.value) is kind, caught.value
    return caught.value.message


def first_use(settings: Settings, module: str) -> None:
    """Open a storage and let it make a call."""
    with open_storage(settings) as storage, storage.module(module).transaction("tenant") as unit:
        assert unit is not None


@pytest.mark.parametrize(
    "switched",
    ["DISABLE ROW LEVEL SECURITY", "NO FORCE ROW LEVEL SECURITY"],
)
def test_row_level_security_that_is_off_is_noticed_on_every_table(
    storage: Storage, settings: Settings, owner: Connection, switched: str
) -> None:
    for module, table in OWNED:
        mended = f"ALTER TABLE {module}.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
        with changed(owner, f"ALTER TABLE {module}.{table} {switched}", mended):
            said = refused(storage.module(module).check_ready)
            assert f"table {table}: row-level security forced" in said
            assert mended in said
            # Also before anything is asked, whatever it is.
            assert mended in refused(lambda name=module: first_use(settings, name))  # type: ignore[misc]
        storage.module(module).check_ready()
    assert len(OWNED) > 12


def test_a_connection_of_the_caller_is_looked_at_too(
    storage: Storage, database: PostgresDatabase, owner: Connection
) -> None:
    off = "ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY"
    with (
        changed(owner, off, off.replace("DISABLE", "ENABLE")),
        psycopg.connect(database.app_url) as connection,
    ):
        joined = storage.scheduler.bind(connection, "tenant")
        assert "scheduler.runs" in refused(lambda: joined.runs.get("tenant", "r"))


CHANGES: Final = {
    "a policy that is gone": (
        "DROP POLICY tenant_isolation ON {table}",
        "Missing: policy {name}.tenant_isolation",
        "CREATE POLICY tenant_isolation ON {table} AS PERMISSIVE FOR ALL TO public USING (",
    ),
    "a policy with another condition": (
        "ALTER POLICY tenant_isolation ON {table} USING (true)",
        "Found: PERMISSIVE ALL to public USING (true)",
        "DROP POLICY tenant_isolation ON {table}; CREATE POLICY tenant_isolation ON {table} AS",
    ),
    "a policy for fewer roles": (
        "ALTER POLICY tenant_isolation ON {table} TO current_user",
        "Missing: policy {name}.tenant_isolation",
        "DROP POLICY tenant_isolation ON {table}; CREATE POLICY",
    ),
    "one more policy": (
        "CREATE POLICY theirs ON {table} FOR SELECT USING (true)",
        "Not wanted: policy {name}.theirs",
        "DROP POLICY theirs ON {table};",
    ),
    "the right to empty a table": (
        "GRANT TRUNCATE ON {table} TO {app}",
        "Not wanted: grant {name}: TRUNCATE",
        "REVOKE TRUNCATE ON {table} FROM {app};",
    ),
    "a right of everybody": (
        "GRANT REFERENCES ON {table} TO PUBLIC",
        "Not wanted: public grant {name}: REFERENCES",
        "FROM PUBLIC",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("module", [module.name for module in MODULES if module.name != "tracking"])
def test_a_policy_or_a_right_that_no_migration_gave_is_noticed(
    storage: Storage, database: PostgresDatabase, module: str, change: str
) -> None:
    names = [table for owner, table in OWNED if owner == module]
    done, *said = CHANGES[change]
    with psycopg.connect(database.owner_url, autocommit=True) as owner:
        for name in (names[0], names[-1]):
            place = {"table": f"{module}.{name}", "name": name, "app": APP_ROLE}
            before = definition(owner, module, name)
            owner.execute(done.format(**place).encode())
            try:
                answer = refused(storage.module(module).check_ready)
                assert all(words.format(**place) in answer for words in said), answer
                assert f"migrate verify --module {module}" in answer
            finally:
                restore(owner, module, name, before)
            storage.module(module).check_ready()


def definition(owner: Connection, module: str, table: str) -> tuple[str, str]:
    """Return the conditions of the policy of a table, for rows that are read and that are written."""
    query = "SELECT qual, with_check FROM pg_policies WHERE schemaname = %s AND tablename = %s"
    ((read, written),) = owner.execute(query, [module, table]).fetchall()
    return read, written


def restore(owner: Connection, module: str, table: str, conditions: tuple[str, str]) -> None:
    """Bring back the policy of a table, and the rights that all and the application role have."""
    name = f"{module}.{table}"
    read, written = conditions
    owner.execute(
        f"""
        DROP POLICY IF EXISTS theirs ON {name};
        DROP POLICY IF EXISTS tenant_isolation ON {name};
        CREATE POLICY tenant_isolation ON {name} USING ({read}) WITH CHECK ({written});
        REVOKE TRUNCATE ON {name} FROM {APP_ROLE};
        REVOKE REFERENCES ON {name} FROM PUBLIC;
        """.encode()
    )


def test_the_ledger_of_migrations_and_single_columns_count_too(storage: Storage, owner: Connection) -> None:
    for right in ("UPDATE (message) ON scheduler.audit", "DELETE ON tracking.schema_migrations"):
        with changed(owner, f"GRANT {right} TO {APP_ROLE}", f"REVOKE {right} FROM {APP_ROLE}"):
            module = right.partition(" ON ")[2].partition(".")[0]
            said = refused(storage.module(module).check_ready)
            assert "Not wanted: grant" in said
            assert f"REVOKE {right.partition(' ON ')[0]} ON " in said


def test_a_right_that_is_missing_is_left_to_the_call_that_needs_it(
    storage: Storage, owner: Connection
) -> None:
    right = "DELETE ON scheduler.runs"
    with changed(owner, f"REVOKE {right} FROM {APP_ROLE}", f"GRANT {right} TO {APP_ROLE}"):
        storage.scheduler.check_ready()


@pytest.mark.parametrize("schema", [module.name for module in MODULES])
def test_a_search_path_that_leads_to_the_tables_changes_nothing(
    database: PostgresDatabase, settings: Settings, schema: str
) -> None:
    """The server then names in a policy no schema of the tables that it looks at."""
    name = sql.Identifier(database.name)
    with psycopg.connect(database.superuser_url, autocommit=True) as admin:
        path = sql.SQL("ALTER DATABASE {} SET search_path = {}")
        admin.execute(path.format(name, sql.Identifier(schema)))
        try:
            with open_storage(settings) as storage:
                for module in MODULES:
                    storage.module(module.name).check_ready()
        finally:
            admin.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(name))


# ------------------------------------------------------------------------------------------------- roles


@pytest.fixture
def login(database: PostgresDatabase) -> Iterator[tuple[Connection, str, str]]:
    """Make a role that logs in and has what the application role has, and a name for one above it."""
    mark = uuid4().hex[:8]
    name, above = f"login_{mark}", f"above_{mark}"
    with psycopg.connect(database.superuser_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' IN ROLE {APP_ROLE}".encode())
        try:
            yield admin, name, above
        finally:
            admin.execute(f"DROP ROLE IF EXISTS {above}; DROP ROLE {name}".encode())


def as_role(database: PostgresDatabase, name: str) -> Settings:
    url = postgres_url(database.app_url, user=name)
    return {"Persistence": {"Scheduler": "Postgres", "Postgres": {"ConnectionString": url}}}


def test_a_login_that_has_what_the_application_role_has_is_enough(
    database: PostgresDatabase, login: tuple[Connection, str, str]
) -> None:
    with open_storage(as_role(database, login[1])) as storage:
        storage.scheduler.check_ready()


@pytest.mark.parametrize("attribute", ["BYPASSRLS", "SUPERUSER"])
@pytest.mark.parametrize("inherits", ["INHERIT", "NOINHERIT"])
def test_a_role_that_can_become_one_which_no_policy_binds_is_refused(
    database: PostgresDatabase, login: tuple[Connection, str, str], attribute: str, inherits: str
) -> None:
    admin, name, above = login
    admin.execute(f"CREATE ROLE {above} {attribute}; ALTER ROLE {name} {inherits}".encode())
    admin.execute(f"GRANT {above} TO {name}".encode())
    said = refused(lambda: first_use(as_role(database, name), "scheduler"), ConfigurationError)
    assert f"The role {name!r} can become {above}, which no policy binds" in said


def test_a_role_that_can_become_the_owner_is_refused(
    database: PostgresDatabase, login: tuple[Connection, str, str]
) -> None:
    admin, name, _ = login
    admin.execute(f"ALTER ROLE {name} NOINHERIT; GRANT {OWNER_ROLE} TO {name}".encode())
    said = refused(lambda: first_use(as_role(database, name), "scheduler"), ConfigurationError)
    assert "owns the tables of schema scheduler" in said


@pytest.mark.parametrize("url", ["superuser_url", "owner_url"])
def test_who_logged_in_counts_although_the_role_is_another_one(database: PostgresDatabase, url: str) -> None:
    """RESET ROLE goes back to it."""
    text = postgres_url(getattr(database, url), options=f"-c role={APP_ROLE}")
    postgres = {"ConnectionString": text}
    settings: Settings = {"Persistence": {"Scheduler": "Postgres", "Postgres": postgres}}
    if url == "owner_url":
        with psycopg.connect(database.superuser_url, autocommit=True) as admin:
            admin.execute(f"GRANT {APP_ROLE} TO {OWNER_ROLE}".encode())
            try:
                said = refused(lambda: first_use(settings, "scheduler"), ConfigurationError)
            finally:
                admin.execute(f"REVOKE {APP_ROLE} FROM {OWNER_ROLE}".encode())
    else:
        said = refused(lambda: first_use(settings, "scheduler"), ConfigurationError)
    assert "row-level security does not protect the tenants" in said


# -------------------------------------------------------------------------------- interrupted migrations


def test_between_two_migrations_the_error_is_always_that_migrations_are_needed(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = shipped_migrations(MODULE)
    with postgres_server.empty_database() as database:
        for number in range(1, len(FILES)):
            with monkeypatch.context() as patch:
                patch.setattr(migrator, "shipped_migrations", lambda _, end=number: shipped[:end])
                with open_storage(database.config) as storage:
                    assert (
                        storage.scheduler.initializer.ensure_migrations().applied
                        == FILES[number - 1 : number]
                    )
            with open_storage(database.config) as storage:
                # The capabilities of the server can be read before the migrations run.
                assert storage.scheduler.capabilities.row_level_security
                said = refused(storage.scheduler.check_ready)
                assert "twinstore migrate run" in said, said
                # No call is asked of tables whose rows every tenant would see.
                if number == 1:
                    refused(lambda reader=storage.scheduler.runs: reader.get("tenant", "r"))  # type: ignore[misc]


# ------------------------------------------------------------------------------------- ledger of copies


LEDGER: Final = [entity.name for entity in LEDGER_MODULE.catalog.entities]


@pytest.mark.parametrize("tenant", [None, "", "acme"])
def test_who_acts_for_a_tenant_neither_sees_nor_changes_the_ledger_of_copies(
    database: PostgresDatabase, storage: Storage, tenant: str | None
) -> None:
    access = storage.scheduler.bulk.access()
    name = uuid4().hex
    with psycopg.connect(database.superuser_url, autocommit=True) as admin:
        admin.execute("INSERT INTO twinstore.workers VALUES (%s, 'w', now())", [name])
    with psycopg.connect(database.app_url, autocommit=True) as app:
        if tenant is not None:
            app.execute("SELECT set_config('app.tenant_id', %s, false)", [tenant])
        for table in LEDGER:
            place = sql.Identifier("twinstore", table)
            assert app.execute(sql.SQL("SELECT count(*) FROM {}").format(place)).fetchone() == (0,)
            assert app.execute(sql.SQL("DELETE FROM {}").format(place)).rowcount == 0
        assert app.execute("UPDATE twinstore.workers SET worker = 'x'").rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            app.execute("INSERT INTO twinstore.workers VALUES ('j', 'w', now())")
    assert [row is not None for row in access.find(WORKERS, ALL_TENANTS, [(name, "w")])] == [True]


@pytest.mark.parametrize("table", ["backfill_jobs", "backfill_ranges"])
def test_only_the_owner_reads_the_ledger_of_the_first_release(database: PostgresDatabase, table: str) -> None:
    with (
        psycopg.connect(database.app_url) as app,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"),
    ):
        app.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("scheduler", table)))
