"""The samples for many workers call commands that exist, and treat their exit codes as the page says.

Not run: the systems that would start them. One test runs the commands of the manifest against real servers.
"""

from __future__ import annotations

import os
import pickle
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.docs.test_console import check_twinstore
from tests.support.copies import fill, open_store, server_settings, write_config
from twinstore.config import load_settings
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from tests.support.databases import MongoDatabase, PostgresDatabase

ROOT: Final = Path(__file__).parents[2]
SAMPLES: Final = ROOT / "samples/scale_out"
UNIT: Final = "twinstore-work@.service"
TWINSTORE: Final = str(Path(sys.executable).with_name("twinstore"))
ANALYZE: Final = shutil.which("systemd-analyze")
KILLED: Final = 137
JOBS: Final[list[dict[str, Any]]] = [*yaml.safe_load_all((SAMPLES / "kubernetes.yaml").read_text("utf-8"))]
PODS: Final[list[dict[str, Any]]] = [job["spec"]["template"]["spec"] for job in JOBS]
REPEATABLE: Final = [Exit.FAILED, Exit.LEASE_HELD, Exit.TERMINATED]


def run_with(monkeypatch: pytest.MonkeyPatch, sample: str, modules: Mapping[str, object]) -> dict[str, Any]:
    """Run a sample and return its names; a faked module has what the sample imports, and nothing else."""
    for name, fake in modules.items():
        monkeypatch.setitem(sys.modules, name, cast("ModuleType", fake))
    return runpy.run_path(str(SAMPLES / sample))


# ------------------------------------------------------------------------------------- Airflow and Prefect
class Operator:
    """An operator of Airflow: its name, and what comes before it."""

    def __init__(self, *, task_id: str, **_retries: int) -> None:
        self.task_id = task_id
        self.after: list[Operator] = []
        MADE[task_id] = self

    def __rshift__(self, other: Operator) -> None:
        other.after.append(self)


MADE: Final[dict[str, Any]] = {}
CODES: Final[list[int]] = []


class NotRepeatedError(Exception):
    """Airflow makes no other try after it."""


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the sample for Airflow; its commands end with the last of ``CODES``, its tasks are ``MADE``."""
    MADE.clear()
    hook = SimpleNamespace(run_command=lambda _words: SimpleNamespace(exit_code=CODES.pop()))
    modules = {
        "airflow.providers.standard.hooks.subprocess": SimpleNamespace(SubprocessHook=lambda: hook),
        "airflow.sdk": SimpleNamespace(DAG=lambda *_, **__: nullcontext(), BaseOperator=Operator),
        "airflow.sdk.exceptions": SimpleNamespace(
            AirflowException=OSError, AirflowFailException=NotRepeatedError
        ),
    }
    return run_with(monkeypatch, "airflow_dag.py", modules)


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the sample for Prefect; its task notes the commands in ``ran``, and has its options."""
    ran: list[list[str]] = []

    def task(**options: object) -> Callable[[object], Callable[..., None]]:
        def run(words: list[str]) -> None:
            ran.append(words)

        def submit(words: list[str]) -> SimpleNamespace:
            return SimpleNamespace(wait=lambda: run(words))

        vars(run).update(options, submit=submit, ran=ran)
        return lambda _function: run

    modules = {"prefect": SimpleNamespace(task=task, flow=lambda function: function)}
    return run_with(monkeypatch, "prefect_flow.py", modules)


@pytest.mark.usefixtures("airflow")
def test_airflow_verifies_after_the_copy_and_the_workers_come_before_nothing() -> None:
    order = {name: [before.task_id for before in task.after] for name, task in MADE.items()}
    assert order == {"copy": [], "verify": ["copy"], **{f"work_{number}": [] for number in range(4)}}


@pytest.mark.usefixtures("airflow")
@pytest.mark.parametrize("code", Exit)
def test_airflow_repeats_what_a_repetition_can_help(code: Exit) -> None:
    CODES.append(code)
    error = OSError if code in REPEATABLE else NotRepeatedError
    with pytest.raises(error, match=f"work_0 ended with {code:d};") if code else nullcontext():
        MADE["work_0"].execute({})


def test_prefect_verifies_after_the_copy_whatever_a_worker_does(prefect: dict[str, Any]) -> None:
    prefect["migrate_scheduler"](workers=2)
    assert [words[1] for words in prefect["twinstore"].ran] == ["copy", "verify", "work", "work"]


