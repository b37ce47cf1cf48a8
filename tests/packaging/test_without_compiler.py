"""Without a C compiler, or with one that does not work, everything works, and says why it is slower.

Each case is real: a wheel, installed into an environment without access to the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipfile import ZipFile

import pytest

from tests.support.distributions import built_wheel, empty_environment, install

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.long

PROGRAM: Final = Path(__file__).with_name("copy_in_memory.py")
COMMANDS: Final = Path(__file__).with_name("commands_of_wheel.py")
# As gcc says it; with a real one it is asked for without its folders of headers.
NO_HEADERS: Final = """\
#!/bin/sh
echo "In file included from version.c:1:" >&2
echo "buffer.h:5:10: fatal error: stddef.h: No such file or directory" >&2
exit 1
"""


def no_compiler(folder: Path) -> None:
    """Leave the folder, which is all of the PATH, empty."""


def failing(folder: Path) -> None:
    _write(folder / "cc", '#!/bin/sh\necho "cc: internal compiler error: out of disk" >&2\nexit 4\n')


def no_headers(folder: Path) -> None:
    real = shutil.which("cc") or shutil.which("gcc")
    text = NO_HEADERS if real is None else f'#!/bin/sh\nPATH=/usr/bin:/bin exec {real} -nostdinc "$@"\n'
    _write(folder / "cc", text)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@dataclass(frozen=True, slots=True)
class Case:
    """How there is no compiler, and what is said of it."""

    make: Callable[[Path], None]
    reason: str


CASES: Final = {
    "no compiler": Case(no_compiler, "built without a C compiler: none of cc, gcc and clang is in PATH"),
    "failing": Case(failing, "the C compiler failed: cc: internal compiler error: out of disk"),
    "no headers": Case(no_headers, "the C compiler failed: buffer.h:"),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty_environment(tmp_path_factory.mktemp("without") / "environment")


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_the_wheel_is_built_installed_and_works_and_says_why_it_is_slower(
    case: Case, environment: Path, tmp_path: Path
) -> None:
    path = tmp_path / "path"
    path.mkdir()
    case.make(path)
    wheel, told = built_wheel(tmp_path, {"PATH": str(path), "CC": ""})
    # What pip shows with -v.
    (said,) = (line for line in told.splitlines() if line.startswith("twinstore is installed without"))
    assert case.reason in said
    assert wheel.name.endswith("-py3-none-any.whl")
    with ZipFile(wheel) as packed:
        assert [name for name in packed.namelist() if name.endswith(".so")] == []
    python = install(wheel, environment)
    version, doctor, worked = answers(python, tmp_path)
    assert version.startswith("twinstore ")
    found = json.loads(doctor)["fast_path"]
    assert found["state"] == "off"
    assert found["reason"].startswith(case.reason)
    assert said.endswith(found["reason"])
    assert json.loads(worked) == {
        "fast_path": f"off ({found['reason']})",
        "written": 5,
        "verdict": "PASS",
        "equal": 5,
    }


def answers(python: Path, folder: Path) -> tuple[str, str, str]:
    """Return what the command line says of itself, and what a copy and a verification came to."""
    lines = "".join(f"{json.dumps(words)}\n" for words in (["--version"], ["doctor", "--format", "json"]))
    version, doctor = run(python, folder, COMMANDS, lines).splitlines()
    return json.loads(version)[1], json.loads(doctor)[1], run(python, folder, PROGRAM)


def run(python: Path, folder: Path, program: Path, lines: str = "") -> str:
    passed = {name: value for name, value in os.environ.items() if name in {"HOME", "LANG"}}
    done = subprocess.run(
        [python, "-P", program],
        input=lines,
        cwd=folder,
        env=passed,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout
