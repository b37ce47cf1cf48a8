"""Settings: their sources, their checks, and defaults that follow from another field."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, SecretStr, model_validator

from docs.parts.entities import MODULES
from twinstore.config import ConfigSource, Settings, load_settings
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Count, Text
from twinstore.models.rules import FieldAtMost, FilledFrom, filled_from
from twinstore.models.validation import revalidated
from twinstore.plugins.backend import BackendSpec, ModuleBackend, OpenRequest
from twinstore.plugins.settings import BackendSettings
from twinstore.scheduler.options import SchedulerOptions
from twinstore.scheduler.schedules import Schedule
from twinstore.scheduler.triggers import Trigger
from twinstore.taskrunner.options import TaskRunnerOptions
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_schedule, make_trigger
from twinstore.tracking.options import TrackingOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "hunter2Zq"
URL = f"mongodb://app:{PASSWORD}@db1,db2/jobs"


def refuse_refused(value: int) -> int:
    if value == 13:
        raise ValueError("13 is unlucky")
    return value


def quote_the_secret(value: SecretStr) -> SecretStr:
    if "broken" in value.get_secret_value():
        raise ValueError(f"cannot use {value.get_secret_value()}")
    return value


class Tls(BaseModel):
    mode: str = "off"


class CaskSettings(BackendSettings):
    connection_string: Annotated[SecretStr, AfterValidator(quote_the_secret)]
    database: str = ""
    pool_max: Annotated[int, AfterValidator(refuse_refused)] = 10
    allow_standalone: bool = False
    tls: Tls = Tls()

    @model_validator(mode="after")
    def no_database_named_password(self) -> CaskSettings:
        if self.database == "leak":
            raise ValueError(f"no database in {self.connection_string.get_secret_value()}")
        return self


def never(_request: OpenRequest) -> ModuleBackend[object]:
    raise NotImplementedError


SPEC = BackendSpec(
    name="Mongo",
    schemes=("mongodb",),
    api_version=2,
    modules=frozenset({"scheduler"}),
    settings=CaskSettings,
    factory=never,
    extra="mongo",
)


def load(source: Mapping[str, object] | str | Path | None = None, **environ: str) -> Settings:
    return load_settings(source, environ=environ)


def refusal(source: Mapping[str, object] | str | Path | None = None, **environ: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(source, **environ)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    return caught.value.message


def cask(source: Mapping[str, object], **environ: str) -> CaskSettings:
    settings = load(source, **environ).backend_settings("scheduler", SPEC)
    assert isinstance(settings, CaskSettings)
    return settings


def cask_refusal(source: Mapping[str, object], **environ: str) -> str:
    settings = load(source, **environ)
    with pytest.raises(ConfigurationError) as caught:
        settings.backend_settings("scheduler", SPEC)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    return caught.value.message


# ------------------------------------------------------------------------------------- the switch
@pytest.mark.parametrize("value", ["Postgres", "postgres", " POSTGRES "])
@pytest.mark.parametrize("key", ["Persistence:Scheduler", "PERSISTENCE:scheduler"])
def test_the_switch_is_compared_without_case(key: str, value: str) -> None:
    assert load({key: value}).backend_name("scheduler") == "Postgres"
    assert load({key: value}).backend_name("Scheduler") == "Postgres"


def test_an_unset_switch_names_the_key_its_environment_spelling_and_the_drivers() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load().backend_name("scheduler")
    message = caught.value.message
    assert message.startswith("Persistence:Scheduler is not set")
    assert "Memory, Mongo, Postgres" in message
    assert "(environment: Persistence__Scheduler)" in message


def test_an_unknown_driver_names_key_source_near_match_and_the_allowed_ones() -> None:
    message = refusal(PERSISTENCE__SCHEDULER="Postgress")
    assert message.startswith(
        "Persistence:Scheduler = 'Postgress' (environment variable PERSISTENCE__SCHEDULER) does not name a "
        "driver."
    )
    assert "Did you mean Postgres? Allowed: Memory, Mongo, Postgres." in message


def test_the_filesystem_stores_the_task_runner_only() -> None:
    assert load({"Persistence:TaskRunner": "filesystem"}).backend_name("taskrunner") == "Filesystem"
    assert "does not name a driver" in refusal({"Persistence:Scheduler": "Filesystem"})


@pytest.mark.parametrize("value", ["", 5, True])
def test_a_switch_that_is_no_name_is_refused(value: object) -> None:
    assert "does not name a driver" in refusal({"Persistence:Scheduler": value})


def test_an_installed_third_party_driver_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "does not name a driver" in refusal({"Persistence:Scheduler": "cask"})
    info = tmp_path / "cask_driver-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cask-driver\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[twinstore.backends]\nCask = cask_driver\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = load(
        {"Persistence": {"Scheduler": "CASK", "cask": {"Level": 3}}, "Scheduler:Storage:Cask:Level": 4}
    )
    assert settings.backend_name("scheduler") == "Cask"
    assert settings.backend_section("scheduler", "Cask") == {"Level": 4}
    assert "Allowed: Cask, Memory, Mongo, Postgres." in refusal({"Persistence:Scheduler": "Oracle"})


def test_the_mode_of_the_task_runner_is_another_spelling_of_its_switch() -> None:
    assert load({"TaskRunner:Storage:Mode": "mongo"}).backend_name("taskrunner") == "Mongo"
    both = {"TaskRunner:Storage:Mode": "mongo", "Persistence:TaskRunner": "MONGO"}
    assert load(both).backend_name("taskrunner") == "Mongo"


def test_a_mode_that_contradicts_the_switch_is_refused_with_both_sources() -> None:
    message = refusal({"Persistence:TaskRunner": "Mongo"}, TaskRunner__Storage__Mode="postgres")
    assert message == (
        "Persistence:TaskRunner (the explicit mapping) contradicts TaskRunner:Storage:Mode "
        "(environment variable TaskRunner__Storage__Mode); remove one of them or give both the same value."
    )


# ------------------------------------------------------------------------------------- sources


# The settings of a driver validate the section of that driver.
FULL: Mapping[str, object] = {
    "Logging": {"LogLevel": {"Default": "Information"}},
    "Persistence": {
        "Scheduler": "Postgres",
        "Tracking": "Mongo",
        "TaskRunner": "Filesystem",
        "Mongo": {"ConnectionString": URL, "Database": "d"},
        "Postgres": {"ConnectionString": "host=h", "PoolMax": 2},
    },
    "Scheduler": {
        "Storage": {"RunRetentionDays": 90, "ImpactRetentionDays": 7, "Mongo": {"Database": "d"}},
        "Workers": {"HeartbeatSeconds": 5, "DeadAfterSeconds": 50},
    },
    "Tracking": {"StaleAfterSeconds": 60, "Storage": {"Postgres": {"ConnectionString": "x"}}},
    "TaskRunner": {
        "Storage": {"Mode": "filesystem", "LogRetentionDays": 3, "Filesystem": {"Root": "/srv"}},
        "Tenancy": {"Enforced": True},
    },
    "Worker": {
        "Storage": {"Mode": "filesystem", "Filesystem": {"Root": "/worker"}},
        "TaskRunner": {"Storage": {"LogRetentionDays": 4}},
    },
}
YAML_TEXT = """
Logging: {LogLevel: {Default: Information}}
persistence:
  Scheduler: Postgres
  Postgres:
    PoolMax: 2
