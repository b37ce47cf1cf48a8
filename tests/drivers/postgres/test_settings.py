from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, cast

import psycopg
import pydantic
import pytest
from pydantic import SecretStr
from pydantic.alias_generators import to_pascal

from twinstore.clock import SystemClock
from twinstore.config import load_settings
from twinstore.errors import ConfigurationError, Outcome, UnavailableError
from twinstore.plugins.backend import OpenRequest
from twinstore.plugins.resources import SharedResources
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.options import SchedulerOptions
from twinstore_postgres.connection.target import LOCKS, Route, direct_target, target_of
from twinstore_postgres.plugin import open_backend, twinstore_register_backend
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

URL = "postgresql://app:PLANTED@db.example:5433/things"


def request(settings: PostgresSettings) -> OpenRequest:
    return OpenRequest(
        module=MODULE,
        settings=settings,
        options=SchedulerOptions(),
        resources=SharedResources(),
        clock=SystemClock(),
    )


def test_the_description_is_light() -> None:
    code = (
        "import sys, twinstore_postgres.plugin as plugin; plugin.twinstore_register_backend();"
        "print('psycopg' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
    assert twinstore_register_backend().name == "Postgres"


def test_defaults_are_the_documented_ones() -> None:
    settings = PostgresSettings()
    assert (settings.application_role, settings.pool_min, settings.pool_max) == ("twinstore_app", 1, 10)
    assert (settings.statement_timeout_ms, settings.allow_unsafe_role) == (30_000, False)


def test_keys_of_files_are_pascal_case() -> None:
    settings = PostgresSettings.model_validate(
        {"ConnectionString": URL, "PoolMax": 3, "AllowUnsafeRole": True}
    )
    assert (settings.pool_max, settings.allow_unsafe_role) == (3, True)


def test_no_representation_shows_a_secret() -> None:
    settings = PostgresSettings(
        connection_string=SecretStr(URL),
        owner_connection_string=SecretStr(URL),
        lock_connection_string=SecretStr(URL),
    )
    assert "PLANTED" not in f"{settings!r} {settings} {settings.model_dump()}"


def test_the_minimum_of_a_pool_cannot_exceed_its_maximum() -> None:
    with pytest.raises(pydantic.ValidationError, match="PoolMin"):
        PostgresSettings(pool_min=5, pool_max=4)


def test_opening_does_no_input_or_output() -> None:
    unreachable = SecretStr("postgresql://nobody@203.0.113.1:1/none")
    backend = open_backend(request(PostgresSettings(connection_string=unreachable)))
    assert backend.driver == "Postgres"
    backend.close()


def test_a_missing_connection_string_is_named() -> None:
    with pytest.raises(ConfigurationError, match="Persistence:Postgres:ConnectionString"):
        open_backend(request(PostgresSettings()))


@pytest.mark.parametrize(
    "text", ["host=h password='PLANTED dbname=x", "postgresql://a:PLANTED@[::1/x", "PLANTED"]
)
def test_a_malformed_connection_string_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        target_of(SecretStr(text), PostgresSettings(), purpose="The connection string")
    assert "PLANTED" not in caught.value.message
    assert caught.value.__cause__ is None


def test_a_password_with_a_bare_at_sign_is_not_shown_as_a_host() -> None:
    text = SecretStr("postgresql://app:first@PLANTED@db.example/things")
    with pytest.raises(ConfigurationError, match="%40") as caught:
        target_of(text, PostgresSettings(), purpose="The connection string")
    assert "PLANTED" not in caught.value.message


def test_an_abstract_socket_is_a_host() -> None:
    assert (
        target_of(SecretStr("host=@/tmp/pg dbname=x"), PostgresSettings(), purpose="x").place == "@/tmp/pg/x"
    )


class AskedForPassword:
    """What is left of a connection that failed after the password was sent."""

    used_password, needs_password = True, False


@pytest.mark.parametrize(
    "said",
    [
        'FATAL: too many connections for role "app"',
        "FATAL: sorry, too many clients already",
        "FATAL: remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "FATAL: the database system is starting up",
        "FATAL: the database system is shutting down",
        "FATAL: terminating connection due to unexpected postmaster exit",
        "server closed the connection unexpectedly",
        # Of pgbouncer.
        "FATAL: no more connections allowed (max_client_conn)",
        'FATAL: database "things" is disabled',
        "FATAL: database removed",
        "FATAL: query_wait_timeout",
        "FATAL: client_login_timeout (server down)",
        "FATAL: server login has been failing, try again later (server_login_retry)",
        "FATAL: pgbouncer cannot connect to server",
        "FATAL: server conn crashed?",
    ],
)
def test_a_full_server_or_one_that_goes_is_no_mistake_in_the_settings(said: str) -> None:
    target = target_of(SecretStr(URL), PostgresSettings(), purpose="The connection string")
    failed = psycopg.OperationalError(said, pgconn=cast("PGconn", AskedForPassword()))
    error = target.explain(failed)
    assert isinstance(error, UnavailableError)
    assert error.outcome is Outcome.NOT_APPLIED
    assert error.full == any(words in said for words in ("too many", "slots", "no more"))


def test_what_is_hidden_of_a_full_server_is_not_in_the_advice_either() -> None:
    secret = SecretStr("postgresql://system:system@db.example/things")
    target = target_of(secret, PostgresSettings(), purpose="The connection string")
    error = target.explain(psycopg.OperationalError('FATAL: too many connections for role "system"'))
    assert isinstance(error, UnavailableError)
    assert error.full
    assert "system" not in error.message.replace("FATAL", "")
    assert error.message.endswith("cannot be used: OperationalError. Try again later.")


@pytest.mark.parametrize(("name", "quoted"), [("app", '"app"'), ('a"b', '"a""b"')])
def test_the_role_whose_limit_to_raise_is_named_as_a_statement_has_it(name: str, quoted: str) -> None:
    target = target_of(SecretStr(URL), PostgresSettings(), purpose="The connection string")
    # The server writes a name as it is.
    error = target.explain(psycopg.OperationalError(f'FATAL: too many connections for role "{name}"'))
    assert error.message.endswith(f"raise it: ALTER ROLE {quoted} CONNECTION LIMIT <number>.")


def test_what_a_server_said_is_judged_also_where_it_is_not_shown() -> None:
    secret = SecretStr("postgresql://app:system@db.example/things")
    target = target_of(secret, PostgresSettings(), purpose="The connection string")
    said = "FATAL: the database system is starting up"
    error = target.explain(psycopg.OperationalError(said, pgconn=cast("PGconn", AskedForPassword())))
    assert isinstance(error, UnavailableError)
    assert "system" not in error.message


def test_something_else_than_a_pool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="psycopg_pool"):
        open_backend(request(PostgresSettings(pool=object())))


