"""``twinstore.driver`` and ``twinstore.module`` hand on what authors import, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinstore import driver, module

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
