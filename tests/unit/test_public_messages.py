"""What a client is told names no host, no database, no file and no setting; the log is told all of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from twinstore import errors
from twinstore.errors import InvalidTransitionError, TwinstoreError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
def test_from_status_500_on_a_client_is_told_in_general_what_happened(kind: type[TwinstoreError]) -> None:
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
def test_who_asks_a_store_that_is_away_is_not_told_where_it_is(driver: str, url: str) -> None:
    settings = {"Persistence": {"Scheduler": driver, driver: {"ConnectionString": url}}}
    with twinstore.open_storage(settings) as storage, pytest.raises(UnavailableError) as caught:
        storage.scheduler.runs.get("acme", "run-1")
    assert "127.0.0.1" in caught.value.message
    assert caught.value.public_message == (type(caught.value).__doc__ or "").strip()
    assert not {"127.0.0.1", "hidden", ":1"} & set(caught.value.public_message.split())


def test_who_asks_a_service_that_is_set_up_wrongly_is_not_told_how(tmp_path: Path) -> None:
    missing = tmp_path / "hidden.json"
    with pytest.raises(twinstore.ConfigurationError) as caught:
        twinstore.open_storage(missing)
    assert "hidden" in caught.value.message
    assert caught.value.public_message == "The settings are wrong, contradictory or incomplete."


TOLD: Final = frozenset(kind.__name__ for kind in KINDS if kind.http_status < 500)
# What an error may know of the store, and the keys of settings.
PLACES: Final = re.compile(r"\b(server|hosts?|place|path|root|tree|directory|folder|filename)\b|[a-z]:[A-Z]")
PACKAGES: Final = ("core/twinstore", "backends")


def test_what_a_client_is_told_is_put_together_without_places_and_settings() -> None:
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
    """Return where an error is made whose message a client is told."""
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


def test_an_error_without_words_tells_its_code() -> None:
    assert MuteError("at db-7").public_message == "mute"