def test_the_place_has_no_secret() -> None:
    target = target_of(SecretStr(URL), PostgresSettings(), purpose="The connection string")
    assert target.place == "db.example:5433/things"


def test_own_options_of_a_connection_string_are_kept() -> None:
    target = target_of(
        SecretStr("host=h options='-c work_mem=8MB'"), PostgresSettings(statement_timeout_ms=7), purpose="x"
    )
    assert "work_mem=8MB" in target.conninfo.get_secret_value()
    assert "statement_timeout=7" in target.conninfo.get_secret_value()
    assert "TimeZone=UTC" in target.conninfo.get_secret_value()


def test_to_a_transaction_pooler_no_option_is_sent() -> None:
    settings = PostgresSettings(transaction_pooler=True)
    target = target_of(SecretStr(URL), settings, purpose="x", route=Route.POOLER)
    # Empty and not absent: libpq would take what PGOPTIONS says.
    assert target.parts["options"] == ""


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"connection_string": "host=h"}, "h"),
        ({"connection_string": "host=h", "direct_connection_string": "host=d"}, "d"),
        ({"connection_string": "host=h", "direct_connection_string": "host=d", "own": "host=o"}, "o"),
        (
            {"connection_string": "host=h", "direct_connection_string": "host=d", "transaction_pooler": True},
            "d",
        ),
        ({"connection_string": "host=h", "own": "host=o", "transaction_pooler": True}, "o"),
    ],
)
def test_what_goes_past_the_pool_takes_the_nearest_address(given: dict[str, object], wanted: str) -> None:
    own = given.pop("own", None)
    settings = PostgresSettings.model_validate(given)
    target = direct_target(LOCKS, settings, None if own is None else SecretStr(str(own)))
    assert target.parts["host"] == wanted


def test_modules_with_different_ways_to_the_server_share_no_pool() -> None:
    base = PostgresSettings(connection_string=SecretStr(URL))
    others = [
        base.model_copy(update={"transaction_pooler": True}),
        base.model_copy(update={"direct_connection_string": SecretStr("host=d")}),
    ]
    assert len({item.fingerprint for item in (base, *others)}) == 3


def test_start_up_parameters_that_a_pooler_refuses_name_the_setting() -> None:
    target = target_of(SecretStr(URL), PostgresSettings(), purpose="x")
    error = target.explain(psycopg.OperationalError("FATAL:  unsupported startup parameter: options"))
    assert isinstance(error, ConfigurationError)
    assert "Persistence:Postgres:TransactionPooler" in error.message


@pytest.mark.parametrize("key", ["connection_string", "direct_connection_string"])
def test_the_setting_is_taken_for_one_module_alone(key: str) -> None:
    config = {
        "Persistence": {"Scheduler": "Postgres", "Postgres": {"ConnectionString": "host=all"}},
        "Scheduler": {"Storage": {"Postgres": {to_pascal(key): "host=own", "TransactionPooler": True}}},
    }
    settings = load_settings(config).backend_settings("scheduler", twinstore_register_backend())
    assert isinstance(settings, PostgresSettings)
    secret = getattr(settings, key)
    assert (secret.get_secret_value(), settings.transaction_pooler) == ("host=own", True)


def test_a_peer_that_is_gone_is_noticed_unless_the_connection_string_says_otherwise() -> None:
    ours = target_of(SecretStr("host=h"), PostgresSettings(), purpose="x").conninfo
    assert {
        "keepalives_idle=30",
        "keepalives_interval=10",
        "keepalives_count=3",
        "tcp_user_timeout=30000",
    } <= {*ours.get_secret_value().split()}
    given = "host=h keepalives_idle=7 tcp_user_timeout=0 connect_timeout=3"
    theirs = target_of(SecretStr(given), PostgresSettings(), purpose="x").conninfo.get_secret_value().split()
    assert {"keepalives_idle=7", "tcp_user_timeout=0", "connect_timeout=3", "keepalives_count=3"} <= {*theirs}


def test_a_round_trip_lasts_a_little_longer_than_a_statement_or_for_ever() -> None:
    def limit(timeout: int) -> float | None:
        settings = PostgresSettings(statement_timeout_ms=timeout)
        return target_of(SecretStr("host=h"), settings, purpose="x").limit

    assert limit(2000) == 7
    assert limit(0) is None
