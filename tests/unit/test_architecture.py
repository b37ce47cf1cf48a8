from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = sorted(
    file.parent.relative_to(ROOT)
    for pattern in ("core/*/__init__.py", "backends/*/*/__init__.py", "tools/*/*/__init__.py")
    for file in ROOT.glob(pattern)
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOL = PROJECT["tool"]


def test_every_room_is_found() -> None:
    assert {path.parts[0] for path in PACKAGES} == {"core", "backends", "tools"}


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_is_shipped_typed_checked_and_measured(package: Path) -> None:
    wheel = TOOL["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = [
        TOOL["hatch"]["build"]["dev-mode-dirs"],
        TOOL["mypy"]["mypy_path"],
        TOOL["pyright"]["extraPaths"],
    ]
    names = [
        TOOL["coverage"]["run"]["source_pkgs"],
        TOOL["importlinter"]["root_packages"],
        TOOL["ruff"]["lint"]["isort"]["known-first-party"],
    ]
    assert (ROOT / package / "py.typed").exists()
    assert str(package) in wheel
    assert all(str(package.parent) in listed for listed in folders)
    assert all(package.name in listed for listed in names)


@pytest.mark.parametrize("package", [path for path in PACKAGES if path.parts[0] == "backends"], ids=str)
def test_a_driver_is_an_entry_point_and_bound_by_the_import_contracts(package: Path) -> None:
    entry_points = PROJECT["project"]["entry-points"]["twinstore.backends"]
    assert f"{package.name}.plugin" in entry_points.values()
    for contract in TOOL["importlinter"]["contracts"]:
        lists = [listed for listed in contract.values() if isinstance(listed, list)]
        assert all(package.name in listed for listed in lists if "twinstore_mongo" in listed), contract[
            "name"
        ]
