from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import twinstore_embedded
from twinstore.errors import ConfigurationError
from twinstore_embedded.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to prove this"),
    pytest.mark.long,
]

HEAVY = ("site-packages", "test", "idlelib", "lib2to3", "ensurepip", "__pycache__", "config-*")
CYCLE = """
import sys, psutil, psycopg, pymongo, twinstore_embedded as e
with e.servers(sys.argv[1], durable=False) as s:
    psycopg.connect(s.postgres.app_url()).close()
    with pymongo.MongoClient(s.mongo.url) as client:
        client.twinstore.rows.insert_one({"_id": 1})
    users = {psutil.Process(pid).username() for pid in (s.mongo.pid, s.postgres.pid)}
print(s.mongo.pid, s.postgres.pid, *users)
"""


@dataclass(frozen=True)
class Stranger:
    """A normal user with a Python that it may run, and a place to write."""

    python: Path
    home: Path

    def run(self, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        entry = pwd.getpwnam("nobody")
        environment = {
            "PATH": os.defpath,
            "LD_LIBRARY_PATH": str(self.python.parent.parent / "lib"),
            "PYTHONHOME": str(self.python.parent.parent),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if not path.startswith(sys.base_prefix)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            [self.python, "-c", code, *map(str, arguments)],
            env=environment,
            cwd=self.home,
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    # The interpreter of root may live in a home directory that is closed to everybody else.
    root = Path(tempfile.mkdtemp(prefix="twinstore-embedded-"))
    root.chmod(0o755)
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        library, root / "lib" / library.name, ignore=shutil.ignore_patterns(*HEAVY), symlinks=True
    )
    for shared in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
        shutil.copy(shared, root / "lib")
    (root / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), root / "bin" / "python")
    home = root / "home"
    home.mkdir()
    shutil.chown(home, "nobody")
    yield Stranger(root / "bin" / "python", home)
    twinstore_embedded.stop(home / "data")
    shutil.rmtree(root)


@pytest.fixture
def closed() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="twinstore-embedded-"))
    yield path
    shutil.rmtree(path)


def test_a_normal_user_runs_both_servers_as_itself(stranger: Stranger) -> None:
    done = stranger.run(CYCLE, stranger.home / "data")
    assert done.returncode == 0, done.stderr
    mongo, postgres, *users = done.stdout.split()
    assert users == ["nobody"]
    assert not is_alive(int(mongo))
    assert not is_alive(int(postgres))


def test_the_directory_of_another_user_is_refused_with_a_remedy(stranger: Stranger, closed: Path) -> None:
    for call in ("start_mongo", "start_postgres", "stop"):
        done = stranger.run(f"import sys, twinstore_embedded as e; e.{call}(sys.argv[1])", closed / "data")
        assert "ConfigurationError: The data directory" in done.stderr
        assert "--data-dir" in done.stderr


@pytest.mark.smoke
def test_root_opens_its_own_parents_for_postgres_only_to_pass_through(closed: Path) -> None:
    server = twinstore_embedded.start_postgres(closed / "data", durable=False)
    server.stop()
    assert closed.stat().st_mode & 0o777 == 0o701


@pytest.mark.smoke
def test_root_does_not_open_the_directory_of_another_user(closed: Path) -> None:
    shutil.chown(closed, "nobody")
    with pytest.raises(ConfigurationError, match=f"chmod o\\+x {closed}"):
        twinstore_embedded.start_postgres(closed / "data")
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.smoke
@pytest.mark.parametrize(("name", "fault"), [("root", "is root"), ("no_such_user", "does not exist")])
def test_an_unfit_postgres_user_is_refused(
    closed: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: str
) -> None:
    monkeypatch.setenv("TWINSTORE_POSTGRES_USER", name)
    with pytest.raises(ConfigurationError, match=fault):
        twinstore_embedded.start_postgres(closed)
