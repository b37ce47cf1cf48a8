"""The initialiser of a module: migrations as the owner role, and what is said about their state."""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, Final

import psycopg
from psycopg import sql
from typing_extensions import override

from twinstore.errors import ConfigurationError, Effect, EffectKind, MigrationError, TwinstoreError
from twinstore.ledger import LEDGER_MODULE
from twinstore.migrations.applied import statuses
from twinstore.migrations.migration import (
    COUNTED_ROWS,
    ExportsPartitions,
    Initializer,
    MigrationReport,
    MigrationState,
    ReportsDefaults,
    TakesSnapshots,
    consent_required,
    logs_migration,
    migration_problems,
    without_consent,
)
from twinstore.migrations.revert import RevertsMigrations
from twinstore.runtime.service_log import Limiter, log_ready
from twinstore.storage.driver_names import bound_names, named_initializer
from twinstore_postgres.connection.data_source import source_class
from twinstore_postgres.connection.deadlines import LongRunningConnection, TimedConnection
from twinstore_postgres.connection.errors import reading, translated
from twinstore_postgres.connection.roles import extension_remarks, refuse_unsafe, roles_of, session_defaults
from twinstore_postgres.connection.target import MIGRATIONS, check_version
from twinstore_postgres.connection.undocumented import connection_kind, probe_connection, sentences
from twinstore_postgres.schema import files, migrator, revert
from twinstore_postgres.schema.comparison import (
    UnknownParts,
    describe_schema,
    missing_parts,
    or_unknown,
    schema_differences,
    shape_of,
    snapshot_of,
    undone,
    wanted_schema,
)
from twinstore_postgres.schema.migrator import added_columns, created_tables, forced_tables, naming_rights
from twinstore_postgres.schema.partitions import partitioned
from twinstore_postgres.schema.script import script
from twinstore_postgres.schema.sequences import numbering_differences, odd_sequences
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.migrations.migration import Consent, MigrationStatus, SchemaSnapshot, SessionDefaults
    from twinstore.migrations.revert import Reversal
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.connection.pool import ServerConnections
    from twinstore_postgres.schema.files import Migration
    from twinstore_postgres.settings import PostgresSettings

log = logging.getLogger("twinstore.postgres")

# Of a message; `migrate verify` lists every one.
MOST_LISTED_PROBLEMS: Final = 10
OWN_LEDGER: Final = """
SELECT FROM pg_class WHERE oid = to_regclass(%s) AND pg_has_role(relowner, 'USAGE')
"""


