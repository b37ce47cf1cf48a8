"""The files of the samples that outsiders would write, as the guides show them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parts"]

SAMPLES: Final = Path(__file__).parents[2] / "samples"
FILES: Final = {
    "own_driver": {
        "project": "pyproject.toml",
        "plugin": "twinstore_sqlite/plugin.py",
        "file": "twinstore_sqlite/file.py",
        "unit": "twinstore_sqlite/unit.py",
        "backend": "twinstore_sqlite/backend.py",
        "deployment": "tests/deployment.py",
        "test": "tests/test_sqlite.py",
    },
    "normalise": {"letters": "letters.py"},
    "own_module": {
        "project": "pyproject.toml",
        "package": "acme_library/__init__.py",
        "plugin": "acme_library/plugin.py",
        "books": "acme_library/books.py",
        "copies": "acme_library/copies.py",
        "subjects": "acme_library/subjects.py",
        "catalog": "acme_library/catalog.py",
        "repository": "acme_library/repository.py",
        "storage": "acme_library/storage.py",
        "module": "acme_library/module.py",
        "postgres": "acme_library/migrations/postgres/001_create_library.sql",
        "mongo": "acme_library/migrations/mongo/001_create_library.json",
        "schema": "acme_library/migrations/postgres/schema.txt",
        "test": "tests/test_library.py",
        "testing": "acme_library/testing.py",
        "kit": "tests/test_kit.py",
    },
}
LANGUAGES: Final = {".json": "json", ".py": "python", ".sql": "sql", ".txt": "text"}


def parts() -> dict[str, Callable[[], str]]:
    """Return what makes each part, by its name in the pages."""
    return {
        f"{sample.replace('_', '-')}.{name}": partial(shown, SAMPLES / sample, path)
        for sample, files in FILES.items()
        for name, path in files.items()
    }


def shown(folder: Path, path: str) -> str:
    """Return a file as a fenced block, which the tests of the pages write to a file again."""
    file = folder / path
    note = "toml" if file.suffix == ".toml" else f"{LANGUAGES[file.suffix]} file={path}"
    return f"```{note}\n{file.read_text('utf-8')}```"
