"""No password reaches a message or a log; what a client reads names no host, database, file or setting."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import twinstore
from twinstore import errors
from twinstore.errors import InvalidTransitionError, TwinstoreError, UnavailableError
from twinstore.runtime.secrets import is_secret_key, mask_secret_url, mentions_secret, secrets_in

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORDS = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), min_size=1, max_size=12
).map(lambda text: f"Zq{text}9Kx")
URLS = [
    "mongodb://user:{}@host/db",
    "mongodb+srv://user:{}@cluster.example/db?retryWrites=true",
    "mongodb://user:{}@h1:27017,h2:27018,h3/db?replicaSet=rs0",
    "postgresql://user:{}@/db?host=/run/postgresql",
    "postgresql://:{}@host",
    "could not connect to postgresql://user:{}@host:5432/db: refused",
]
QUERIES = ["postgresql://host:5432/db?user=u&password={}&connect_timeout=3", "postgres://h/db?sslpassword={}"]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("mongodb://user:secret@host/db", "mongodb://user:***@host/db"),
        (
            "mongodb://u:p@h1:27017,h2:27018/db?replicaSet=a",
            "mongodb://u:***@h1:27017,h2:27018/db?replicaSet=a",
        ),
        (
            "postgresql://u@host/db?password=x&sslmode=require",
            "postgresql://u@host/db?password=***&sslmode=require",
        ),
        ("postgresql://user:secret/db", "postgresql://user:***"),
        ("host=h password=secret dbname=d", "host=h password=*** dbname=d"),
        (r"host=h password='se\'cr et' dbname=d", "host=h password=*** dbname=d"),
        (r"password = a\ b host=h", "password = *** host=h"),
        ("Host=h;Password=se cret;Database=d", "Host=h;Password=***;Database=d"),
        ("host=h password='never closed", "host=h password=***"),
    ],
)
def test_a_password_becomes_three_stars_and_the_rest_stays(text: str, masked: str) -> None:
    assert mask_secret_url(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mongodb://host:27017/db",
        "mongodb://h1:1,h2:2",
        "postgresql://[::1]:5432/db",
        "postgresql:///db",
        "host=h dbname=d",
        "a plain sentence",
    ],
)
def test_a_text_without_secret_is_left_alone(text: str) -> None:
    assert mask_secret_url(text) == text
    assert not secrets_in(text)


@given(PASSWORDS, st.sampled_from(URLS))
def test_a_raw_password_of_a_url_never_survives(password: str, url: str) -> None:
    assert_gone(url.format(password), password)


@given(PASSWORDS, st.sampled_from([*URLS, *QUERIES]))
def test_an_encoded_password_of_a_url_never_survives(password: str, url: str) -> None:
    encoded = quote(password, safe="")
    assert_gone(url.format(encoded), encoded)
    assert mentions_secret(f"bad password {password!s}", secrets_in(url.format(encoded)))


@given(
    PASSWORDS, st.sampled_from(["host=h password='{}' dbname=d", "user=u password = '{}'", "password='{}'"])
)
def test_a_quoted_password_of_a_dsn_never_survives(password: str, dsn: str) -> None:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    assert_gone(dsn.format(escaped), escaped)
    assert password in secrets_in(dsn.format(escaped))


@given(PASSWORDS.filter(lambda text: not set(text) & set(" \t\n\r\x0b\x0c'\\;") and text.split() == [text]))
def test_a_bare_password_of_a_dsn_never_survives(password: str) -> None:
    assert_gone(f"host=h password={password} dbname=d", password)
    assert_gone(f"Host=h;Password={password};Database=d", password)


@given(PASSWORDS)
def test_masking_twice_changes_nothing_more(password: str) -> None:
    once = mask_secret_url(f"mongodb://user:{quote(password, safe='')}@host/db")
    assert mask_secret_url(once) == once


@pytest.mark.parametrize("name", ["Password", "AccessToken", "clientSecret", "ApiKey", "PGPASSWORD"])
def test_a_key_that_announces_a_secret_is_recognised(name: str) -> None:
    assert is_secret_key(name)


@pytest.mark.parametrize("name", ["PoolMax", "Database", "RunRetentionDays", "ConnectionString"])
def test_an_ordinary_key_is_not(name: str) -> None:
    assert not is_secret_key(name)


# Each was quadratic or worse: keys without an end, keys inside values, values of every kind without an end.
GROWING = {
    "one word": "a",
    "a word that announces a secret": "password",
    "words with dashes": "secret-",
    "assignments in each other": "secret=",
    "assignments with blanks": "secret = ",
    "quotes in each other": "secret='",
    "both quotes": "secret='x\"token=\"y'",
    "doubled quotes": "secret='x''",
    "escapes": "secret=\\",
    "a query": "?secret=",
    "semicolons": "secret=x;",
    "schemes": "://a:",
    "schemes and users": "://a:b@",
    "ports": "://:1",
    "digits": "1",
    "colons": ":",
    "blanks": " ",
    "mechanisms": "authMechanismProperties",
}


@pytest.mark.parametrize("tail", ["", ";@", "'\\"])
@pytest.mark.parametrize("piece", GROWING.values(), ids=GROWING)
def test_the_price_grows_with_the_length_alone(piece: str, tail: str, *, long_form: bool) -> None:
    times = 20 if long_form else 8
    short, long = ((piece * (size // len(piece) + 1))[:size] + tail for size in (5_000, 5_000 * times))
    least = 0.001  # below that the clock says little
    before = max(spent_on(short), least)
    # Quadratic would be the square of the times.
    assert any(spent_on(long, times=1) < 4 * times * before for _ in range(3))


def test_a_megabyte_takes_a_moment() -> None:
    for name in ("a word that announces a secret", "assignments in each other", "escapes"):
        piece = GROWING[name]
        assert spent_on(piece * (1_000_000 // len(piece)), times=1) < 5


def spent_on(text: str, times: int = 3) -> float:
    """Return the seconds of this thread that it takes to mask a text, the shortest of some attempts."""
    found: list[float] = []
    for _ in range(times):
        start = thread_time()
        mask_secret_url(text)
        secrets_in(text)
        found.append(thread_time() - start)
    return min(found)


def assert_gone(text: str, password: str) -> None:
    masked = mask_secret_url(text)
    assert password not in masked
    assert "Zq" not in masked
    assert "9Kx" not in masked


ROOT: Final = Path(__file__).parents[2]
TOPOLOGY: Final = "db-7.internal:5432/app is set in Persistence:Postgres:PoolMax of /etc/app.toml"
KINDS: Final = [
    kind
    for kind in (getattr(errors, name) for name in errors.__all__)
    if isinstance(kind, type) and issubclass(kind, TwinstoreError)
]


def made(kind: type[TwinstoreError], message: str) -> TwinstoreError:
    if issubclass(kind, InvalidTransitionError):
        return kind(message, from_state="a", to_state="b")
    return kind(message)


@pytest.mark.parametrize("kind", KINDS)
def test_from_status_500_on_a_client_gets_a_general_message(kind: type[TwinstoreError]) -> None:
    error = made(kind, TOPOLOGY)
    assert error.message == TOPOLOGY
    if kind.http_status >= 500:
        assert kind.__doc__ is not None
        assert error.public_message == kind.__doc__.strip().splitlines()[0]
    else:
        assert error.public_message == TOPOLOGY


@pytest.mark.parametrize(
    ("driver", "url"),
    [
        ("Mongo", "mongodb://127.0.0.1:1/hidden?serverSelectionTimeoutMS=20"),
        ("Postgres", "postgresql://127.0.0.1:1/hidden"),
    ],
)
def test_the_message_about_an_unreachable_store_does_not_say_where_it_is(driver: str, url: str) -> None:
    settings = {"Persistence": {"Scheduler": driver, driver: {"ConnectionString": url}}}
    with twinstore.open_storage(settings) as storage, pytest.raises(UnavailableError) as caught:
        storage.scheduler.runs.get("acme", "run-1")
    assert "127.0.0.1" in caught.value.message
    assert caught.value.public_message == (type(caught.value).__doc__ or "").strip()
    assert not {"127.0.0.1", "hidden", ":1"} & set(caught.value.public_message.split())


def test_the_message_about_a_misconfigured_service_does_not_say_how(tmp_path: Path) -> None:
    missing = tmp_path / "hidden.json"
    with pytest.raises(twinstore.ConfigurationError) as caught:
        twinstore.open_storage(missing)
    assert "hidden" in caught.value.message
    assert caught.value.public_message == "The settings are wrong, contradictory or incomplete."


TOLD: Final = frozenset(kind.__name__ for kind in KINDS if kind.http_status < 500)
# What an error may know of the store, and the keys of settings.
PLACES: Final = re.compile(r"\b(server|hosts?|place|path|root|tree|directory|folder|filename)\b|[a-z]:[A-Z]")
PACKAGES: Final = ("core/twinstore", "backends")


def test_the_message_for_a_client_is_built_without_places_and_settings() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not {"testing", "ledger"} & set(path.parts)
        for call in messages(ast.parse(path.read_text()))
        if PLACES.search(" ".join(words(call.args[0])))
    ]
    assert found == []


def test_that_test_finds_such_a_message() -> None:
    said = (
        'ConflictError(f"at {where.server}")',
        'DuplicateError("set Scheduler:Mode")',
        "UnavailableError(host)",
    )
    found = [
        bool(PLACES.search(" ".join(words(call.args[0])))) for call in messages(ast.parse("\n".join(said)))
    ]
    assert found == [True, True]


def messages(tree: ast.AST) -> list[ast.Call]:
    """Return the places that create an error whose message clients receive."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in TOLD]


def words(message: ast.expr) -> Iterator[str]:
    """Yield the names that a message is made of, and of its text what is spelled as a key of the settings."""
    for node in ast.walk(message):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield name.strip("_")
            case ast.Constant(value=str(text)):
                yield from (word for word in text.split() if ":" in word.rstrip(":"))


class MuteError(TwinstoreError):
    __doc__ = None
    code = "mute"


def test_an_error_without_a_message_shows_its_code() -> None:
    assert MuteError("at db-7").public_message == "mute"