class PostgresInitializer(Initializer, TakesSnapshots, RevertsMigrations, ReportsDefaults, ExportsPartitions):
    """Implements :class:`~twinstore.migrations.migration.Initializer`.

    See :func:`initializer_class` for its module.
    """

    module: ClassVar[ModuleSpec[object]]

    def __init__(self, settings: PostgresSettings, server: ServerConnections) -> None:
        self._settings = settings
        self._server = server
        self._limiter = Limiter()  # probes ask often

    @override
    @logs_migration
    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        with (
            closing(self._connect()) as connection,
            translated(),
            naming_rights(connection, self.module),
        ):
            known = migrator.applied_migrations(connection, self.module)
            pending = self._pending(connection, known, release=release)
            check_consent(connection, self.module, pending, accept)
            if pending:
                self._check_role(connection)
            role = self._settings.application_role
            # Again under the lock of each file: rows may have been added, or tables that are not ours.
            done = [
                item.name
                for item in pending
                if migrator.apply(
                    connection,
                    self.module,
                    item,
                    role,
                    partial(check_one, connection, self.module, item, accept),
                )
            ]
            changes = self._upgrade_ledger(connection)
        return MigrationReport(
            module=self.module.name,
            backend=DRIVER,
            applied=tuple(done),
            already_applied=tuple(
                sorted(known | dict.fromkeys(item.name for item in pending if item.name not in done))
            ),
            changes=changes,
        )

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        """Return the tables whose rows would be hidden.

        Raises:
            MigrationError: tables that are not ours have the names of ours.
        """
        with closing(self._connect(qualified=True)) as connection, reading():
            known = migrator.applied_migrations(connection, self.module)
            return hidden_rows(connection, self.module, self._pending(connection, known, release=release))

    @override
    def status(self) -> tuple[MigrationStatus, ...]:
        with closing(self._connect(qualified=True)) as connection, reading():
            return self._statuses(connection)

    def _statuses(self, connection: Connection) -> tuple[MigrationStatus, ...]:
        applied = migrator.applied_migrations(connection, self.module)
        existing_differences = [
            item for item in migrator.shipped_migrations(self.module) if item.name in applied
        ]
        foreign = bool(existing_table_differences(connection, self.module, applied, existing_differences))
        found = statuses([item.status for item in migrator.shipped_migrations(self.module)], applied.values())
        return tuple(
            replace(item, state=MigrationState.CHANGED)
            if foreign and item.name in applied and not applied[item.name].checksum
            else item
            for item in found
        )

    @override
    def verify(self, *, additions: bool = True) -> tuple[str, ...]:
        with closing(self._connect(qualified=True)) as connection, reading():
            role = self._settings.application_role
            compare = partial(schema_differences, connection, self.module, role, additions=additions)
            found = or_unknown(connection, compare)
            remedy = f"twinstore migrate run --module {self.module.name} --backend {DRIVER}"
            numbering = or_unknown(connection, partial(numbering_differences, connection, self.module))
            given = self._defaults(connection)
            return (
                *migration_problems(self._statuses(connection), remedy),
                *dict.fromkeys((*found, *numbering)),
                *given.unsafe,
                *given.unknown,
            )

    @override
    def export(self, names: Collection[str] | None = None) -> str:
        return script(self.module, self._settings.application_role, names)

    @override
    def export_partitioned(self, counts: Mapping[str, int]) -> str:
        return partitioned(self.export(), self.module, wanted_schema(self.module), counts)

    @override
    def snapshot(self) -> SchemaSnapshot:
        with closing(self._connect(qualified=True)) as connection, reading():
            return snapshot_of(connection, self.module, self._settings.application_role)

    @override
    def session_defaults(self) -> SessionDefaults:
        kind = connection_kind(pooled=False)
        with closing(self._connect(kind, qualified=True)) as connection, reading():
            found = self._defaults(connection)
            remarks = extension_remarks(connection)
            probe_connection(connection)
        # Where the pool cannot open a connection, the settings above show why.
        with suppress(TwinstoreError), self._server.connection():
            pass
        return replace(found, client=sentences(), remarks=remarks)

    def _defaults(self, connection: Connection) -> SessionDefaults:
        return session_defaults(connection, roles_of(self._settings))

    def check_defaults(self, connection: Connection) -> None:
        """Raise ``ConfigurationError`` where sessions of our roles begin with unsafe settings.

        Settings that the role may not read are not a reason: its own session shows what counts for it.
        """
        if not self._server.bound:
            return
        with reading():
            found = self._defaults(connection)
        for sentence in found.unknown:
            if self._limiter.passes(sentence) is not None:
                log.warning("%s", sentence)
        refuse_unsafe(found.unsafe)

    @override
    def reversal(self, migration: str) -> Reversal:
        with closing(self._connect()) as connection, reading():
            return revert.reversal(connection, self.module, migration)

    @override
    def revert(self, migration: str, *, accept: AbstractSet[Consent] = frozenset()) -> Reversal:
        with closing(self._connect()) as connection, translated():
            return revert.revert(connection, self.module, migration, accept)

    def check_applied(self, connection: Connection) -> None:
        """Raise ``MigrationError`` while a migration is pending, changed or unknown, or its work undone.

        A table without its row-level security, policy, column or key is undone work. So is a right of the
        role or of all roles, or a policy, that no migration gave; an index that gets no new rows; a sequence
        with other settings. Only ``verify`` reports the rest, such as a missing index for speed.
        """
        with reading():
            applied = self._readable_ledger(connection)
        migrator.check_ledger(self.module, applied)
        pending = [
            item.name
            for item in migrator.shipped_migrations(self.module)
            if item.name not in applied and _wanted(item, release=False)
        ]
        if pending:
            raise MigrationError(
                f"Migrations of schema {self.module.name} are pending: {', '.join(pending)}. "
                f"Run: twinstore migrate run --module {self.module.name} --backend {DRIVER}",
                module=self.module.name,
                driver=DRIVER,
            )
        differences = self._undone(connection)
        if differences:
            more = len(differences) - MOST_LISTED_PROBLEMS
            listed = " ".join(differences[:MOST_LISTED_PROBLEMS])
            raise MigrationError(
                f"The schema {self.module.name} is not as its migrations made it. {listed}"
                f"{f' And {more} more.' if more > 0 else ''} Restore it; `twinstore migrate verify --module "
                f"{self.module.name}` lists every difference.",
                module=self.module.name,
                driver=DRIVER,
            )
        version = connection.info.server_version
        log_ready(
            self.module.name, DRIVER, f"{version // 10000}.{version % 10000}", max(applied, default="none")
        )

    def _undone(self, connection: Connection) -> tuple[str, ...]:
        """Return what of the migrations is undone.

        Raises:
            MigrationError: the role may not read the catalogue, so that protection of tenants is unknown.
        """
        with reading():
            compare = partial(undone, connection, self.module, bound=self._server.bound)
            found = or_unknown(connection, compare)
            numbering = or_unknown(connection, partial(odd_sequences, connection, self.module))
        if found and isinstance(found[0], UnknownParts):
            raise MigrationError(
                f"The schema {self.module.name} cannot be checked. {found[0]}",
                module=self.module.name,
                driver=DRIVER,
            )
        # Without it a service works as before; only its numbers may end.
        for sentence in numbering:
            if isinstance(sentence, UnknownParts) and self._limiter.passes(sentence) is not None:
                log.warning("%s", sentence)
        return (*found, *(item for item in numbering if not isinstance(item, UnknownParts)))

    def _readable_ledger(self, connection: Connection) -> dict[str, MigrationStatus]:
        try:
            return migrator.applied_migrations(connection, self.module)
        except psycopg.errors.InsufficientPrivilege as error:
            name = self.module.name
            raise MigrationError(
                f"The role of ConnectionString may not read {name}.schema_migrations: the migrations of "
                f"schema {name} were interrupted before they granted it, or they name another role "
                f"(ApplicationRole). Run: twinstore migrate run --module {name}; if nothing is pending, "
                f"`twinstore migrate verify --module {name}` shows the grants that are missing.",
                module=name,
                driver=DRIVER,
            ) from error

    def _pending(
        self, connection: Connection, known: dict[str, MigrationStatus], *, release: bool
    ) -> list[Migration]:
        """Return what would be applied, after a check of the tables that already exist in its place."""
        shipped = migrator.shipped_migrations(self.module)
        migrator.check_ledger(self.module, known)
        wanted = [item for item in shipped if item.name in known or _wanted(item, release=release)]
        check_existing_tables(connection, self.module, known, wanted)
        return [item for item in wanted if item.name not in known]

    def _upgrade_ledger(self, connection: Connection) -> tuple[str, ...]:
        """Bring the ledger of copies next to the module up to date; return what was done.

        Only a copy creates one, and the next copy may never come, while its tables continue to hold rows of
        all tenants. Granting rights is left to that copy, which knows its role.
        """
        known = {} if self.module.name == LEDGER_MODULE.name else ledger_of_owner(connection)
        done: list[str] = []
        for item in migrator.shipped_migrations(LEDGER_MODULE) if known else ():
            if item.name in known:
                continue
            if files.ROLE_VARIABLE in item.text:
                break
            check = partial(check_one, connection, LEDGER_MODULE, item, frozenset())
            if migrator.apply(connection, LEDGER_MODULE, item, self._settings.application_role, check):
                done.append(f"schema {LEDGER_MODULE.name}: applied {item.name}")
        return tuple(done)

    def _connect(
        self, kind: type[TimedConnection] = LongRunningConnection, *, qualified: bool = False
    ) -> Connection:
        """Connect as the owner, ``qualified`` to look at the catalog, which shows names by the path."""
        # Only the owner of the schemas may change them, and requests are answered by another role.
        own = self._settings.owner_connection_string
        target = self._server.direct.target_for(MIGRATIONS, own)()
        connection = target.connect(kind, qualified=qualified)
        try:
            check_version(connection)
        except ConfigurationError:
            connection.close()
            raise
        return connection

    def _check_role(self, connection: Connection) -> None:
        role = self._settings.application_role
        if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).rowcount == 0:
            raise MigrationError(
                f"The application role {role!r} does not exist, so nothing can be granted to it. "
                f"An administrator must run: {migrator.create_role(role)}",
                module=self.module.name,
                driver=DRIVER,
            )


