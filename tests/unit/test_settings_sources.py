"""Settings from environment files, secret files and settings objects, and what is wrong with them."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from pydantic import BaseModel, Field, PostgresDsn, SecretStr, field_serializer, model_serializer
from pydantic_settings import BaseSettings, SettingsConfigDict

from tests.support.leaks import assert_hidden
from twinstore import aio, open_storage
from twinstore.config import Settings, load_settings
from twinstore.errors import ConfigurationError
from twinstore.plugins.drivers import load_backend
from twinstore.plugins.settings import BackendSettings
from twinstore_postgres.settings import PostgresSettings

PASSWORD = "hunter2Zq"
NAME = "Persistence__Postgres__ConnectionString"
URL = f"postgresql://app:{PASSWORD}@db/x"


def env_file(tmp_path: Path, text: str | bytes, name: str = ".env") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def secrets(tmp_path: Path, **values: str) -> Path:
    directory = tmp_path / "secrets"
    directory.mkdir(exist_ok=True)
    for name, value in values.items():
        (directory / name).write_text(value)
    return directory


def load(
    source: object = None, env: Path | None = None, secret: Path | None = None, **environ: str
) -> Settings:
    return load_settings(cast("Any", source), env_file=env, secrets_dir=secret, environ=environ)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call()
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert_hidden(caught.value)
    return caught.value.message


def postgres(settings: Settings) -> PostgresSettings:
    found = settings.backend_settings("scheduler", load_backend("Postgres"))
    assert isinstance(found, PostgresSettings)
    return found


# ------------------------------------------------------------------------------------- order and choice


def test_later_sources_win_key_by_key_and_each_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    keys = ("PoolMin", "PoolMax", "PoolTimeoutMs", "StatementTimeoutMs", "LockConnectionsMax")
    sections = ", ".join(f'"{key}": 1' for key in keys)
    file.write_text(f'{{"Persistence": {{"Postgres": {{{sections}}}}}}}')
    directory = secrets(tmp_path, **{f"Persistence__Postgres__{key}": "2" for key in keys[1:]})
    lines = env_file(tmp_path, "".join(f"Persistence__Postgres__{key}=3\n" for key in keys[2:]))
    environ = {f"PERSISTENCE__POSTGRES__{key.upper()}": "4" for key in keys[3:]}
    environ["TWINSTORE_CONFIG"] = str(file)
    settings = load({"Persistence:Postgres:LockConnectionsMax": 5}, lines, directory, **environ)
    found = postgres(settings)
    assert [getattr(found, name) for name in PostgresSettings.model_fields if name in NAMES] == [
        5,
        1,
        2,
        3,
        4,
    ]
    described = settings.describe()
    sources = [described[f"Persistence:Postgres:{key}"]["source"] for key in keys[:3]]
    assert sources == [
        f"file {file}",
        f"secret file {directory / 'Persistence__Postgres__PoolMax'}",
        f"environment file {lines}, line 1",
    ]


NAMES = {"lock_connections_max", "pool_min", "pool_max", "pool_timeout_ms", "statement_timeout_ms"}


def test_variables_choose_them_and_arguments_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, given = tmp_path / "named", tmp_path / "given"
    for place in (named, given):
        place.mkdir()
        (place / ".env").write_text(
            f"Persistence__Scheduler=Memory\nPersistence__Memory__Store={place.name}\n"
        )
    monkeypatch.setenv("TWINSTORE_ENV_FILE", str(named / ".env"))
    monkeypatch.setenv("TWINSTORE_SECRETS_DIR", str(secrets(tmp_path, Persistence__Tracking="Memory")))

    def stores(settings: Settings) -> tuple[object, ...]:
        return settings.backend_section("scheduler", "Memory")["Store"], settings.backend_name("tracking")

    assert stores(load_settings()) == ("named", "Memory")
    assert stores(load_settings(env_file=given / ".env")) == ("given", "Memory")
    with open_storage(env_file=given / ".env", secrets_dir=given) as storage:
        assert storage.scheduler.driver == "Memory"
        with pytest.raises(ConfigurationError, match="Persistence:Tracking is not set"):
            storage.module("tracking")
    assert "aio" in aio.open_storage(env_file=given / ".env", secrets_dir=given).__module__


def test_nothing_is_read_that_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env_file(tmp_path, "Persistence__Scheduler=Mongo\n")
    (tmp_path / "appsettings.json").write_text('{"Persistence": {"Scheduler": "Mongo"}}')
    monkeypatch.chdir(tmp_path)
    for name in ("TWINSTORE_CONFIG", "TWINSTORE_ENV_FILE", "TWINSTORE_SECRETS_DIR"):
        monkeypatch.setenv(name, "")
    assert load_settings(environ=dict(os.environ)).named_modules() == ()


def test_an_environment_file_may_name_the_other_files(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"Persistence": {"Scheduler": "Mongo"}}')
    directory = secrets(tmp_path, Persistence__Tracking="Mongo")
    lines = env_file(tmp_path, f"TWINSTORE_CONFIG={file}\nTWINSTORE_SECRETS_DIR={directory}\n")
    assert load(None, lines).named_modules() == ("scheduler", "tracking")
    assert load(None, lines, TWINSTORE_CONFIG="").named_modules() == ("tracking",)


def test_loaded_settings_take_no_more_files(tmp_path: Path) -> None:
    settings = load()
    message = refusal(lambda: load(settings, env_file(tmp_path, "")))
    assert message == "Loaded settings are taken as they are; give env_file and secrets_dir to load_settings."


# ------------------------------------------------------------------------------------- environment files


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"{NAME}={URL}\n", URL),
        (f"\ufeff{NAME}={URL}", URL),
        (f"# a\r\n\r\nexport {NAME}={URL}\r\n", URL),
        (f"PERSISTENCE__POSTGRES__CONNECTIONSTRING = '{URL}'\n", URL),
        (f'{NAME}="{URL}" # with a comment\n', URL),
        (f"{NAME}={URL} # with a comment\n", URL),
        (f"{NAME}={URL}#part\n", f"{URL}#part"),
        (f"{NAME}='host=h password=a$b$$c\\\\d'\n", "host=h password=a$b$$c\\d"),
        (f"{NAME}=host=h password=$b\n", "host=h password=$b"),
        (f"PW={PASSWORD}\n{NAME}=postgresql://app:${{PW}}@db/x\n", URL),
        (f"{NAME}=postgresql://app:${{NOT_SET_HERE:-{PASSWORD}}}@db/x\n", URL),
        (f"{NAME}=\n", ""),
        (f"{NAME}='a\nb'\n", "a\nb"),
        (f"{NAME}=ü\n", "ü"),
        (f"Persistence:Postgres:ConnectionString={URL}\n", URL),
        (f"{NAME}=a=b==\n", "a=b=="),
        (f"{NAME}=a'b\"c\n", "a'b\"c"),
    ],
)
def test_a_line_of_an_environment_file_is_read_as_compose_reads_it(
    tmp_path: Path, text: str, value: str
) -> None:
    found = postgres(load(None, env_file(tmp_path, text))).connection_string
    assert found is not None
    assert found.get_secret_value() == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"A=1\n\nPersistence__Scheduler {PASSWORD}=x\n", ", line 3 is malformed; write NAME=value."),
        (f"A=1\n{NAME}='{PASSWORD}\nB=2\n", ", line 2 is malformed; write NAME=value."),
        (
            f"A={PASSWORD}\nB=1\nTWINSTORE_CONFIG\n",
            ", line 3 is malformed; write NAME=value.",
        ),
        (f"A=1\n{NAME}\n", ", line 2 is malformed; write"),
        (
            f"{NAME}=a{PASSWORD}\nA=1\npersistence__postgres__connectionstring=b",
            ", line 1 and environment file",
        ),
        (
            f"\n{NAME}=${{NOT_SET_HERE}}{PASSWORD}\nNOT_SET_HERE=late\n",
            ", line 2 has a ${NAME} that is not set above it",
        ),
        (b"A=\xff" + PASSWORD.encode(), "is malformed: byte 2 is not UTF-8"),
        (f"Persistence__Postgrs__PoolMax={PASSWORD}\n", ", line 1. Did you mean Postgres?"),
        (f"Persistence__{URL}=x\n", "Persistence:postgresql://app:***@db/x"),
    ],
)
def test_a_wrong_line_is_reported_by_file_and_line_without_its_text(
    tmp_path: Path, text: str | bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = env_file(tmp_path, text)
    told = refusal(lambda: load(None, path))
    assert PASSWORD not in caplog.text
    assert message in told
    assert str(path) in told


def test_the_environment_wins_over_a_line_also_where_another_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = env_file(tmp_path, f"PW=change-me\n{NAME}=postgresql://app:${{PW}}@db/x\n")
    assert postgres(load(None, path, PW=PASSWORD)).connection_string == SecretStr(URL)
    # A given environment replaces that of the process.
    monkeypatch.setenv("PW", "of the process")
    assert postgres(load(None, path, PW=PASSWORD)).connection_string == SecretStr(URL)
    only = env_file(tmp_path, f"{NAME}=postgresql://app:${{PW}}@db/x\n")
    assert "is not set above it" in refusal(lambda: load(None, only))
    monkeypatch.setenv("PW", PASSWORD)
    monkeypatch.setenv("Persistence__Scheduler", "Postgres")
    assert postgres(load_settings(env_file=path)).connection_string == SecretStr(URL)


def test_a_malformed_line_of_another_program_is_ignored(tmp_path: Path) -> None:
    path = env_file(tmp_path, "if true; then\nPersistence__Scheduler=Memory\n")
    assert load(None, path).backend_name("scheduler") == "Memory"


def test_lines_of_other_programs_are_ignored(tmp_path: Path) -> None:
    path = env_file(tmp_path, "PATH\nWORKER=3\nA=1\nA=2\nLogging__Level=${PATH}\n")
    assert load(None, path).entries == {}


def test_what_is_no_file_is_reported(tmp_path: Path) -> None:
    assert "is not a file; name one" in refusal(lambda: load(None, tmp_path))
    assert "(given as an argument) does not exist" in refusal(lambda: load(None, tmp_path / "none"))
    assert "(from TWINSTORE_ENV_FILE) does not exist" in refusal(lambda: load(TWINSTORE_ENV_FILE="/none"))
    assert "not a connection string" in refusal(lambda: load(TWINSTORE_ENV_FILE=URL))
    untyped = cast("Any", load_settings)
    assert "env_file should be a path, not int" in refusal(lambda: untyped(env_file=5))
    with (tmp_path / "large").open("wb") as large:
        large.truncate(16_777_217)
    assert "is larger than 16,777,216 bytes" in refusal(lambda: load(None, tmp_path / "large"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is not a file" in refusal(lambda: load(None, pipe))  # a reader would wait for ever


# ------------------------------------------------------------------------------------- secret files


def test_secret_files_are_named_as_variables_and_lose_the_end_of_their_line(tmp_path: Path) -> None:
    directory = secrets(
        tmp_path,
        Persistence__Postgres__ConnectionString=f"\ufeff{URL}\n",
        PERSISTENCE__postgres__poolmax="7\r\n",
        WORKER="x",
        postgres_password=PASSWORD,
    )
    (directory / "keystore.p12").write_bytes(b"\xff\xfe")
    (directory / "Logging__folder").mkdir()
    found = postgres(load(None, None, directory))
    assert found.connection_string == SecretStr(URL)
    assert found.pool_max == 7


def test_a_volume_of_kubernetes_is_read_through_its_links(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    version = directory / "..2025_11_23_01_02_03.123"
    version.mkdir(parents=True)
    (version / NAME).write_text(URL)
    (directory / "..data").symlink_to(version.name)
    (directory / NAME).symlink_to(f"..data/{NAME}")
    assert postgres(load(None, None, directory)).connection_string == SecretStr(URL)


def test_what_is_no_secret_file_is_reported(tmp_path: Path) -> None:
    directory, outside = tmp_path / "secrets", tmp_path / "outside"
    outside.write_text(URL)
    path = directory / NAME

    def told(make: Callable[[], object]) -> str:
        directory.mkdir()
        make()
        message = refusal(lambda: load(None, None, directory))
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        directory.rmdir()
        assert str(path) in message
        return message

    assert "is not a file; name one" in told(path.mkdir)
    assert "does not exist" in told(lambda: path.symlink_to("nowhere"))
    assert "leads out of its directory" in told(lambda: path.symlink_to(outside))
    assert "is not UTF-8" in told(lambda: path.write_bytes(b"\xff" + PASSWORD.encode()))
    assert "is larger than 16,777,216 bytes" in told(lambda: path.write_bytes(b"x" * 16_777_217))
    assert "cannot be read: No such file" in refusal(lambda: load(None, None, directory))
    assert "no path holds a NUL" in refusal(lambda: load(None, None, tmp_path / "a\0b"))
    assert "cannot be read: Not a directory" in refusal(lambda: load(TWINSTORE_SECRETS_DIR=str(outside)))


def test_two_spellings_of_a_secret_are_refused(tmp_path: Path) -> None:
    directory = secrets(tmp_path, Persistence__Scheduler="Mongo", PERSISTENCE__SCHEDULER="Mongo")
    assert "is given twice in secret file" in refusal(lambda: load(None, None, directory))


def test_a_secret_file_replaces_what_the_settings_file_holds_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("Persistence: {Scheduler: Postgres, Postgres: {ConnectionString: mounted}}\n")
    settings = load(file, None, secrets(tmp_path, **{NAME: URL}))
    assert (
        settings.describe()["Persistence:Postgres:ConnectionString"]["value"] == "postgresql://app:***@db/x"
    )


@contextmanager
def as_normal_user() -> Iterator[None]:
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_the_error_names_the_file_that_a_normal_user_cannot_read() -> None:
    with TemporaryDirectory() as name:  # below a folder that everybody may pass
        folder = Path(name)
        folder.chmod(0o755)
        directory, lines = secrets(folder, **{NAME: URL}), env_file(folder, f"{NAME}={URL}\n")
        postgres(load(None, lines, directory))  # whatever is imported lazily is imported now
        for path in (directory / NAME, lines):
            path.chmod(0)
            given = {"env_file": path} if path == lines else {"secrets_dir": directory}
            with as_normal_user():
                message = refusal(partial(load_settings, environ={}, **given))
            assert (str(path) in message, "cannot be read: Permission denied." in message) == (True, True)
        directory.chmod(0)
        with as_normal_user():
            message = refusal(lambda: load(None, None, directory))
        assert "cannot be read: Permission denied; name a directory" in message


# ------------------------------------------------------------------------------------- settings objects


class PostgresPart(BaseModel):
    connection_string: SecretStr = SecretStr(URL)
    pool_max: int = 4


class Persistence(BaseModel):
    scheduler: str = "postgres"
    postgres: PostgresPart = PostgresPart()
    tracking: str | None = None


class Host(BaseSettings):
    """As a host of pydantic-settings has it."""

    model_config = SettingsConfigDict(env_prefix="HOST_", env_nested_delimiter="__")

    debug: bool = False
    persistence: Persistence = Persistence()
    scheduler: dict[str, dict[str, int]] = {"storage": {"run_retention_days": 9}}


def test_a_settings_object_of_the_host_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_PERSISTENCE__POSTGRES__POOL_MAX", "6")
    settings = load_settings(Host(), environ={})
    found = postgres(settings)
    assert (found.connection_string, found.pool_max) == (SecretStr(URL), 6)
    assert settings.backend_name("scheduler") == "Postgres"
    assert settings.describe()["Scheduler:Storage:RunRetentionDays"] == {
        "value": 9,
        "source": "the settings object Host",
    }


def test_a_connection_string_of_the_host_may_be_a_url_object() -> None:
    class Part(BaseModel):
        ConnectionString: PostgresDsn = PostgresDsn(URL)

    class Sections(BaseModel):
        Persistence: Mapping[str, Part] = {"Postgres": Part()}

    settings = load_settings(Sections(), environ={})
    assert postgres(settings).connection_string == SecretStr(URL)
    assert PASSWORD not in str(settings.describe())


def test_an_object_that_cannot_be_dumped_is_reported_without_its_values() -> None:
    class Broken(BaseModel):
        password: str = PASSWORD

        @field_serializer("password")
        def refuse(self, value: str) -> str:
            raise RuntimeError(value)

    message = refusal(lambda: load(Broken()))
    assert (
        message == "The settings object Broken cannot be dumped (PydanticSerializationError); give a mapping."
    )


def test_an_object_that_is_dumped_as_something_else_is_reported() -> None:
    class Listed(BaseModel):
        @model_serializer
        def listed(self) -> list[str]:
            return [PASSWORD]

    assert refusal(lambda: load(Listed())) == "The settings object Listed should be a mapping, not list."


def test_another_object_is_refused_with_what_is_taken() -> None:
    message = refusal(lambda: load(Host))
    assert message == (
        "The configuration should be a mapping, a settings object or the path of a settings file, "
        "not ModelMetaclass."
    )


# ------------------------------------------------------------------------------------- listings, import


def test_the_description_has_the_defaults_of_drivers_in_use_and_problems_name_each_wrong_value() -> None:
    given = {
        "Persistence": {
            "Scheduler": "Postgres",
            "Postgres": {"PoolMax": "lots", "StatementTimeoutMs": -1},
            "Mongo": {"ServerSelectionTimeoutMs": 0},
            "Filesystem": {"LockTimeoutMs": 7},
        }
    }
    settings = load(given)
    described = settings.describe()
    assert described["Persistence:Postgres:PoolMin"] == {"value": 1, "source": "default"}
    assert described["Persistence:Postgres:ConnectionString"] == {"value": None, "source": "default"}
    assert described["Persistence:Mongo:Validators"] == {"value": True, "source": "default"}
    assert described["Persistence:Tracking"] == {"value": None, "source": "default"}
    assert not [key for key in described if key.endswith((":Pool", ":Client"))]
    problems = "\n".join(settings.problems())
    for key in ("Postgres:PoolMax", "Postgres:StatementTimeoutMs", "Mongo:ServerSelectionTimeoutMs"):
        assert f"Persistence:{key} (the explicit mapping) is not valid" in problems
    # No setting uses MongoDB or the filesystem, so missing values there do not matter.
    assert "not set" not in problems
    assert "give ConnectionString" not in problems


def test_what_is_not_set_names_the_file_that_was_not_named_unless_one_was(tmp_path: Path) -> None:
    spec = load_backend("Mongo")
    unnamed = "No settings file was named: TWINSTORE_CONFIG is unset."
    assert refusal(lambda: load().backend_name("scheduler")).endswith(unnamed)
    bare = load(Persistence__Mongo__Database="x")
    assert refusal(lambda: bare.backend_settings("scheduler", spec)).endswith(unnamed)
    assert refusal(
        lambda: load(Persistence__Mongo__ServerSelectionTimeoutMs="x").backend_settings("scheduler", spec)
    )
    (tmp_path / "a.json").write_text("{}")
    for given in (load(tmp_path / "a.json"), load({})):
        assert unnamed not in refusal(partial(given.backend_name, "scheduler"))


def test_a_key_of_a_driver_in_two_spellings_is_given_twice() -> None:
    settings = load({"Persistence:Postgres:PoolMax": 1}, Persistence__Postgres__pool_max="2")
    message = refusal(lambda: postgres(settings))
    assert "is given twice in" in message
    assert "environment variable Persistence__Postgres__pool_max" in message


class OddSettings(BackendSettings):
    """Third-party settings in which a field has another name in files."""

    size_of_pool: int = Field(default=1, alias="PoolMax", le=9)


@pytest.mark.parametrize("key", ["PoolMax", "pool_max", "size_of_pool", "SIZEOFPOOL"])
def test_a_field_of_a_driver_is_found_by_its_alias_and_by_its_name(key: str) -> None:
    spec = replace(load_backend("Memory"), settings=OddSettings)
    settings = load({f"Persistence:Memory:{key}": 7}).backend_settings("scheduler", spec)
    assert isinstance(settings, OddSettings)
    assert settings.size_of_pool == 7
    wrong = load({f"Persistence:Memory:{key}": 10})
    message = refusal(lambda: wrong.backend_settings("scheduler", spec))
    assert message.startswith(
        f"Persistence:Memory:{key} (the explicit mapping) is not valid: Input should be"
    )


def test_opening_a_storage_imports_no_reader_of_files_that_it_does_not_read(tmp_path: Path) -> None:
    code = (
        "import sys; from twinstore import open_storage\n"
        "with open_storage({'Persistence': {'Scheduler': 'Memory'}}) as storage: storage.scheduler\n"
        "print(sorted({'yaml', 'dotenv'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[]"


def postgres_settings(settings: Settings) -> PostgresSettings:
    found = settings.backend_settings("scheduler", load_backend("Postgres"))
    assert isinstance(found, PostgresSettings)
    return found


def test_a_connection_string_may_name_the_variable_or_the_file_that_holds_it(tmp_path: Path) -> None:
    """In every source; only this kind of key is followed, and what is found is a secret like any other."""
    (tmp_path / "url").write_text(f"{URL}\n")
    line = env_file(tmp_path, f"HELD={URL}\n")
    for given, env, environ in (
        (f"file:{tmp_path / 'url'}", None, {}),
        ("env:HELD", None, {"HELD": URL}),
        ("env:HELD", line, {}),
    ):
        settings = load({"Persistence": {"Postgres": {"ConnectionString": given}}}, env, None, **environ)
        assert postgres_settings(settings).connection_string == SecretStr(URL)
        assert PASSWORD not in str(settings.describe())
        settings = load(None, env, None, **environ, **{NAME: given})
        assert postgres_settings(settings).connection_string == SecretStr(URL)
    kept = load({"Persistence": {"Postgres": {"ApplicationRole": "env:HELD"}}}, HELD=URL)
    assert postgres_settings(kept).application_role == "env:HELD"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("env:NO_SUCH_URL", "names the variable 'NO_SUCH_URL', which is not set"),
        ("file:/no/such/url", "File /no/such/url (named by Persistence:Postgres:ConnectionString"),
    ],
)
def test_what_holds_no_connection_string_matters_to_its_driver_only(given: str, said: str) -> None:
    persistence = {"Scheduler": "Memory", "Postgres": {"ConnectionString": given}}
    settings = load({"Persistence": persistence})
    with open_storage(settings) as storage:
        assert storage.scheduler.driver == "Memory"
    assert said in refusal(lambda: postgres_settings(settings))
