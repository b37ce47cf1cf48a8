"""The pipeline of the samples, run as a pipeline runs it: a shell script, real servers, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
import yaml
from junitparser import JUnitXml
from pymongo import MongoClient

from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.support.copies import fill, open_store, write_config
from tests.support.outages import eventually
from twinstore.config import load_settings
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, PostgresDatabase

pytestmark = pytest.mark.long
PIPELINE: Final = Path(__file__).parents[2] / "samples" / "ci" / "pipeline.sh"


@pytest.fixture
def config(empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    """Return settings of a filled source and an empty scratch database."""
    settings = merged_settings(empty_mongo_database, postgres_database)
    settings["Persistence"] = {**cast("dict[str, object]", settings["Persistence"]), "Scheduler": "Mongo"}
    path = write_config(tmp_path / "settings.json", settings)
    with open_store("scheduler", "mongo", load_settings(path, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        fill(store.storage, ["acme"])
    return path


def run(config: Path, directory: Path, shell: str = "/bin/sh", **given: str) -> int:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TWINSTORE_CONFIG": str(config),
        "OUT": str(directory / "out"),
        "SUMMARY": str(directory / "summary.md"),
        **given,
    }
    done = subprocess.run([shell, PIPELINE], env=environment, cwd=directory, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    return done.returncode


def counts_of(directory: Path) -> tuple[int, int]:
    """Return the failures and the errors of the whole run."""
    text = (directory / "out" / "junit.xml").read_text()
    (whole,) = re.findall(r"<testsuites ([^>]*)>", text)
    failures, errors = (re.search(rf'\b{name}="(\d+)"', whole) for name in ("failures", "errors"))
    assert failures is not None
    assert errors is not None
    return int(failures[1]), int(errors[1])


def test_a_green_run_leaves_every_file_and_may_be_repeated(
    config: Path, tmp_path: Path, *, long_form: bool
) -> None:
    assert run(config, tmp_path) == Exit.OK
    assert counts_of(tmp_path) == (0, 0)
    assert "PASS" in (tmp_path / "summary.md").read_text()
    assert "PASS" in (tmp_path / "out" / "parity.html").read_text()
    assert (tmp_path / "out" / "report" / "differences.ndjson").read_bytes() == b""
    if long_form:
        assert run(config, tmp_path) == Exit.OK


SHELLS: Final = ("/bin/sh", "/bin/bash")


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_of_an_earlier_run_is_left_when_there_is_no_verdict(shell: str, tmp_path: Path) -> None:
    report = tmp_path / "o $u" / "report"
    report.mkdir(parents=True)
    for name in ("junit.xml", "parity.html", "plan.txt", "copy.txt", "verify.txt", "summary.md"):
        (report.parent / name).write_text("PASS")
    for name in ("parity-report.json", "parity-report.md", "differences.ndjson"):
        (report / name).write_text("PASS")
    assert run(tmp_path / "missing.json", tmp_path, shell, OUT="o $u", SUMMARY="") == Exit.USAGE
    left = {path.name: path.read_text() for path in report.parent.rglob("*") if path.is_file()}
    assert set(left) == {"error.txt", "junit.xml", "plan.txt", "summary.md"}
    assert not [name for name, text in left.items() if "PASS" in text]
    assert left["summary.md"].startswith(f"# No verdict: backfill plan ended with code {Exit.USAGE}")
    assert "missing.json" in left["summary.md"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_directory_that_cannot_be_written_to_does_not_look_like_a_difference(
    shell: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run(tmp_path / "missing.json", tmp_path, shell, OUT=str(file / "out")) == Exit.USAGE


def test_a_document_that_cannot_be_moved_leaves_the_proof_open_and_is_named(
    config: Path, empty_mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    with MongoClient[dict[str, Any]](empty_mongo_database.url) as client:
        runs = client[empty_mongo_database.name]["runs"]
        found = runs.find_one({"_id": "acme-run-1"})
        assert found is not None
        runs.insert_one({**found, "_id": "bad", "legacy": 1})
    assert run(config, tmp_path) == Exit.INCONCLUSIVE
    failures, errors = counts_of(tmp_path)
    assert (failures, errors > 0) == (0, True)
    assert "bad" in (tmp_path / "summary.md").read_text()


@pytest.mark.smoke
def test_a_server_that_is_away_ends_the_run_before_anything_is_written(config: Path, tmp_path: Path) -> None:
    text = config.read_text()
    port = next(part for part in text.split("mongodb://")[1].split("/")[0].split(":")[1:])
    away = tmp_path / "away.json"
    away.write_text(text.replace(f":{port}", ":9"))
    assert run(away, tmp_path) == Exit.FAILED
    assert not (tmp_path / "out" / "report").exists()
    (suite,) = JUnitXml.fromfile(str(tmp_path / "out" / "junit.xml"))
    (case,) = suite
    (problem,) = case.result
    assert (case.name, problem.message) == ("plan", f"backfill plan ended with code {Exit.FAILED}")
    assert "error: " in (problem.text or "")


STEP: Final = """#!/bin/sh
echo "$$" >> pids
case "$*" in
*" $STOP_AT"*)
    trap 'echo "Interrupted by SIGTERM." >&2; kill "$!"; exit 143' TERM
    sleep 600 & : > waiting
    wait ;;