Scheduler:Storage:RunRetentionDays: 90
"""
JSON_TEXT = """\ufeff
{"persistence": {"Scheduler": "Postgres", "Postgres:PoolMax": 2},
 "Scheduler:Storage": {"RunRetentionDays": 90}}
"""
TOML_TEXT = """
[Logging]
Level = "x"
[persistence]
Scheduler = "Postgres"
Postgres.PoolMax = 2
[Scheduler.Storage]
RunRetentionDays = 90
"""


def write(tmp_path: Path, text: str, name: str = "appsettings.json") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_options_and_sections_of_every_module_are_read(tmp_path: Path) -> None:
    settings = load(write(tmp_path, json.dumps(FULL)))
    assert [settings.backend_name(m) for m in ("scheduler", "tracking", "taskrunner")] == [
        "Postgres",
        "Mongo",
        "Filesystem",
    ]
    assert settings.options("scheduler") == SchedulerOptions(
        run_retention_days=90, impact_retention_days=7, heartbeat_seconds=5, dead_after_seconds=50
    )
    assert settings.options("tracking") == TrackingOptions(stale_after_seconds=60)
    assert settings.options("taskrunner") == TaskRunnerOptions(log_retention_days=3, tenancy_enforced=True)


def test_the_defaults_of_the_options() -> None:
    assert load().options("scheduler") == SchedulerOptions(run_retention_days=180, impact_retention_days=0)
    assert load().options("tracking") == TrackingOptions(stale_after_seconds=300)
    assert load().options("taskrunner") == TaskRunnerOptions(log_retention_days=0, tenancy_enforced=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", YAML_TEXT),
        ("a.YML", YAML_TEXT),
        ("a.toml", TOML_TEXT),
        (
            "a.json",
            JSON_TEXT,
        ),
    ],
)
def test_json_yaml_and_toml_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path, text, name)
    for settings in (load(path), load(str(path)), load(TWINSTORE_CONFIG=str(path))):
        assert settings.backend_name("scheduler") == "Postgres"
        assert settings.backend_section("scheduler", "POSTGRES") == {"PoolMax": 2}
        assert settings.options("scheduler") == SchedulerOptions(run_retention_days=90)


def test_variables_of_other_programs_are_ignored() -> None:
    others = {
        "WORKER": "3",
        "SCHEDULER": "x",
        "Logging__Level": "x",
        "Workers__Storage": "x",
        "__init__": "x",
    }
    assert load(**others, PATH="/bin").describe() == load().describe()


def test_null_counts_as_not_given() -> None:
    settings = load(
        {"Persistence": {"Scheduler": None, "Mongo": None}, "Worker": None}, Persistence__Scheduler="Mongo"
    )
    assert settings.backend_name("scheduler") == "Mongo"


# ------------------------------------------------------------------------------------- refused files
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"Persistence": {"Scheduler": "Mongo", "scheduler": "Mongo"}}',
            "Persistence:Scheduler is given twice in file",
        ),
        ('{"Persistence": {"Scheduler": "Mongo", "Scheduler": "Mongo"}}', "key 'Scheduler' occurs twice"),
        (
            '{"Persistence": {"Scheduler": "Mongo"}, "PERSISTENCE": {"Scheduler": "Mongo"}}',
            "is given twice in file",
        ),
        (
            '{"Persistence": {"Scheduler": "Mongo"}, "Persistence:Scheduler": "Mongo"}',
            "is given twice in file",
        ),
        (f'{{"Persistence:Mongo:ConnectionString": "{URL}" x}}', "malformed at line 1, column 79"),
        (f'["{PASSWORD}"]', "malformed: the top level must be an object"),
        ("", "malformed at line 1"),
        ('{"Persistence": ["Mongo"]}', "Persistence in file .* is a section, but has a value"),
    ],
)
def test_a_wrong_json_file_is_refused_without_quoting_it(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", f"Persistence:\n  Mongo: *{PASSWORD}\n", "malformed at line 2, column 10"),
        ("a.yaml", f"Persistence: !{PASSWORD} x\n", "malformed at line 1"),
        ("a.yaml", "Persistence: {}\nPersistence: {}\n", "key 'Persistence' occurs twice"),
        ("a.yaml", "- x\n", "the top level must be an object"),
        ("a.yaml", "Persistence:\n  1: x\n", "has the key 1; keys must be text"),
        ("a.toml", f"[Persistence]\nMongo = {PASSWORD}\n", "malformed at line 2, column"),
        ("a.ini", "", "unknown format; use one of .json, .yaml, .yml, .toml"),
        ("a", "", "unknown format"),
    ],
)
def test_a_wrong_yaml_or_toml_file_is_refused_without_quoting_it(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(write(tmp_path, text, name))
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"Persistence": "\xff"}')
    assert "byte 17 is not UTF-8" in refusal(path)


def test_a_missing_file_says_who_named_it(tmp_path: Path) -> None:
    assert "given as an argument) does not exist" in refusal(tmp_path / "none.json")
    assert "from TWINSTORE_CONFIG) does not exist" in refusal(TWINSTORE_CONFIG=str(tmp_path / "none.json"))
    assert "is not a file; name one" in refusal(TWINSTORE_CONFIG=str(make(tmp_path / "folder.json")))


def make(path: Path) -> Path:
    path.mkdir()
    return path


# ---------------------------------------------------------------------------------- refused keys and values
@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "Persistence:Schedular",
            "Unknown setting Persistence:Schedular in the explicit mapping. Did you mean Scheduler?",
        ),
        (
            "Persistence:Mongoo:Database",
            "Did you mean Mongo? Allowed below Persistence: Scheduler, Tracking, TaskRunner",
        ),
        ("Scheduler:Storage:RunRetention", "Did you mean RunRetentionDays"),
        (
            "Scheduler:Store:Mongo:Database",
            "Did you mean Storage? Allowed below Scheduler: Storage, Workers.",
        ),
        (
            "Tracking:Storage:Mode",
            "Allowed below Tracking:Storage: RetentionDays, Filesystem, Memory, Mongo, Postgres.",
        ),
        ("TaskRunner:Tenancy:Enforce", "Did you mean Enforced?"),
        ("Worker:Queue", "Allowed below Worker: Storage, TaskRunner."),
        ("Worker:TaskRunner:Tenancy:Enforced", "Allowed below Worker:TaskRunner: Storage."),
        ("Persistence:Scheduler:Mongo", "Persistence:Scheduler in the explicit mapping is a single value"),
        ("Persistence:Mongo", "Persistence:Mongo in the explicit mapping is a section, but has a value"),
        ("Scheduler", "Scheduler in the explicit mapping is a section, but has a value"),
        ("Persistence:", "Unknown setting Persistence: in the explicit mapping"),
    ],
)
def test_an_unknown_key_names_key_source_near_match_and_the_allowed_ones(key: str, message: str) -> None:
    assert message in refusal({key: PASSWORD})


def test_an_unknown_key_of_the_environment_names_the_variable() -> None:
    message = refusal(SCHEDULER__STORAGE__RUNRETENTIONDAY="5")
    assert (
        "SCHEDULER:STORAGE:RUNRETENTIONDAY in environment variable SCHEDULER__STORAGE__RUNRETENTIONDAY"
        in message
    )
    assert "Did you mean RunRetentionDays" in message


def test_a_value_in_one_source_and_a_section_in_another_are_refused() -> None:
    message = refusal({"Persistence:Mongo:Tls:Mode": "on"}, Persistence__Mongo__Tls="on")
    assert (
        "is a value in environment variable Persistence__Mongo__Tls and a section in the explicit" in message
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "Scheduler:Storage:RunRetentionDays",
            -1,
            "= -1 (the explicit mapping) is not valid: Input should be greater",
        ),
        ("Scheduler:Storage:RunRetentionDays", 24_856, "should be less than or equal to 24855"),
        ("Scheduler:Storage:ImpactRetentionDays", "many", "= 'many' (the explicit mapping) is not valid"),
        ("Scheduler:Storage:ImpactRetentionDays", 1.5, "is not valid"),
        ("Scheduler:Workers:HeartbeatSeconds", True, "must be a whole number, not true or false"),
        ("Tracking:StaleAfterSeconds", 0, "greater than or equal to 1"),
        ("TaskRunner:Tenancy:Enforced", "perhaps", "TaskRunner:Tenancy:Enforced = 'perhaps'"),
    ],
)
def test_an_option_that_is_not_valid_names_key_value_and_source(
    key: str, value: object, message: str
) -> None:
    text = refusal({key: value})
    assert text.startswith(key)
    assert message in text


def test_options_of_the_environment_are_converted() -> None:
    settings = load(SCHEDULER__STORAGE__RUNRETENTIONDAYS="0", taskrunner__tenancy__enforced="true")
    assert settings.options("scheduler") == SchedulerOptions(run_retention_days=0)
    assert settings.options("taskrunner") == TaskRunnerOptions(tenancy_enforced=True)


@pytest.mark.parametrize("call", ["backend_name", "options"])
def test_an_unknown_module_is_refused(call: str) -> None:
    with pytest.raises(
        ConfigurationError, match="Unknown module 'shop'; known: scheduler, tracking, taskrunner"
    ):
        getattr(load(), call)("shop")


# ------------------------------------------------------------------------------------- settings of a driver
def test_the_section_of_the_module_overlays_the_shared_one_key_by_key() -> None:
    source = {
        "Persistence:Mongo": {"ConnectionString": "mongodb://shared", "Database": "shared", "PoolMax": 3},
        "Scheduler": {"Storage": {"mongo": {"connectionstring": "mongodb://own"}}},
        "Tracking:Storage:Mongo:Database": "tracking",
    }
    settings = cask(source, Persistence__MONGO__POOLMAX="4")
    assert settings.connection_string.get_secret_value() == "mongodb://own"
    assert (settings.database, settings.pool_max) == ("shared", 3)
    assert cask({}, Persistence__Mongo__ConnectionString="m", Persistence__Mongo__PoolMax="4").pool_max == 4


def test_a_nested_model_of_a_driver_is_found_in_any_case() -> None:
    source = {"Persistence:Mongo": {"ConnectionString": "m", "TLS": {"MODE": "on"}}}
    assert cask(source).tls.mode == "on"
    message = cask_refusal({"Persistence:Mongo": {"ConnectionString": "m", "Tls": {"Mod": "on"}}})
    assert "Unknown setting Persistence:Mongo:Tls:Mod" in message
    assert "Did you mean mode?" in message


def test_an_unknown_key_of_a_driver_names_key_source_near_match_and_the_allowed_ones() -> None:
    message = cask_refusal({"Persistence:Mongo:ConnectionString": URL, "Persistence:Mongo:PoolMaximum": 3})
    assert message == (
        "Unknown setting Persistence:Mongo:PoolMaximum in the explicit mapping. Did you mean PoolMax? "
        "Allowed below Persistence:Mongo: AllowStandalone, ConnectionString, Database, PoolMax, Tls."
    )


def test_a_required_key_that_is_absent_names_both_places_and_the_environment() -> None:
    assert cask_refusal({}) == (
        "Scheduler:Storage:Mongo:ConnectionString is not set; set it or Persistence:Mongo:ConnectionString "
        "(environment: Persistence__Mongo__ConnectionString)."
    )


def test_a_refused_value_names_key_and_source() -> None:
    message = cask_refusal(
        {"Persistence:Mongo:ConnectionString": URL}, Scheduler__Storage__Mongo__PoolMax="13"
    )
    assert message == (
        "Scheduler:Storage:Mongo:PoolMax (environment variable Scheduler__Storage__Mongo__PoolMax) "
        "is not valid: 13 is unlucky."
    )


@pytest.mark.parametrize(
    "extra",
    [
        {"Persistence:Mongo:ConnectionString": f"broken {URL}"},
        {"Persistence:Mongo:ConnectionString": URL, "Persistence:Mongo:Database": "leak"},
        {"Persistence:Mongo:ConnectionString": {"Nested": URL}},
        {"Persistence:Mongo:ConnectionString": [URL]},
    ],
)
def test_a_driver_that_repeats_a_secret_in_its_message_is_not_quoted(extra: dict[str, object]) -> None:
    assert "is not valid" in cask_refusal(extra)


# ------------------------------------------------------------------------------------- roles
def test_a_worker_reads_its_mirrored_sections_over_those_of_the_task_runner() -> None:
    web = load({**FULL, "Persistence:TaskRunner": None})
    worker = web.for_role("worker")
    assert web.backend_section("taskrunner", "Filesystem") == {"Root": "/srv"}
    assert worker.backend_section("taskrunner", "Filesystem") == {"Root": "/worker"}
    assert worker.options("taskrunner") == TaskRunnerOptions(log_retention_days=4, tenancy_enforced=True)
    assert worker.options("scheduler") == web.options("scheduler")


def test_both_worker_sections_may_not_contradict_each_other_or_the_switch() -> None:
    twice = load({"Worker:Storage:LogRetentionDays": 1, "Worker:TaskRunner:Storage:LogRetentionDays": 2})
    with pytest.raises(
        ConfigurationError, match=r"Worker:Storage:LogRetentionDays .* contradicts Worker:TaskRunner:"
    ):
        twice.for_role("worker")
    switched = load({"Persistence:TaskRunner": "Mongo", "Worker:Storage:Mode": "postgres"})
    with pytest.raises(
        ConfigurationError, match=r"Persistence:TaskRunner .* contradicts Worker:Storage:Mode"
    ):
        switched.for_role("worker")


def test_there_is_no_other_role() -> None:
    with pytest.raises(ConfigurationError, match="Unknown role 'cook'; known: worker"):
        load().for_role("cook")


# ------------------------------------------------------------------------------------- secrets
def test_the_description_shows_values_and_sources_without_secrets() -> None:
    source = {
        "persistence": {"scheduler": "mongo", "Mongo": {"ConnectionString": URL, "SaslPassword": PASSWORD}},
        "Scheduler:Storage:Postgres:ConnectionString": SecretStr(f"host=h password={PASSWORD}"),
        "Tracking:Storage:Postgres:ConnectionString": f"app:{PASSWORD}@db",
        "Tracking:Storage:Mongo:Hosts": [URL, 5, {"x": PASSWORD}],
    }
    shown = load(source, Scheduler__Storage__RunRetentionDays="9").describe()
    assert shown["Persistence:Scheduler"] == {"value": "mongo", "source": "the explicit mapping"}
    assert shown["Persistence:Mongo:ConnectionString"]["value"] == "mongodb://app:***@db1,db2/jobs"
    assert shown["Scheduler:Storage:Postgres:ConnectionString"]["value"] == "host=h password=***"
    assert shown["Tracking:Storage:Postgres:ConnectionString"]["value"] == "***"
    assert shown["Scheduler:Storage:RunRetentionDays"] == {
        "value": "9",
        "source": "environment variable Scheduler__Storage__RunRetentionDays",
    }
    assert shown["Tracking:StaleAfterSeconds"] == {"value": 300, "source": "default"}
    assert PASSWORD not in json.dumps(shown)


@given(st.text("abcXYZ019!:/?#[]@%&='\" ;", min_size=1, max_size=12))
def test_no_password_survives_in_any_rendering(text: str) -> None:
    password = f"Zq{text}9Kx"
    for value in (f"mongodb://u:{password}@h/d", f"postgresql://u:{quote(password, safe='')}@h/d"):
        settings = load(
            {"Persistence": {"Scheduler": "Mongo", "Mongo": {"ConnectionString": value, "PoolMax": "x"}}}
        )
        with pytest.raises(ConfigurationError) as caught:
            settings.backend_settings("scheduler", SPEC)
        rendered = [
            repr(settings),
            json.dumps(settings.describe()),
            *traceback.format_exception(caught.value),
        ]
        rendered += [repr(entry) for entry in settings.entries.values()]
        assert "Zq" not in "".join(rendered)
        assert "9Kx" not in "".join(rendered)


def test_the_representation_names_the_switches_only() -> None:
    assert repr(load(FULL)) == "Settings(Scheduler=Postgres, Tracking=Mongo, TaskRunner=Filesystem)"
    assert repr(load()) == "Settings(Scheduler=unset, Tracking=unset, TaskRunner=unset)"


def test_what_opens_a_storage_reads_what_its_docstring_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, given = tmp_path / "named.json", tmp_path / "given.json"
    named.write_text('{"Persistence": {"Scheduler": "Memory", "Memory": {"Store": "named"}}}')
    given.write_text('{"Persistence": {"Scheduler": "Memory", "Memory": {"Store": "given"}}}')
    monkeypatch.setenv("TWINSTORE_CONFIG", str(named))

    def store(config: ConfigSource) -> object:
        return load_settings(config).backend_section("scheduler", "Memory")["Store"]

    loaded = load_settings(given)
    assert [store(None), store(given), store({}), store(loaded)] == ["named", "given", "named", "given"]
    monkeypatch.setenv("Persistence__Memory__Store", "environment")
    assert [store(None), store(given), store({}), store(loaded)] == [*["environment"] * 3, "given"]
    assert store({"Persistence": {"Memory": {"Store": "mapping"}}}) == "mapping"


def test_aliases_of_yaml_are_read(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("x: &common {PoolMax: 7}\nPersistence:\n  Postgres:\n    <<: *common\n    PoolMin: 2\n")
    section = load_settings(path, environ={}).backend_section("scheduler", "Postgres")
    assert section == {"PoolMax": 7, "PoolMin": 2}


def test_aliases_that_stand_for_too_much_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    levels = ["x0: &x0 {a: 1, b: 2, c: 3, d: 4}"]
    for number in range(1, 12):
        named = ", ".join(f"{key}: *x{number - 1}" for key in "abcd")
        levels.append(f"x{number}: &x{number} {{{named}}}")
    path.write_text("\n".join([*levels, "Persistence:", "  Mongo: *x11", ""]))
    with pytest.raises(ConfigurationError, match="more than 100,000 keys and values, YAML"):
        load_settings(path, environ={})


def test_a_section_inside_of_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("Persistence: &a\n  Mongo: *a\n")
    with pytest.raises(ConfigurationError, match="more than 100,000 keys and values, YAML"):
        load_settings(path, environ={})


@pytest.mark.parametrize("empty", ["{}", "[]"])
def test_aliases_that_stand_for_many_empty_nodes_are_refused(tmp_path: Path, empty: str) -> None:
    path = tmp_path / "settings.yaml"
    levels = (f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 12))
    path.write_text("\n".join([f"x0: &x0 {empty}", *levels, "Persistence: {Memory: *x11}", ""]))
    with pytest.raises(ConfigurationError, match="more than 100,000 keys and values, YAML"):
        load_settings(path, environ={})


def test_a_mapping_may_repeat_a_key_of_the_one_that_it_merges(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    text = "x: &x {PoolMin: 1, PoolMax: 7}\ny: &y {<<: *x, PoolMax: 8}\n"
    path.write_text(f"{text}Persistence:\n  Postgres: {{<<: *y, PoolMin: 2}}\n")
    section = load_settings(path, environ={}).backend_section("scheduler", "Postgres")
    assert section == {"PoolMax": 8, "PoolMin": 2}


class Box(CanonicalModel):
    rules = (FieldAtMost("shown", limit="total", code="shown", message="shown should be at most total"),)

    items: tuple[Text, ...] = ()
    total: Count = filled_from("items", len)
    shown: Count = filled_from("total")


def models() -> Iterator[type[CanonicalModel]]:
    """Yield the models of all entities and those inside them."""
    found: dict[type[CanonicalModel], None] = {}
    waiting = [entity.model for module in MODULES for entity in module.catalog.entities]
    while waiting:
        model = waiting.pop()
        if model not in found:
            found[model] = None
            waiting += [
                inner for info in model.model_fields.values() for inner in pydantic_models(info.annotation)
            ]
    yield from found


def pydantic_models(annotation: object) -> list[type[CanonicalModel]]:
    """Return the models that an annotation names."""
    parts = [annotation, *getattr(annotation, "__args__", ())]
    return [part for part in parts if isinstance(part, type) and issubclass(part, CanonicalModel)]


def test_omitted_fields_are_derived_in_the_order_of_the_fields() -> None:
    assert Box(items=("a", "b")).__dict__ == {"items": ("a", "b"), "total": 2, "shown": 2}
    assert Box(items=("a",), total=5).shown == 5
    assert Box(items=("a",), total=5, shown=0).shown == 0
    with pytest.raises(pydantic.ValidationError, match="at most total"):
        Box(total=1, shown=2)


@pytest.mark.parametrize("model", list(models()))
def test_no_default_of_ours_is_reported_as_a_separate_error(model: type[CanonicalModel]) -> None:
    taking = [name for name, info in model.model_fields.items() if info.default_factory_takes_validated_data]
    assert taking == []


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"when_cron": "nonsense"}, "when_cron"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"name": 5}, "name"),
    ],
)
def test_one_mistake_in_a_schedule_is_one_error(changes: dict[str, object], wrong: str) -> None:
    given = {**make_schedule("t", "s").__dict__, **changes}
    del given["updated_at"], given["updated_by"]
    with pytest.raises(pydantic.ValidationError) as caught:
        Schedule(**given)
    assert [problem["loc"][-1] for problem in caught.value.errors()] == [wrong]


@pytest.mark.parametrize("missing", ["tenant_id", "schedule_id"])
def test_one_mistake_in_a_trigger_is_one_error(missing: str) -> None:
    given = {**make_trigger("t", "s").__dict__}
    del given["id"], given[missing]
    with pytest.raises(pydantic.ValidationError) as caught:
        Trigger(**given)
    assert len(caught.value.errors()) == 1


def test_a_schedule_without_a_change_was_changed_when_it_was_made() -> None:
    given = {**make_schedule("t", "s", created_at=at(5), created_by="eve").__dict__}
    del given["updated_at"], given["updated_by"]
    schedule = Schedule(**given)
    assert (schedule.updated_at, schedule.updated_by) == (at(5), "eve")
    assert not any(isinstance(value, FilledFrom) for value in schedule.__dict__.values())


def test_what_a_caller_changes_later_is_not_what_was_checked() -> None:
    given = make_schedule("t", "s")
    taken = revalidated(given, Schedule, "schedule")
    assert taken == given
    assert taken is not given
    assert taken.limits is not given.limits


def test_a_model_that_holds_itself_is_refused() -> None:
    given = deepcopy(make_schedule("t", "s"))
    object.__setattr__(given, "limits", given)
    with pytest.raises(ValidationError, match="holds itself"):
        revalidated(given, Schedule, "schedule")