def ledger_of_owner(connection: Connection) -> dict[str, MigrationStatus]:
    """Return what is applied of a ledger of copies that the role owns and this library can continue."""
    if connection.execute(OWN_LEDGER, [f"{LEDGER_MODULE.name}.schema_migrations"]).fetchone() is None:
        return {}
    known = migrator.applied_migrations(connection, LEDGER_MODULE)
    shipped = {item.name for item in migrator.shipped_migrations(LEDGER_MODULE)}
    return known if known.keys() <= shipped else {}


def check_one(
    connection: Connection, module: ModuleSpec[object], migration: Migration, accept: AbstractSet[Consent]
) -> None:
    """Refuse to apply one file over tables that are not ours, or without consent to what it hides."""
    check_existing_tables(connection, module, {}, [migration])
    check_consent(connection, module, [migration], accept)


def check_consent(
    connection: Connection,
    module: ModuleSpec[object],
    pending: Iterable[Migration],
    accept: AbstractSet[Consent],
) -> None:
    """Refuse to hide rows of tables that the caller has not named."""
    missing = without_consent(hidden_rows(connection, module, pending), accept)
    if missing:
        raise consent_required(missing, "Nothing was changed.", module=module.name, driver=DRIVER)


def _wanted(migration: Migration, *, release: bool) -> bool:
    return release or migration.category != "release"