@pytest.mark.parametrize("code", Exit)
def test_prefect_repeats_what_a_repetition_can_help(code: Exit, prefect: dict[str, Any]) -> None:
    failed = SimpleNamespace(result=lambda **_: subprocess.CalledProcessError(code, "twinstore"))
    assert prefect["twinstore"].retry_condition_fn(None, None, failed) == (code in REPEATABLE)


# ------------------------------------------------------------------------------------- the commands
def slurm() -> str:
    return (SAMPLES / "work.sbatch").read_text("utf-8")


def unit() -> str:
    return (SAMPLES / UNIT).read_text("utf-8")


def calls(*samples: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the words of each command in the samples."""
    yield from (pod["containers"][0]["args"] for pod in PODS)
    (line,) = re.findall(r"^ExecStart=\S+/twinstore (.+)$", unit(), re.MULTILINE)
    yield shlex.split(line)
    (line,) = re.findall(r'^exec "\$\{TWINSTORE:-\S+/twinstore\}" (.+)$', slurm(), re.MULTILINE)
    yield shlex.split(line)
    for sample in samples:
        yield from (sample[name] for name in ("COPY", "WORK", "VERIFY"))


def test_every_command_exists_with_its_options_and_its_engine(
    airflow: dict[str, Any], prefect: dict[str, Any]
) -> None:
    found = [*calls(airflow, prefect)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    engines = {f"{name}://" for name in project["entry-points"]["twinstore.engines"]}
    wrong: list[str] = []
    for words in found:
        try:
            check_twinstore(words)
        except (AssertionError, KeyError) as error:
            wrong.append(f"{shlex.join(words)}: {error!r}")
        assert "verify" in words or words[-1] == "--execute"
        assert ("copy" in words) == ("--engine" in words)
        assert "copy" not in words or words[words.index("--engine") + 1] in engines
    assert wrong == []
    assert len(found) == 10


# ------------------------------------------------------------------------------------- Kubernetes
def test_a_worker_of_the_manifest_is_replaced_unless_the_job_is_not_for_it() -> None:
    copy, work = (job["spec"] for job in JOBS)
    assert work["completionMode"] == "Indexed"
    assert work["parallelism"] < work["completions"]
    evicted, stopped, refused = work["podFailurePolicy"]["rules"]
    assert (evicted["action"], evicted["onPodConditions"]) == ("Ignore", [{"type": "DisruptionTarget"}])
    assert (stopped["action"], stopped["onExitCodes"]["values"]) == ("Ignore", [Exit.TERMINATED])
    assert (refused["action"], refused["onExitCodes"]["values"]) == (
        "FailIndex",
        [Exit.USAGE, Exit.PREFLIGHT_REFUSED],
    )
    (rule,) = copy["podFailurePolicy"]["rules"]
    assert (rule["action"], {*rule["onExitCodes"]["values"]}) == ("FailJob", {*REPEATABLE, KILLED})
    # A policy of failures asks for it.
    assert {pod["restartPolicy"] for pod in PODS} == {"Never"}


def test_pods_of_the_manifest_read_the_settings_of_the_other_folder_as_the_same_user() -> None:
    folder = ROOT / "samples/deploy/kubernetes"
    config, claim = yaml.safe_load_all((folder / "settings.yaml").read_text("utf-8"))
    theirs = yaml.safe_load((folder / "copy.yaml").read_text("utf-8"))["spec"]["template"]["spec"]
    assert JOBS[0]["metadata"]["name"] == "twinstore-copy", "only one of the two copies at a time"
    for pod, secret in zip(PODS, ("twinstore-owner", "twinstore-app"), strict=True):
        (container,), (other,) = pod["containers"], theirs["containers"]
        for name in ("image", "env", "securityContext"):
            assert container[name] == other[name]
        assert pod["securityContext"] == theirs["securityContext"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
        assert volumes["settings"]["configMap"]["name"] == config["metadata"]["name"]
        assert volumes["secrets"]["secret"]["secretName"] == secret
        if "reports" in volumes:
            assert volumes["reports"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


@pytest.mark.long
def test_the_commands_of_the_manifest_copy_everything(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    """The coordinator copies nothing itself, so that the worker has met it in the ledger."""
    settings = server_settings(mongo_database, postgres_database)
    owner = write_config(tmp_path / "owner.json", settings)
    # The secret of the workers has no owner.
    del settings["Persistence"]["Postgres"]["OwnerConnectionString"]
    app = write_config(tmp_path / "app.json", settings)
    with open_store("scheduler", "Mongo", load_settings(owner)) as source:
        fill(source.storage)
    coordinator, worker = (pod["containers"][0]["args"] for pod in PODS)
    coordinator = [word.replace("/reports", str(tmp_path)) for word in coordinator]
    verification = ["backfill", "verify", "--module", "scheduler", "--from", "mongo", "--to", "postgres"]

    def environment(file: Path) -> dict[str, str]:
        return {**os.environ, "TWINSTORE_CONFIG": str(file)}

    with subprocess.Popen([TWINSTORE, *coordinator], env=environment(owner)) as copy:
        # As the Job replaces a pod, which may come before the coordinator has planned.
        pods = (
            subprocess.run([TWINSTORE, *worker], env=environment(app), check=False, timeout=60).returncode
            for _ in range(20)
        )
        try:
            assert next(code for code in pods if code not in REPEATABLE) == Exit.OK
            assert copy.wait(60) == Exit.OK
        finally:
            copy.kill()
    verified = subprocess.run([TWINSTORE, *verification], cwd=tmp_path, env=environment(owner), check=False)
    assert verified.returncode == Exit.OK


# ------------------------------------------------------------------------------------- Slurm and systemd
def test_the_script_of_slurm_becomes_the_worker_so_that_a_signal_reaches_it(tmp_path: Path) -> None:
    tool = tmp_path / "twinstore"
    tool.write_text('#!/bin/sh\necho "$$" "$TWINSTORE_CONFIG" "$*"\n')
    tool.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "TWINSTORE": str(tool)}
    with subprocess.Popen(
        ["/bin/bash", SAMPLES / "work.sbatch"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        printed, _ = process.communicate(timeout=60)
    worker, config, *words = printed.split()
    assert (int(worker), config) == (process.pid, "/etc/twinstore/appsettings.json")
    assert words in [*calls()]
    # B: for the shell of the script, which the worker has become.
    assert "#SBATCH --signal=B:TERM@60\n" in slurm()
    assert "--drain" in words


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    found = unit().replace("/opt/twinstore/.venv/bin/twinstore", TWINSTORE).replace("User=twinstore\n", "")
    (tmp_path / UNIT).write_text(found)
    command = [str(ANALYZE), "verify", str(tmp_path / UNIT)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_starts_a_worker_again_unless_the_job_is_not_for_it_or_it_was_stopped() -> None:
    lines = unit().splitlines()
    assert f"RestartPreventExitStatus={Exit.USAGE:d} {Exit.PREFLIGHT_REFUSED:d}" in lines
    assert f"SuccessExitStatus={Exit.TERMINATED:d}" in lines
    assert "Restart=on-failure" in lines


# ------------------------------------------------------------------------------------- Spark
class Rdd:
    """Rows that a function is sent to, as Spark sends it: pickled, with what it refers to."""

    def __init__(self, rows: list[Any], parts: int) -> None:
        assert parts == len(rows)
        self.rows = rows

    def mapPartitions(self, function: Callable[[Any], Any]) -> SimpleNamespace:  # noqa: N802  # as Spark calls it
        for cell in function.__closure__ or ():
            pickle.dumps(cell.cell_contents)
        return SimpleNamespace(collect=lambda: list(function(iter(self.rows))))


class Session:
    """A session of Spark, its own builder."""

    def __init__(self) -> None:
        self.builder = self
        self.masters: list[str] = []
        self.sparkContext = SimpleNamespace(
            parallelize=Rdd, defaultParallelism=3, cancelAllJobs=lambda: None, stop=lambda: None
        )

    def appName(self, _name: str) -> Session:  # noqa: N802
        return self

    def master(self, name: str) -> Session:
        self.masters.append(name)
        return self

    def getOrCreate(self) -> Session:  # noqa: N802
        return self


def test_the_engine_on_spark_returns_what_a_slice_returns_or_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((SAMPLES / "spark/pyproject.toml").read_text("utf-8"))["project"]
    module, _, name = project["entry-points"]["twinstore.engines"]["spark"].partition(":")
    session = Session()
    modules = {"pyspark.sql": SimpleNamespace(SparkSession=session)}
    plug_in = run_with(monkeypatch, f"spark/{module}.py", modules)[name]
    engine = plug_in("host:7077", {})
    assert (session.masters, engine.slots()) == (["spark://host:7077"], 3)
    assert engine.submit(divmod, 7, 2).result(60) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        engine.submit(divmod, 7, 0).result(60)
    engine.close()


def test_the_page_and_the_folder_list_the_same_samples() -> None:
    names = {path.name + "/" * path.is_dir() for path in SAMPLES.iterdir()} - {"README.md", "__pycache__/"}
    for text in ((DOCS / "scale-out.md").read_text("utf-8"), (SAMPLES / "README.md").read_text("utf-8")):
        assert {name for name in names if f"`{name}`" not in text} == set()
