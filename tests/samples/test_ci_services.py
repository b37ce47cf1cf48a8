"""The samples for CI services: they parse, run the pipeline, keep its exit code, publish what it leaves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from twinstore_backfill.outcome import Exit

pytestmark = pytest.mark.long

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
        # The report directory is that of the command; test_ci_sample sees its files.
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
