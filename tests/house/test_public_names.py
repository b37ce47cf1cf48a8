"""``twinstore.driver`` and ``twinstore.module`` hand on what authors import, and nothing else.

The classes that applications import from a driver by name exist for every module, and paths of the release
before work with a warning.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from twinstore import driver, module, observing, scheduler, taskrunner, tracking
from twinstore.errors import ConfigurationError
from twinstore.runtime.moved_modules import MOVED, RENAMED
from twinstore_memory.backend import MemoryBackend

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
FACES = pytest.mark.parametrize("face", [driver, module], ids=["driver", "module"])
HEAVY = ("bulk", "config", "documents", "fast", "ledger", "storage")
LIGHT = "BackendSettings, BackendSpec, Capabilities, OpenRequest, hookimpl"


@FACES
def test_a_face_has_the_public_names_of_its_parts(face: ModuleType) -> None:
    found = {name: part for part in reversed(face.PARTS) for name in import_module(part).__all__}
    assert face.__all__ == sorted(found)
    assert dir(face) == sorted(found)
    for name, part in found.items():
        assert getattr(face, name) is getattr(import_module(part), name)
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        getattr(face, "absent")  # noqa: B009  # no checker may look for it


@FACES
def test_no_name_means_two_things(face: ModuleType) -> None:
    for name in face.__all__:
        parts = [part for part in map(import_module, face.PARTS) if name in part.__all__]
        assert len({id(getattr(part, name)) for part in parts}) == 1, name


@pytest.mark.parametrize("folder", ["samples/own_driver", "samples/own_module"])
def test_the_samples_of_authors_import_nothing_else_of_core(folder: str) -> None:
    face = f"twinstore.{folder.rpartition('_')[2]}"
    allowed = (face, "twinstore.errors", "twinstore.observing", "twinstore.testing")
    for path in (ROOT / folder).rglob("*.py"):
        if "aio" in path.parts:  # written by `twinstore dev aio`
            continue
        lines = [
            line.split()
            for line in path.read_text().splitlines()
            if line.strip().startswith("from twinstore.")
        ]
        assert [line[1] for line in lines if not line[1].startswith(allowed)] == [], path


def test_a_plug_in_that_imports_the_face_stays_light() -> None:
    heavy = (
        "twinstore.documents",
        "twinstore.access",
        "twinstore.bulk",
        "twinstore.storage",
        "twinstore.ledger",
    )
    program = (
        f"import sys; from twinstore.driver import {LIGHT}; print([n for n in sys.modules if n in {heavy}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before = f"import sys; import twinstore.plugins.drivers; print([n for n in sys.modules if n in {heavy}])"
    wanted = subprocess.run([sys.executable, "-c", before], capture_output=True, text=True, check=True)
    assert done.stdout == wanted.stdout


DRIVERS: Final = {"Memory": "twinstore_memory", "Mongo": "twinstore_mongo", "Postgres": "twinstore_postgres"}
MODULES: Final = {"Scheduler": scheduler, "TaskRunner": taskrunner, "Tracking": tracking}
REPOSITORIES: Final = [
    (package, name)
    for package in MODULES.values()
    for name in package.__all__
    if name == "DistributedLock" or name.endswith(("Repository", "Store", "Uploader"))
]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(("package", "name"), REPOSITORIES, ids=[name for _, name in REPOSITORIES])
def test_a_repository_of_a_driver_is_the_one_of_its_module(
    driver: str, package: ModuleType, name: str
) -> None:
    found = getattr(import_module(DRIVERS[driver]), f"{driver}{name}")
    assert getattr(package, name) in found.__mro__
    assert found.__name__ == f"{driver}{name}"
    # Two files of an application that import it have the same class; the module it names still contains it.
    assert found is getattr(import_module(found.__module__), f"{driver}{name}")
    assert found.__module__ == DRIVERS[driver]


@pytest.mark.parametrize("module", MODULES)
def test_initialisers_and_the_connection_source_have_the_name_of_their_module(module: str) -> None:
    for kind, package in DRIVERS.items():
        found = getattr(import_module(package), f"{module}{kind}Initializer")
        assert found.__name__ == f"{module}{kind}Initializer"
        assert callable(found.ensure_migrations)
    source = getattr(import_module("twinstore_postgres"), f"{module}DataSource")
    assert (source.__name__, callable(source.open_connection)) == (f"{module}DataSource", True)


def test_the_initialiser_of_a_storage_is_of_that_class() -> None:
    memory = import_module("twinstore_memory")
    with twinstore.add_scheduler_memory_storage() as storage:
        assert isinstance(storage.initializer, memory.SchedulerMemoryInitializer)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("module", MODULES)
def test_a_session_factory_has_the_name_of_module_and_driver_in_both_packages(
    driver: str, module: str
) -> None:
    name = f"{module}{driver}SessionFactory"
    assert (
        getattr(import_module(DRIVERS[driver]), name) is getattr(twinstore, name) is twinstore.SessionFactory
    )


def test_the_sessions_of_a_storage_are_opened_by_a_session_factory() -> None:
    with twinstore.add_scheduler_memory_storage() as storage:
        assert isinstance(storage.sessions, twinstore.SessionFactory)
        factory: twinstore.SchedulerMemorySessionFactory = storage.sessions
        with factory.open("tenant") as session:
            assert session.runs.get("tenant", "absent") is None


def test_a_bound_repository_takes_the_rows_of_its_driver_only() -> None:
    with twinstore.add_scheduler_memory_storage() as storage:
        backend = storage._backend  # noqa: SLF001  # what an application gets from its own driver
        assert isinstance(backend, MemoryBackend)
        access = backend.repositories.runs._access  # noqa: SLF001  # the rows of that driver
        runs = import_module("twinstore_memory").MemoryRunRepository(access)
        assert runs.get("tenant", "absent") is None
        with pytest.raises(ConfigurationError, match="MongoRunRepository takes the rows of Mongo"):
            import_module("twinstore_mongo").MongoRunRepository(access)


@pytest.mark.parametrize("driver", DRIVERS)
def test_another_name_is_none_of_a_driver(driver: str) -> None:
    package = import_module(DRIVERS[driver])
    with pytest.raises(AttributeError, match=f"module '{DRIVERS[driver]}' has no attribute 'NobodysInit'"):
        _ = package.NobodysInit


@pytest.mark.parametrize(
    ("package", "client"), [("twinstore_mongo", "pymongo"), ("twinstore_postgres", "psycopg")]
)
def test_a_package_is_imported_without_its_client(package: str, client: str) -> None:
    code = f"import sys, {package}; hasattr({package}, 'nothing'); sys.exit({client!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PACKAGE = Path(twinstore.__file__).parents[1]
EARLIER = "twinstore_postgres.deadlines"
PACKAGES = {name for name in MOVED if (PACKAGE / name.replace(".", "/")).is_dir()}


@pytest.mark.parametrize("earlier", sorted(MOVED.keys() - PACKAGES))
def test_an_earlier_path_gives_the_same_objects_and_names_the_new_one(earlier: str) -> None:
    sys.modules.pop(earlier, None)
    with pytest.warns(DeprecationWarning, match=MOVED[earlier][0]) as told:
        module = import_module(earlier)
    assert len(told) == 1
    for name, found in public_names(earlier):
        assert getattr(module, name) is found
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        getattr(module, "absent")  # noqa: B009  # no checker may look for it


@pytest.mark.parametrize("earlier", sorted(PACKAGES))
def test_a_package_hands_on_the_names_of_the_module_that_had_its_name(earlier: str) -> None:
    module = import_module(earlier)
    for name, found in public_names(earlier):
        with pytest.warns(DeprecationWarning, match=MOVED[earlier][0]) as told:
            assert getattr(module, name) is found
        assert len(told) == 1
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        getattr(module, "absent")  # noqa: B009  # no checker may look for it


@pytest.mark.parametrize("face", [driver, module, observing], ids=lambda face: face.__name__)
def test_a_renamed_name_gives_the_same_object_with_a_warning(face: ModuleType) -> None:
    found = {old: new for old, new in RENAMED.items() if new in face.__all__}
    assert found
    for old, new in found.items():
        with pytest.warns(DeprecationWarning, match=rf"{face.__name__}\.{old} is {new} now") as warned:
            assert getattr(face, old) is getattr(face, new)
        assert [item.filename for item in warned] == [__file__]


def test_every_renamed_name_is_reached() -> None:
    assert {*driver.__all__, *module.__all__, *observing.__all__} >= set(RENAMED.values())


def public_names(earlier: str) -> list[tuple[str, object]]:
    """Return the names of the first place, which has most of those of the earlier module."""
    first = import_module(MOVED[earlier][0])
    found = [(name, getattr(first, name)) for name in getattr(first, "__all__", ())]
    assert found or earlier == "twinstore_postgres.datasource"
    return found


@pytest.mark.parametrize("form", ["import a.b", "from a.b import c", "from a import b", "pickle"])
def test_each_form_of_an_import_warns_once_and_where_it_stands(form: str) -> None:
    text = {
        "import a.b": f"import {EARLIER}\nfound = {EARLIER}.TimedConnection",
        "from a.b import c": f"from {EARLIER} import TimedConnection as found",
        "from a import b": "from twinstore_postgres import deadlines\nfound = deadlines.TimedConnection",
        "pickle": f"import pickle\nfound = pickle.loads(b'c{EARLIER}\\nTimedConnection\\n.')",
    }[form]
    program = f"{text}\nprint(found.__module__)\nimport {EARLIER}\n"
    ended = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "twinstore_postgres.connection.deadlines\n"
    assert ended.stderr.count("DeprecationWarning") == 1
    assert form == "pickle" or ended.stderr.startswith("<string>:1:")


def test_no_module_has_an_earlier_path() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for earlier in MOVED.keys() - PACKAGES:
            specification = find_spec(earlier)
            assert specification is not None
            assert specification.origin is None
