"""The wheel, distributions and samples, built and installed as a user outside of the checkout has them."""

from __future__ import annotations

import ast
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.server_supervisor import exclusive
from twinstore_embedded import accounts
from twinstore_embedded.accounts import grant_search

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

ROOT: Final = Path(__file__).parents[2]
# The program of another distribution that a page calls by its name.
READY: Final = "ready"
SERVER: Final = "#!{python}\nfrom uvicorn import main\n\nmain()\n"


@dataclass(frozen=True, slots=True)
class Account:
    """A user who is not the one of this process."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Installed:
    """The built wheel, and the environment that has it."""

    wheel: Path
    environment: Path

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.environment / "bin/python"


def normal_user() -> Account | None:
    """Return a user without rights; ``None`` where this process has none itself."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_uid, entry.pw_gid)


def identity(who: Account | None) -> dict[str, Any]:
    """Return the arguments of subprocess that let a user run it."""
    return {} if who is None else {"user": who.uid, "group": who.gid, "extra_groups": []}


def python_for(who: Account | None) -> str:
    """Return a Python of our own version that the user may run; that of root may lie in a closed folder."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = (f"{sys.base_prefix}/bin", "/usr/local/bin:/usr/bin")
    for path in filter(None, (shutil.which(name, path=place) for place in places)):
        if _runs(path, who):
            return path
    message = (
        f"no {name} with venv that user nobody may run; install one in /usr/bin, or test as a normal user"
    )
    raise AssertionError(message)


def _runs(python: str, who: Account | None) -> bool:
    command = [python, "-c", "import venv, ensurepip"]
    try:
        done = subprocess.run(command, check=False, cwd="/", capture_output=True, **identity(who))
    except PermissionError:
        return False
    return done.returncode == 0


def installed_once(directory: Path) -> Installed:
    """Build the wheel and install it below a directory, which the first caller does for all."""
    home = directory / "wheel"
    with exclusive(directory / "wheel.lock"):
        if not (home / READY).exists():
            _install_into(home)
    (wheel,) = home.glob("*.whl")
    return Installed(wheel, home / "environment")


def _install_into(home: Path) -> None:
    # What an attempt before this one has left may be anything.
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o755)
    wheel, _ = built_wheel(home)
    made = empty_environment(home / "environment")
    install(wheel, made)
    server = made / "bin/uvicorn"
    server.write_text(SERVER.format(python=made / "bin/python"))
    server.chmod(0o755)
    (home / READY).touch()


def built_wheel(folder: Path, environment: Mapping[str, str] | None = None) -> tuple[Path, str]:
    """Build the wheel into a folder; return where it is, and what the build said."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(
        build,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel, done.stdout


def empty_environment(made: Path) -> Path:
    """Make an environment that finds what the wheel needs in ours, and no twinstore there."""
    subprocess.run([python_for(normal_user()), "-m", "venv", "--without-pip", made], check=True)
    (site,) = made.glob("lib/python*/site-packages")
    # A path in such a file is searched, but the files of this kind that lie there are not read: so our
    # checkout, which one of them names, stays unknown.
    (ours,) = {path for path in sys.path if Path(path).name == "site-packages"}
    if (who := normal_user()) is not None:
        # A clone may lie in a folder of root, and no server has been started from it yet.
        grant_search(Path(ours), accounts.Account("nobody", who.uid, who.gid))
    # In front of it what `make setup` has in a newer release than ours: that is what a user gets.
    (site / "of_the_tests.pth").write_text(f"{Path(sys.prefix) / 'newest'}\n{ours}\n")
    return made


def install(wheel: Path, environment: Path) -> Path:
    """Install the wheel, in place of one that is there; return the interpreter that finds it."""
    python = environment / "bin/python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--force-reinstall", str(wheel)], check=True)
    return python


LIBRARY = {"twinstore.modules": {"library": "tests.support.library.plugin:PLUGIN"}}


def install_distribution(
    patch: pytest.MonkeyPatch, folder: Path, name: str, groups: Mapping[str, Mapping[str, str]]
) -> Path:
    """Install a distribution of version 1.2 with these entry points; return the folder on the path."""
    site = folder / name
    info = site / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    patch.syspath_prepend(str(site))
    return site


SAMPLES: Final = Path(__file__).parents[2] / "samples"
# The new environment uses the libraries of this one, so that nothing is downloaded.
SHARED_PACKAGES: Final = f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n"
# Files in memory where there are such: what is durable is not what the kit asks for.
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # for speed alone
TIMEOUT_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class InstalledSample:
    """A sample that is installed.

    Attributes:
        folder: where its project is.
        python: the interpreter of its environment.
    """

    folder: Path
    python: Path

    def run(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a module of Python in the folder of the project; ``variables`` are added to its environment."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        # Found once; else each process looks up all of Unicode.
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(SAMPLES.parent / ".hypothesis")
        environment["PYTHONPATH"] = str(self.folder)  # its files as they are now, also those of a copy
        environment |= variables
        if SHARED_MEMORY.is_dir():
            environment["TMPDIR"] = str(SHARED_MEMORY)
        return subprocess.run(
            [self.python, "-m", *map(str, arguments)],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )


def installed(folder: Path, environment: Path, *others: Path) -> InstalledSample:
    """Build a project, and install it into a new environment that has twinstore and the test libraries.

    Args:
        folder: the project.
        environment: where to make the environment.
        others: further projects to install.
    """
    venv.create(environment, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (environment / "lib" / version / "site-packages" / "lent.pth").write_text(SHARED_PACKAGES)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install"]
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", *map(str, (folder, *others))]
    subprocess.run([*pip, *offline], check=True, capture_output=True, text=True)
    return InstalledSample(folder, python)


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules and names of twinstore that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "twinstore":
            yield from ((node.module or "", alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names if alias.name.startswith("twinstore."))
