"""Environment files and names of secret files in the pages are those that the settings read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.pages import all_blocks
from twinstore.config import load_settings

if TYPE_CHECKING:
    from tests.docs.pages import Block


def with_settings(language: str) -> list[Block]:
    return [block for block in all_blocks(language) if "Persistence__" in block.body]


def test_environment_files_load(tmp_path: Path) -> None:
    blocks = with_settings("ini")
    assert blocks
    for block in blocks:
        (tmp_path / ".env").write_text(block.body)
        settings = load_settings(env_file=tmp_path / ".env", environ={})
        assert settings.problems() == ()
        assert "${" not in str([entry.value for entry in settings.entries.values()])


def test_names_of_secret_files_are_keys(tmp_path: Path) -> None:
    names = [Path(line).name for block in with_settings("text") for line in block.body.splitlines()]
    assert names
    for name in names:
        (tmp_path / name).write_text("postgresql://host/db")
    assert len(load_settings(secrets_dir=tmp_path, environ={}).entries) == len(names)