esac
"""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("step", ["plan", "copy", "verify"])
def test_a_signal_ends_what_runs_and_leaves_the_files_for_people(
    shell: str, step: str, tmp_path: Path
) -> None:
    (tmp_path / "twinstore").write_text(STEP)
    (tmp_path / "twinstore").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "STOP_AT": step}
    with subprocess.Popen(
        [shell, PIPELINE], env=environment, cwd=tmp_path, stderr=subprocess.PIPE
    ) as running:
        assert eventually((tmp_path / "waiting").exists)
        running.terminate()
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (Exit.TERMINATED, b"Interrupted by SIGTERM.\n")
    (suite,) = JUnitXml.fromfile(str(tmp_path / "out" / "junit.xml"))
    (case,) = suite
    (problem,) = case.result
    assert (case.name, problem.message) == (step, f"backfill {step} ended with code {Exit.TERMINATED}")
    assert "Interrupted by SIGTERM." in (tmp_path / "out" / "summary.md").read_text()
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


CI: Final = Path(__file__).parents[2] / "samples" / "ci"
ROOT: Final = CI.parents[1]
ACTION: Final[dict[str, Any]] = yaml.safe_load((CI / "action.yml").read_text("utf-8"))
GITLAB: Final[dict[str, Any]] = yaml.safe_load((CI / "gitlab-ci.yml").read_text("utf-8"))["parity"]
JENKINS: Final = (CI / "Jenkinsfile").read_text("utf-8")
# Of Groovy, whose samples use no other kind of string; a comment holds none.
STRING: Final = re.compile(r"""'[^'\n]*'|"[^"\n]*\"""")
STEPS: Final = ACTION["runs"]["steps"]
(JUNIT,) = re.findall(r"testResults: '([^']+)'", JENKINS)
(ARCHIVED,) = re.findall(r"artifacts: '([^']+)'", JENKINS)
SHELL: Final = [text[1:-1] for text in re.findall(rf"^\s*sh ({STRING.pattern})$", JENKINS, re.MULTILINE)]
PUBLISHED: Final = {
    "GitHub": [line.replace("${{ inputs.out }}", "out") for line in STEPS[1]["with"]["path"].splitlines()],
    "GitLab": [*GITLAB["artifacts"]["paths"], GITLAB["artifacts"]["reports"]["junit"]],
    "Jenkins": [*ARCHIVED.split(", "), JUNIT],
}
RUNS: Final = {
    "GitHub": ["sh", "-e", "-c", STEPS[0]["run"]],
    "GitLab": ["sh", "-e", "-c", "\n".join(GITLAB["script"])],
    "Jenkins": ["sh", "-e", "-c", SHELL[-1].replace(".venv/bin", "bin")],
}


@pytest.mark.parametrize("service", PUBLISHED)
def test_what_is_published_is_what_the_pipeline_leaves_and_no_data_of_customers(service: str) -> None:
    script = (CI / "pipeline.sh").read_text("utf-8")
    paths = PUBLISHED[service]
    assert {"out/junit.xml", "out/parity.html", "out/report/differences.ndjson"} <= set(paths)
    for path in paths:
        assert not path.startswith("out/copy")
        assert not set("*?") & set(path)
        # The report directory is that of the command; the tests above see its files.
        assert path.startswith("out/report/") or f"$out/{Path(path).name}" in script, path


@pytest.mark.parametrize("service", RUNS)
def test_a_failure_of_the_pipeline_is_the_exit_code_of_the_service(service: str, tmp_path: Path) -> None:
    """No settings are there, so the pipeline ends at its first step."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    (tmp_path / "bin").symlink_to(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PWD": str(tmp_path),
        "TWINSTORE_CONFIG": "missing.json",
        "OUT": "out",
        "GITHUB_ACTION_PATH": str(CI),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    done = subprocess.run(RUNS[service], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (Exit.USAGE, False), done.stderr
    # It came as far as the command, and the directory is the one whose files are published.
    assert (tmp_path / "out" / "plan.txt").is_file()


def test_the_composite_action_is_one() -> None:
    assert (ACTION["runs"]["using"], set(ACTION) - {"runs"}) == (
        "composite",
        {"name", "description", "inputs"},
    )
    assert all("shell" in step for step in STEPS if "run" in step)
    used = set(re.findall(r"\$\{\{ inputs\.(\w+) \}\}", (CI / "action.yml").read_text("utf-8")))
    assert used == set(ACTION["inputs"])
    # Also after a difference.
    assert STEPS[1]["if"] == "always()"
    # Two jobs of a matrix cannot publish under one name.
    assert STEPS[1]["with"]["name"] == "${{ inputs.artifact }}"
    assert ACTION["inputs"]["artifact"]["default"] == "parity"


def test_the_other_two_publish_also_after_a_difference() -> None:
    assert (GITLAB["artifacts"]["when"], "allow_failure" in GITLAB) == ("always", False)
    after = JENKINS[JENKINS.index("post {") :]
    assert re.search(r"always \{\s+junit .+\n\s+archiveArtifacts ", after)


def test_the_pipeline_of_jenkins_is_closed_where_it_is_opened() -> None:
    text = STRING.sub("''", re.sub(r"//.*", "", JENKINS))
    depth = 0
    for sign in re.findall(r"[{}]", text):
        depth += 1 if sign == "{" else -1
        assert depth >= 0
    assert (depth, text.count("(")) == (0, text.count(")"))
    sections = re.findall(r"^    (\w+)(?: \w+$| \{)", JENKINS, re.MULTILINE)
    assert sections == ["agent", "options", "environment", "stages", "post"]


def test_what_they_install_exists_and_no_host_is_named() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for name in ("action.yml", "gitlab-ci.yml", "Jenkinsfile"):
        text = (CI / name).read_text("utf-8")
        (found,) = re.findall(r"pip install 'twinstore\[([\w,]+)\]'", text)
        assert set(found.split(",")) <= extras.keys()
        assert not re.search(r"https?:|\w\.(?:com|io|org|dev)\b", text)
