"""What `twinstore dev changes` writes for modules of others, who spell types and imports as they like."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ConfigurationError
from twinstore.generate_changes import changes_files
from twinstore.generated_files import update_files

if TYPE_CHECKING:
    from pathlib import Path

KINDS = '''"""Kinds."""
from enum import StrEnum


class Colour(StrEnum):
    """A colour."""

    RED = "red"
'''
THINGS = '''"""Things."""
from __future__ import annotations

import datetime
import typing
from collections.abc import Mapping as Map
from typing import Annotated, ClassVar, Literal, Optional

from pydantic import Field, create_model

from twinstore.canonical import CanonicalModel

from .kinds import Colour

_Weight = Annotated[int, Field(ge=0)]


class Base(CanonicalModel):
    """What all have."""

    limit: ClassVar[int] = 3
    other: "typing.ClassVar[int]" = 3


if True:

    class Inner(CanonicalModel):
        """One part."""

        size: typing.Annotated[int, Field(ge=0)] = 0


class Thing(Base):
    """A thing."""

    colour: Colour = Colour.RED
    when: datetime.datetime | None = None
    labels: Map[str, str] = {}
    inner: "Inner | None" = None
    kind: Literal["Colour", "b"] = "b"
    weight: _Weight = 0
    above: Optional["Thing"] = None
    colours: tuple["Colour", ...] = ()


Old = Thing
Made = create_model("Made", __base__=CanonicalModel, __module__=__name__, size=(int, 0))
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # Another one for each test, because modules stay imported.
    name = f"acme_{tmp_path.name}"
    (tmp_path / name).mkdir()
    for file, text in {"__init__": "", "kinds": KINDS, "things": THINGS}.items():
        (tmp_path / name / f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_every_way_to_spell_a_type_and_to_import_it_is_understood(package: str, tmp_path: Path) -> None:
    files = changes_files(package)
    text = files[tmp_path / package / "changes/things.py"]
    defined = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    fields = {
        node.name: {
            ast.unparse(line.target): ast.unparse(line.annotation)
            for line in node.body
            if isinstance(line, ast.AnnAssign)
        }
        for node in defined
    }
    assert [node.name for node in defined] == ["InnerChanges", "MadeChanges", "ThingChanges"]
    assert fields == {
        "InnerChanges": {"size": "int"},
        "MadeChanges": {"size": "object"},
        "ThingChanges": {
            "colour": "Colour",
            "when": "datetime.datetime | None",
            "labels": "Map[str, str]",
            "inner": "Inner | None",
            "kind": "Literal['Colour', 'b']",
            "weight": "_Weight",
            "above": "Optional[Thing]",
            "colours": "tuple[Colour, ...]",
        },
    }
    # All names are there: the types can be resolved, which the file itself never does.
    namespace: dict[str, object] = {}
    exec(compile(text, "things.py", "exec"), namespace)  # noqa: S102  # what was just generated
    for annotation in fields["ThingChanges"].values():
        eval(annotation, namespace)  # noqa: S307  # the same
    assert namespace["Colour"] is sys.modules[f"{package}.kinds"].__dict__["Colour"]


@pytest.mark.parametrize("place", ["changes.py", "changes/__init__.py", "changes/more.py"])
def test_what_somebody_has_written_there_is_neither_replaced_nor_removed(
    package: str, tmp_path: Path, place: str
) -> None:
    path = tmp_path / package / place
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    path.write_text('"""Changes of a thing, as events."""\n')
    with pytest.raises(ConfigurationError, match="was written by hand"):
        update_files(changes_files(package), check=False)
    assert path.read_text() == '"""Changes of a thing, as events."""\n'
    path.unlink()
    assert update_files(changes_files(package), check=False)
    assert not update_files(changes_files(package), check=True)


def test_a_package_without_models_is_refused(package: str, tmp_path: Path) -> None:
    (tmp_path / package / "things.py").unlink()
    with pytest.raises(ConfigurationError, match="has a model"):
        changes_files(package)
