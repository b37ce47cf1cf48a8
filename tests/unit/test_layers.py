"""The check of layers finds what it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.layers import circle_in, imports_of, packages, upward

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_circle_is_found_also_by_an_import_for_annotations_and_one_in_a_function(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "house",
        attic="if TYPE_CHECKING:\n    from house.cellar import Stairs\n",
        cellar="def f():\n    from house import attic\n",
        garden="import house.attic\n",
    )
    graph = imports_of(folder)
    assert graph["house.garden"] == {"house.attic"}
    assert circle_in(graph) in (
        ["house.attic", "house.cellar", "house.attic"],
        ["house.cellar", "house.attic", "house.cellar"],
    )


def test_packages_without_a_circle_of_files_may_have_one(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "house",
        upper__bed="from house.lower.oven import Oven\n",
        upper__roof="",
        lower__oven="",
        lower__door="from house.upper import roof\n",
    )
    graph = imports_of(folder)
    assert circle_in(graph) == []
    assert circle_in(packages(graph))
    assert list(upward(packages(graph), ("lower", "upper"))) == ["lower imports upper, which is not below it"]
    assert set(upward(packages(graph), ("lower",))) == {"upper stands in no layer"}


def test_an_arrow_in_one_layer_is_named(tmp_path: Path) -> None:
    graph = packages(imports_of(written(tmp_path / "house", left="from house.right import x\n", right="")))
    assert list(upward(graph, ("left right",))) == ["left imports right, which is not below it"]