@cache
def initializer_class(module: ModuleSpec[object]) -> type[PostgresInitializer]:
    """Return the initialiser of a module."""
    return named_initializer(PostgresInitializer, module, DRIVER, module=module)


def __getattr__(name: str) -> type:
    """Return a class that hosts import by the name of its module."""
    # Each import from here asks for `__path__` first.
    if name[:1].isupper():
        found = bound_names(__name__.partition(".")[0], DRIVER, initializer_class, source_class).get(name)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Which tables exist where one of our migrations would put its own, and which rows forcing row-level security
# would hide.
#
# A schema of the same name may belong to another application. Its tables are taken over only when they have
# the wanted shape, and rows are hidden only with consent. Nothing here changes anything.


# What a file of ours adds to no table that is there already, and what it adds by itself.
MADE_WITH_THE_TABLE: Final = ("column ", "key ")
MADE_BY_THE_FILE: Final = (*MADE_WITH_THE_TABLE, "index ")
POLICY: Final = "policy "
MOST_LISTED_ROWS: Final = 50
# Relations of a name that a table should have, and whether their rows are already hidden from all roles.
RELATIONS: Final = """
SELECT c.relname, c.relkind IN ('r', 'p'), c.relforcerowsecurity AND c.relrowsecurity
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = ANY (%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
COUNT: Final = "SELECT count(*) FROM (SELECT FROM {table} LIMIT {limit}) AS counted"


def existing_table_differences(
    connection: Connection,
    module: ModuleSpec[object],
    applied: Mapping[str, MigrationStatus],
    migrations: Iterable[Migration],
) -> tuple[str, ...]:
    """Return how tables that none of our migrations created differ from the wanted ones, one sentence each.

    Those are all tables of a migration that is applied under a planning name, and the existing tables of a
    pending one. The wanted shape is that after all migrations, without the columns that a pending one adds.
    Its other changes of a table of an earlier one cannot be distinguished from a difference, and are refused.
    """
    named: set[str] = set()
    pending: set[str] = set()
    # Of all files: those of one call may be a part of what is pending.
    later = [migration for migration in migrator.shipped_migrations(module) if migration.name not in applied]
    added = tuple(f"column {column}:" for migration in later for column in added_columns(migration))
    for migration in migrations:
        if migration.name not in applied:
            pending.update(created_tables(migration))
        elif not applied[migration.name].checksum:
            named.update(created_tables(migration))
    relations = relations_of(connection, module.name, sorted(named | pending))
    if not named and not relations:
        return ()
    odd = {name for name, (ordinary, _) in relations.items() if not ordinary}
    wanted, real = shape_of(wanted_schema(module)), shape_of(describe_schema(connection, module.name))
    found = [f"Not wanted: {module.name}.{name} is not an ordinary table." for name in sorted(odd)]
    for table in sorted((named | (pending & set(relations))) - odd):
        kinds = MADE_BY_THE_FILE if table in named else MADE_WITH_THE_TABLE
        # A table that a later file drops again is wanted in no shape.
        shape = wanted.get(table, set())
        shape = {part for part in shape if not part.startswith(added)} | (shape & real.get(table, set()))
        found += missing_parts(table, parts(shape, kinds), real)
        found += unwanted(shape, real.get(table, set()), (*kinds, POLICY))
    return tuple(found)


def check_existing_tables(
    connection: Connection,
    module: ModuleSpec[object],
    applied: Mapping[str, MigrationStatus],
    migrations: Iterable[Migration],
) -> None:
    """Refuse to take over tables that do not have the wanted shape.

    Raises:
        MigrationError: names the differences.
    """
    differences = existing_table_differences(connection, module, applied, migrations)
    if not differences:
        return
    more = len(differences) - MOST_LISTED_ROWS
    listed = " ".join(differences[:MOST_LISTED_ROWS])
    raise MigrationError(
        f"The schema {module.name} has tables that twinstore did not make and that are not as it wants them; "
        f"nothing was changed. {listed}{f' And {more} more.' if more > 0 else ''} Give the module its own "
        "database, or bring these tables in line first.",
        module=module.name,
        driver=DRIVER,
    )


def hidden_rows(
    connection: Connection, module: ModuleSpec[object], pending: Iterable[Migration]
) -> tuple[Effect, ...]:
    """Return the tables with rows behind which pending migrations would force row-level security."""
    names = sorted(set[str]().union(*map(forced_tables, pending)))
    open_ones = [
        name
        for name, (ordinary, forced) in sorted(relations_of(connection, module.name, names).items())
        if ordinary and not forced
    ]
    return tuple(
        Effect(kind=EffectKind.RLS, name=name, rows=min(rows, COUNTED_ROWS), more=rows > COUNTED_ROWS)
        for name, rows in counted(connection, module.name, open_ones)
        if rows
    )


def relations_of(
    connection: Connection, schema: str, names: Sequence[str]
) -> Mapping[str, tuple[bool, bool]]:
    """Return the relations of these names: whether each is a table, and under forced row-level security."""
    if not names:
        return {}
    rows = connection.execute(RELATIONS, [schema, list(names)]).fetchall()
    return {name: (ordinary, forced) for name, ordinary, forced in rows}


def counted(connection: Connection, schema: str, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the rows of tables, one more than is counted where there are more.

    Table by table: a statement over several would hold the lock of one while it waits for another, and so
    deadlock with another process that is migrating them.
    """
    found: list[tuple[str, int]] = []
    for name in names:
        count = sql.SQL(COUNT).format(table=sql.Identifier(schema, name), limit=sql.Literal(COUNTED_ROWS + 1))
        ((rows,),) = connection.execute(count).fetchall()
        found.append((name, int(rows)))
    return found


def unwanted(wanted: AbstractSet[str], real: AbstractSet[str], kinds: tuple[str, ...]) -> list[str]:
    """Return one sentence for each part of these kinds that only the real table has."""
    return [f"Not wanted: {part}." for part in sorted(parts(real, kinds) - wanted)]


def parts(shape: AbstractSet[str], kinds: tuple[str, ...]) -> set[str]:
    """Return the parts of these kinds."""
    return {part for part in shape if part.startswith(kinds)}
