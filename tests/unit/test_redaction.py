from __future__ import annotations

from time import thread_time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.runtime.secrets import is_secret_key, mask_secret_url, mentions_secret, secrets_in

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
