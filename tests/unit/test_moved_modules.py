from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import twinstore
from twinstore.runtime.moved_modules import MOVED

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
