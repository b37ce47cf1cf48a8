"""Verifying on a schedule: the script keeps reports and exit code, and each sample calls it rightly."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from typing_extensions import override

from tests.docs.test_console import check_twinstore
from tests.support.copies import write_config
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

SAMPLES: Final = Path(__file__).parents[2] / "samples" / "operating" / "verify"
SCRIPT: Final = SAMPLES / "verify-and-keep.sh"
PLACE: Final = "/opt/twinstore/verify-and-keep.sh"
NAME: Final = re.compile(r"\d{8}T\d{6}Z")
FIELD_OF_CRON: Final = re.compile(r"\*(/\d+)?|\d+")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Return a directory with reports of earlier times, and what is none of them."""
    directory = tmp_path / "reports of mine"
    for day in (20, 21, 22):
        (directory / f"202510{day}T023000Z").mkdir(parents=True)
    (directory / "notes").mkdir()
    return directory


def run(reports: Path, *given: object, keep: str = "2") -> int:
    """Verify two stores of one process, which are empty, and return the exit code."""
    files = [
        write_config(reports.parent / f"{side}.json", {"Persistence": {"Memory": {"Store": side}}})
        for side in ("source", "target")
    ]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "REPORTS": str(reports),
        "KEEP": keep,
    }
    sides = ("--from", "memory", "--to", "memory", "--source-config", files[0], "--target-config", files[1])
    words = [str(word) for word in ("--module", "scheduler", *sides, *given)]
    done = subprocess.run([str(SCRIPT), *words], env=environment, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    return done.returncode


def names(reports: Path) -> list[str]:
    return sorted(path.name for path in reports.iterdir())


def test_the_last_reports_are_kept_and_the_exit_code_is_that_of_the_comparison(reports: Path) -> None:
    # Two empty stores prove nothing.
    assert run(reports) == Exit.INCONCLUSIVE
    old, new, latest, notes = names(reports)
    assert (old, latest, notes) == ("20251022T023000Z", "latest", "notes")
    assert NAME.fullmatch(new)
    assert (reports / "latest").resolve() == reports / new
    assert (reports / "latest" / "parity-report.html").is_file()


def test_without_a_report_the_last_one_stays_the_latest(reports: Path) -> None:
    (reports / "latest").symlink_to("20251022T023000Z")
    assert run(reports, "--no-such-option", keep="3") == Exit.USAGE
    assert (reports / "latest").resolve().name == "20251022T023000Z"
    assert names(reports)[:3] == ["20251020T023000Z", "20251021T023000Z", "20251022T023000Z"]


@pytest.mark.parametrize("keep", ["0", "00", "-1", "all", " "])
def test_a_number_that_would_remove_everything_is_refused(keep: str, reports: Path) -> None:
    before = names(reports)
    assert run(reports, keep=keep) == Exit.USAGE
    assert names(reports) == before


def test_a_script_that_is_stopped_stops_the_comparison_and_ends_as_it_does(tmp_path: Path) -> None:
    """As the first process of a container, a shell without a handler would be killed half a minute later."""
    tool = tmp_path / "twinstore"
    tool.write_text("#!/bin/sh\ntrap 'exit 9' TERM\necho ready\nwhile :; do sleep 0.02; done\n")
    tool.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "REPORTS": str(tmp_path / "reports")}
    with subprocess.Popen([str(SCRIPT)], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(60) == 9


class UnitFile(configparser.RawConfigParser):
    """A file of systemd, whose names have upper case letters and may come twice."""

    def __init__(self) -> None:
        super().__init__(strict=False)

    @override
    def optionxform(self, optionstr: str) -> str:
        """Return a name as it is."""
        return optionstr


def unit(name: str) -> UnitFile:
    parser = UnitFile()
    parser.read(SAMPLES / name, "utf-8")
    return parser


def cron_lines() -> list[str]:
    lines = (SAMPLES / "crontab").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#") and not re.match(r"\w+=", line)]


def container() -> dict[str, Any]:
    document = yaml.safe_load((SAMPLES / "cronjob.yaml").read_text("utf-8"))
    assert (document["apiVersion"], document["kind"]) == ("batch/v1", "CronJob")
    spec = document["spec"]["jobTemplate"]["spec"]
    assert (spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"]) == (0, "Never")
    (found,) = spec["template"]["spec"]["containers"]
    mounts = {item["name"] for item in found["volumeMounts"]}
    assert mounts == {item["name"] for item in spec["template"]["spec"]["volumes"]}
    assert all(isinstance(item["value"], str) for item in found["env"])
    result: dict[str, Any] = found
    return result


def calls() -> Iterator[list[str]]:
    """Yield the words of each call of the script in the samples."""
    for line in cron_lines():
        yield shlex.split(line)[5:]
    yield shlex.split(unit("twinstore-verify.service")["Service"]["ExecStart"])
    found = container()
    yield [*found["command"], *found["args"]]


def test_every_sample_calls_the_script_with_options_that_the_command_has() -> None:
    found = list(calls())
    assert len(found) == 3
    for words in found:
        script = words.index(PLACE)
        check_twinstore(["backfill", "verify", "--out", "x", *words[script + 1 :]])


def test_the_script_calls_a_command_that_is_there() -> None:
    (line,) = re.findall(r"^twinstore (.+) &$", SCRIPT.read_text("utf-8"), re.MULTILINE)
    words = shlex.split(line.replace('"$@"', "--from Mongo --to Postgres"))
    check_twinstore(words)


def test_the_samples_agree_with_the_manifests_of_the_other_directory() -> None:
    """Both name the same ConfigMap and volume, so they mean the same file and the same user."""
    deploy = SAMPLES.parents[1] / "deploy" / "kubernetes"
    (settings, _) = yaml.safe_load_all((deploy / "settings.yaml").read_text("utf-8"))
    variables = {item["name"]: item["value"] for item in container()["env"]}
    assert Path(variables["TWINSTORE_CONFIG"]).name in settings["data"]
    pods = [
        yaml.safe_load(path.read_text("utf-8"))["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for path in (SAMPLES / "cronjob.yaml", deploy / "verify.yaml")
    ]
    assert pods[0]["securityContext"] == pods[1]["securityContext"]
    assert len({pod["automountServiceAccountToken"] for pod in pods}) == 1


def test_the_command_is_found_where_no_login_shell_sets_a_path() -> None:
    line = next(
        line for line in (SAMPLES / "crontab").read_text("utf-8").splitlines() if line.startswith("PATH=")
    )
    assert line.startswith("PATH=/opt/twinstore/.venv/bin:")
    service = (SAMPLES / "twinstore-verify.service").read_text("utf-8")
    assert f"Environment={line}\n" in service


def test_every_schedule_is_one() -> None:
    (line,) = cron_lines()
    documents = [yaml.safe_load((SAMPLES / "cronjob.yaml").read_text("utf-8"))]
    for fields in (line.split()[:5], documents[0]["spec"]["schedule"].split()):
        assert len(fields) == 5
        assert all(FIELD_OF_CRON.fullmatch(field) for field in fields)
    assert documents[0]["spec"]["concurrencyPolicy"] == "Forbid"
    timer = unit("twinstore-verify.timer")
    assert re.fullmatch(r"\*-\*-\* \d\d(/\d+)?:\d\d:\d\d", timer["Timer"]["OnCalendar"])
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert unit("twinstore-verify.service")["Service"]["Type"] == "oneshot"
