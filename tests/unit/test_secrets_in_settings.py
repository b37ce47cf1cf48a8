"""A connection string in the wrong place, a settings model, a failure: none shows the password."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import pytest
from pydantic import SecretStr, field_validator

import twinstore
from tests.support.leaks import MONGO, PASSWORD, POSTGRES, assert_hidden
from twinstore import aio
from twinstore.clock import SystemClock
from twinstore.config import load_settings
from twinstore.config.entries import Entries, collect, walk
from twinstore.config.settings import build_settings
from twinstore.errors import ConfigurationError, TwinstoreError, ValidationError
from twinstore.plugins.backend import BACKEND_API_VERSION, BackendSpec, OpenRequest
from twinstore.plugins.drivers import opened
from twinstore.plugins.modules import module_spec
from twinstore.plugins.options import ModuleOptions
from twinstore.plugins.resources import SharedResources
from twinstore.plugins.settings import BackendSettings
from twinstore.runtime.secrets import digest_of_secret, without_locals
from twinstore.storage.open import open_module
from twinstore_mongo.settings import MongoSettings
from twinstore_postgres.connection.target import target_of
from twinstore_postgres.settings import PostgresSettings

# As a host calls that no type checker has seen.
open_untyped: Callable[..., Any] = twinstore.open_storage
module_untyped: Callable[..., Any] = open_module

WRONG_PLACES: Final[Mapping[str, Callable[[], object]]] = {
    "the switch": lambda: load_settings({"Persistence": {"Scheduler": MONGO}}, environ={}),
    "the switch, in text": lambda: load_settings({"Persistence:Scheduler": POSTGRES}, environ={}),
    "the switch, with a blank before": lambda: load_settings(
        {"Persistence": {"Scheduler": f" {MONGO}"}}, environ={}
    ),
    "a key": lambda: load_settings({"Persistence": {MONGO: "x"}}, environ={}),
    "a key, in text": lambda: load_settings({f"Persistence:{POSTGRES}": "x"}, environ={}),
    "a key with a section": lambda: load_settings({"Persistence": {MONGO: {"PoolMax": 1}}}, environ={}),
    "a key of a driver": lambda: (
        twinstore.open_storage(
            {"Persistence": {"Scheduler": "Postgres", "Postgres": {POSTGRES: 5}}}
        ).scheduler
    ),
    "a key of a module": lambda: load_settings({"Scheduler": {"Storage": {MONGO: "x"}}}, environ={}),
    "a key that is bytes": lambda: load_settings({"Persistence": {MONGO.encode(): "x"}}, environ={}),
    "a top key that is bytes": lambda: open_untyped({MONGO.encode(): "x"}),
    "a section that is a text": lambda: load_settings({"Persistence": {"Postgres": POSTGRES}}, environ={}),
    "a key twice": lambda: load_settings({f"Persistence:{MONGO}": 1, f"persistence:{MONGO}": 2}, environ={}),
    "the environment": lambda: load_settings(environ={"Persistence__Scheduler": MONGO}),
    "a variable": lambda: load_settings(environ={f"Persistence__{MONGO}": "x"}),
    "the path": lambda: load_settings(MONGO, environ={}),
    "the path in the environment": lambda: load_settings(environ={"TWINSTORE_CONFIG": POSTGRES}),
    "the configuration": lambda: twinstore.open_storage(POSTGRES),
    "the configuration for asyncio": lambda: aio.open_storage(MONGO),
    "a url of no driver": lambda: twinstore.open_storage(
        url=MONGO.replace("mongodb", "mysql"), module="scheduler"
    ),
    "a url without a scheme": lambda: twinstore.open_storage(url=PASSWORD, module="scheduler"),
    "a url as a variable": lambda: twinstore.open_storage(url=f"env:{MONGO}", module="scheduler"),
    "a url as a file": lambda: aio.open_storage(url=f"file:{POSTGRES}", module="scheduler"),
    "a url next to settings": lambda: aio.open_storage({}, url=MONGO, module="scheduler"),
    "a url for a module": lambda: twinstore.open_storage(url="env:X", module=POSTGRES),
    "the configuration of a module": lambda: twinstore.add_scheduler_storage(MONGO),
    "the configuration as a mapping of something else": lambda: twinstore.open_storage(
        {MONGO: MONGO, "Persistence": MONGO}
    ),
    "the module": lambda: open_module(MONGO, config={}),
    "the module of a storage": lambda: twinstore.open_storage({}).module(MONGO),
    "the driver": lambda: open_module("scheduler", MONGO, {}),
    "the role": lambda: load_settings({}, environ={}).for_role(POSTGRES),
    "an option": lambda: twinstore.open_storage({}, options={"scheduler": {MONGO: 1}}),
    "the module of options": lambda: twinstore.open_storage({}, options={MONGO: {}}),
    "a number": lambda: (
        twinstore.open_storage(
            {
                "Persistence": {
                    "Scheduler": "Postgres",
                    "Postgres": {"ConnectionString": POSTGRES, "PoolMax": MONGO},
                }
            }
        ).scheduler
    ),
}


@pytest.mark.parametrize("mistake", WRONG_PLACES.values(), ids=WRONG_PLACES)
def test_a_connection_string_in_the_wrong_place_is_masked(mistake: Callable[[], object]) -> None:
    with pytest.raises((TwinstoreError, AttributeError)) as caught:
        mistake()
    assert_hidden(caught.value)


def test_a_file_of_settings_is_masked_too(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    for text in (
        f"Persistence:\n  ? {MONGO}\n  : 1\n",
        f"a: 1\n'{MONGO}': 1\n'{MONGO}': 2\n",
        f"Persistence: '{MONGO}'\n",
    ):
        path.write_text(text)
        with pytest.raises(ConfigurationError) as caught:
            load_settings(path, environ={})
        assert_hidden(caught.value)


class PlainSettings(BackendSettings):
    """Third-party settings that accept plain text for secrets."""

    url: str = MONGO
    api_token: str = PASSWORD
    password: SecretStr = SecretStr(PASSWORD)
    count: int = 5

    @field_validator("count")
    @classmethod
    def _checked(cls, value: int) -> int:
        if value == 6:
            raise LookupError(f"not {MONGO}")
        return value


def spec_of(factory: Callable[[Any], Any]) -> BackendSpec:
    return BackendSpec(
        name="Plain",
        schemes=("plain",),
        api_version=BACKEND_API_VERSION,
        settings=PlainSettings,
        factory=factory,
        extra="plain",
    )


@pytest.mark.parametrize(
    "path",
    [
        ("Postgres", "Pasword"),
        ("Postgres", "Passwort"),
        ("Postgres", "api-tokn"),
        ("Postgres", "Secrets", "main"),
        ("Postgres", "ConnectionString", "value"),
        ("Mongo", "ConectionString"),
    ],
)
def test_a_secret_below_a_misspelt_key_is_masked_too(path: tuple[str, ...]) -> None:
    settings = load_settings({"Persistence": {":".join(path): "app:geheim@db"}}, environ={})
    assert settings.describe()[":".join(("Persistence", *path))]["value"] == "***"


def test_no_settings_show_a_secret() -> None:
    shown = [
        PostgresSettings(connection_string=SecretStr(POSTGRES), direct_connection_string=SecretStr(POSTGRES)),
        MongoSettings(connection_string=SecretStr(MONGO)),
        PlainSettings(),
        load_settings({"Persistence": {"Mongo": {"ConnectionString": MONGO}}}, environ={}),
        target_of(SecretStr(POSTGRES), PostgresSettings(), purpose="It"),
        target_of(SecretStr(POSTGRES), PostgresSettings(), purpose="It").with_settings(search_path=""),
        PostgresSettings(connection_string=SecretStr(POSTGRES)).fingerprint,
        digest_of_secret(SecretStr(MONGO)),
        load_settings({"Persistence": {"Mongo": {"ConnectionString": MONGO}}}, environ={}).describe(),
    ]
    for one in shown:
        assert PASSWORD not in f"{one!r} {one}", type(one)
    assert "count=5" in repr(PlainSettings())
    assert PASSWORD not in f"{PlainSettings()}{dict(PlainSettings().__rich_repr__())}"


def test_a_digest_distinguishes_secrets_and_none_from_both() -> None:
    first, same, other = (digest_of_secret(SecretStr(text)) for text in (MONGO, MONGO, POSTGRES))
    assert first == same
    assert len({first, other, digest_of_secret(None)}) == 3


class OfTheFactoryError(Exception):
    """Of a client library."""


@pytest.mark.parametrize("kind", [OfTheFactoryError, OSError, KeyError, RecursionError, SystemExit])
def test_a_factory_that_raises_anything_is_reported_without_a_secret(kind: type[BaseException]) -> None:
    def fails(request: OpenRequest) -> NoReturn:
        # What a tracker would show.
        url = cast("PlainSettings", request.settings).url
        raise kind(f"the client library says no to {len(url)} characters")

    with pytest.raises(ConfigurationError, match=f"driver Plain failed with {kind.__name__}") as caught:
        opened(spec_of(fails), request_of(PlainSettings()))
    assert caught.value.driver == "Plain"
    assert_hidden(caught.value)


def request_of(settings: BackendSettings) -> OpenRequest:
    """Return the request of a module that no driver stores."""
    return OpenRequest(
        module=module_spec("scheduler"),
        settings=settings,
        options=ModuleOptions(),
        resources=SharedResources(),
        clock=SystemClock(),
    )


def test_settings_whose_validator_raises_anything_are_reported_without_a_secret() -> None:
    (entry,) = collect(walk({"Plain": {"Count": 6}}, "a file", frozenset({"plain"}))).values()
    entries: Entries = {("count",): entry}
    with pytest.raises(
        ConfigurationError, match=r"driver Plain \(Scheduler:Storage:Plain\).* LookupError"
    ) as caught:
        build_settings(spec_of(print), entries, ("Scheduler", "Storage", "Plain"))
    assert_hidden(caught.value)


@pytest.mark.parametrize(
    "open_it",
    [
        lambda: open_untyped(5),
        lambda: open_untyped(b"settings.json"),
        lambda: open_untyped([("Persistence", {})]),
        lambda: open_untyped(""),
        lambda: open_untyped("a\x00b.json"),
        lambda: open_untyped("a\ud800.json"),
        lambda: open_untyped("x" * 100_000 + ".json"),
        lambda: open_untyped(Path("nowhere.json")),
        lambda: open_untyped({5: 5}),
        lambda: open_untyped({"Persistence": {5: 5}}),
        lambda: open_untyped({"Persistence": {"Scheduler": ["Mongo"]}}),
        lambda: open_untyped({"Persistence": {"Scheduler": "M" * 10_000_000}}),
        lambda: open_untyped({"Persistence": {"P" * 10_000_000: 5}}),
        lambda: open_untyped({"Persistence": endless()}),
        lambda: open_untyped({}, options=5),
        lambda: open_untyped({}, options={5: {}}),
        lambda: open_untyped({}, options={"scheduler": 5}),
        lambda: open_untyped({}, options={"scheduler": {5: 5}}),
        lambda: open_untyped({}, observers=5),
        lambda: open_untyped({}, clock=5),
        lambda: module_untyped(5, config={}),
        lambda: module_untyped("scheduler", 5, {}),
        lambda: module_untyped("scheduler", "Memory", {}, role=5),
        lambda: open_untyped({}).module(5),
        lambda: open_untyped({}).module("scheduler"),
    ],
)
def test_an_odd_argument_of_what_opens_a_storage_is_an_error_of_ours(open_it: Callable[[], object]) -> None:
    with pytest.raises((ConfigurationError, ValidationError)):
        open_it()


def endless() -> dict[str, Any]:
    """Return a section inside itself."""
    found: dict[str, Any] = {}
    found["Mongo"] = found
    return found


def test_an_error_that_the_caller_was_handling_keeps_its_variables() -> None:
    @without_locals
    def fails(secret: str) -> NoReturn:
        raise ConfigurationError(f"no {len(secret)}")

    def of_the_caller() -> NoReturn:
        kept = "kept"
        raise LookupError(kept)

    def both() -> None:
        try:
            of_the_caller()
        except LookupError:
            fails(PASSWORD)

    with pytest.raises(ConfigurationError) as caught:
        both()
    before = caught.value.__context__
    assert isinstance(before, LookupError)
    assert before.__traceback__ is not None
    assert before.__traceback__.tb_next is not None
    assert before.__traceback__.tb_next.tb_frame.f_locals == {"kept": "kept"}
    assert_hidden(caught.value)
