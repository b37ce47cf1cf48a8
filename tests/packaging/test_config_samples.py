"""Every form of the settings in samples/config says the same, and is loaded as its users load it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import twinstore
from tests.packaging.test_deployments import rendered
from twinstore.config import Settings, load_settings

FOLDER: Final = Path(__file__).parents[2] / "samples/config"
SECRETS: Final = FOLDER / "secrets"
BLOCK: Final = {
    "ConnectionString": "mongodb://127.0.0.1:27017/taskrunner",
    "Database": "taskrunner",
    "Collections": {
        "pack_runs": "pack_runs",
        "pack_run_logs": "pack_run_logs",
        "pack_artifacts": "pack_artifacts",
        "pack_run_approvals": "pack_run_approvals",
    },
}


def of_shell() -> Settings:
    words = shlex.split((FOLDER / "environment.sh").read_text(), comments=True)
    assert words[::2] == ["export"] * (len(words) // 2)
    return load_settings(environ=dict(word.split("=", 1) for word in words[1::2]))


def of_compose() -> Settings:
    document = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    (service,) = document["services"].values()
    assert set(service["secrets"]) == set(document["secrets"]) == {path.name for path in SECRETS.iterdir()}
    for name, secret in document["secrets"].items():
        assert FOLDER / secret["file"] == SECRETS / name
    environment = {**service["environment"]}
    # Where Compose puts secret files in a container.
    assert environment.pop("TWINSTORE_SECRETS_DIR") == "/run/secrets"
    return load_settings(environ=environment, secrets_dir=SECRETS)


def of_helm(tmp_path: Path) -> Settings:
    values = yaml.safe_load((FOLDER / "helm/values.yaml").read_text())
    templates = FOLDER / "helm/templates"
    (config,) = rendered(templates / "settings.yaml", values)
    (deployment,) = rendered(templates / "deployment.yaml", values)
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == config["metadata"]["name"]
    assert volumes["secrets"]["secret"]["secretName"] == values["secretName"]
    assert Path(environment.pop("TWINSTORE_SECRETS_DIR")) == mounts["secrets"]
    file = Path(environment.pop("TWINSTORE_CONFIG"))
    assert file.parent == mounts["settings"]
    (tmp_path / file.name).write_text(config["data"][file.name])
    return load_settings(tmp_path / file.name, secrets_dir=SECRETS, environ=environment)


@pytest.mark.parametrize("form", ["json", "yaml", "toml", "shell", ".env", "compose", "helm"])
def test_every_form_says_the_same(form: str, tmp_path: Path) -> None:
    readers: dict[str, Callable[[], Settings]] = {
        "shell": of_shell,
        ".env": lambda: load_settings(env_file=FOLDER / ".env", environ={}),
        "compose": of_compose,
        "helm": lambda: of_helm(tmp_path),
    }
    settings = readers.get(form, lambda: load_settings(FOLDER / f"appsettings.{form}", environ={}))()
    assert (settings.backend_name("scheduler"), settings.backend_name("taskrunner")) == ("Postgres", "Mongo")
    assert settings.backend_section("taskrunner", "Mongo") == BLOCK


def test_a_process_of_the_role_worker_reads_the_mirrored_section(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWINSTORE_CONFIG", "TWINSTORE_ENV_FILE", "TWINSTORE_SECRETS_DIR"):
        monkeypatch.delenv(name, raising=False)
    settings = load_settings(FOLDER / "worker.json", environ={})
    without_database: Mapping[str, Any] = {key: BLOCK[key] for key in ("ConnectionString", "Collections")}
    assert settings.named_modules() == ()
    worker = settings.for_role("worker")
    assert worker.named_modules() == ("taskrunner",)
    assert worker.backend_section("taskrunner", "Mongo") == without_database
    with twinstore.add_taskrunner_storage(FOLDER / "worker.json", role="worker") as storage:
        assert storage.driver == "Mongo"


def test_the_secret_files_alone_are_what_the_settings_file_omits() -> None:
    described = load_settings(secrets_dir=SECRETS, environ={}).describe()
    assert [key for key, item in described.items() if "secret file" in str(item["source"])] == [
        "TaskRunner:Storage:Mongo:ConnectionString"
    ]


def test_the_readme_names_every_form() -> None:
    text = (FOLDER / "README.md").read_text()
    for path in FOLDER.iterdir():
        assert f"`{path.name}" in text or path.name == "README.md", path.name
