"""Distributions that are installed for one test: entry points in a folder on the path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

__all__ = ["LIBRARY", "install_distribution"]

LIBRARY = {"twinstore.modules": {"library": "tests.library.plugin:PLUGIN"}}


def install_distribution(
    patch: pytest.MonkeyPatch, folder: Path, name: str, groups: Mapping[str, Mapping[str, str]]
) -> Path:
    """Install a distribution of version 1.2 with these entry points; return the folder on the path."""
    site = folder / name
    info = site / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    patch.syspath_prepend(str(site))
    return site
