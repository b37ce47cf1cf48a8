"""Deployments of the filesystem driver, with a probe that looks into the files.

The driver has a layout for one module. Here it gets one for any entity, a file for each row, so that the
contract of the access runs over the same units, locks and selection.
"""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

from typing_extensions import override

from twinstore.clock import SystemClock
from twinstore.documents import row_of_json
from twinstore.models import json_text
from twinstore.models.json_text import format_timestamp
from twinstore.plugins.backend import OpenRequest
from twinstore.plugins.options import ModuleOptions
from twinstore.plugins.resources import SharedResources
from twinstore.storage.open import open_module
from twinstore.testing import DeploymentDefaults, ProbeDefaults, StoredRow
from twinstore_filesystem.backend import FilesystemBackend
from twinstore_filesystem.forms import Form, ObjectForm, RunFile, Staged
from twinstore_filesystem.layout import LAYOUTS, FileLayout
from twinstore_filesystem.rows import FileRow
from twinstore_filesystem.settings import FilesystemSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.plugins.backend import Capabilities
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage

R = TypeVar("R")
PARTS: Final = ("document", "markers", "derived")
# Where it is cheap to flush; what a flush is worth is shown by test_killed_writers.py.
MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a folder of each test's own below it


class WholeForm(Form):
    """One row of any entity: an object of its document, its markers and its derived fields."""

    @override
    def read(self, file: RunFile) -> Iterator[FileRow]:
        content = file.tree.read(file.place)
        if content is None:
            return
        values = json.loads(content)
        row = row_of_json(file.entity, *(json.dumps(values[name]) for name in PARTS))
        yield FileRow(row.entity, row.key, row.document, row.markers, row.derived)

    @override
    def store(self, file: RunFile, staged: Staged) -> None:
        for row in staged.values():
            if row is None:
                file.tree.remove(file.place)
            else:
                whole = {name: getattr(row, name) for name in PARTS}
                file.tree.replace(file.place, [json_text.dumps(whole)])


def layouts_of(module: ModuleSpec[Any]) -> Mapping[str, FileLayout]:
    """Return the layout of the driver, or one with a file for each row and one writer at a time."""
    if all(entity.name in LAYOUTS for entity in module.catalog.entities):
        return LAYOUTS
    return {
        entity.name: FileLayout(
            f"rows/{entity.name}",
            ".json",
            WholeForm(),
            run_of=lambda key: json.dumps(list(key), ensure_ascii=False),
            # Unique values are kept by one writer at a time; the layout of the driver has none.
            lock_of=lambda _: "everything",
        )
        for entity in module.catalog.entities
    }


class FileForEachRow(FilesystemBackend[R]):
    """A backend with the layout of these tests; the scans of the driver follow that of its module."""

    @property
    @override
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, bulk=False)


class FilesystemProbe(ProbeDefaults):
    """Reads and breaks rows past the driver."""

    def __init__(self, root: Path, module: ModuleSpec[Any]) -> None:
        self._root = root
        self._layouts = layouts_of(module)

    def count(self, entity: Entity, tenant_id: str) -> int:
        parent = entity.parent.entity if entity.parent is not None else None
        found = 0
        for path in self._files(entity):
            for value in self._values(path):
                owner = value.get("tenantId")
                if parent is not None and entity.tenant_field is None:
                    place = self._layouts[parent.name].place(value[entity.key[0]])
                    owner = json.loads((self._root / place.path).read_bytes()).get("tenantId")
                found += owner == tenant_id
        return found

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        value = self._raw(entity, key)
        if value is None:
            return None
        row = row_of_json(entity, json.dumps(value), "{}", "{}")
        return StoredRow(row.document, row.markers)

    def stamp(self, entity: Entity, key: Key) -> object | None:
        """Of a row that is alone in its file, whether it was written; else what it holds."""
        value = self._raw(entity, key)
        if value is None:
            return None
        path = self._path(entity, key)
        if isinstance(self._layouts[entity.name].form, ObjectForm):
            return path.stat().st_ino, path.stat().st_mtime_ns
        return sha256(json.dumps(value).encode()).hexdigest()

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        self.alter(entity, key, {"foreign": content})

    def alter(self, entity: Entity, key: Key, values: Mapping[str, object]) -> None:
        plain = {
            name: format_timestamp(value) if isinstance(value, datetime) else value
            for name, value in values.items()
        }
        path = self._path(entity, key)
        found = self._values(path)
        for value in found:
            if all(value.get(name) == part for name, part in zip(entity.key, key, strict=True)):
                value.update(plain)
        self._write(path, found)

    @override
    def garble(self, entity: Entity, key: Key) -> bool:
        value = self._raw(entity, key)
        assert value is not None
        kept = {*entity.identity, *(name for index in entity.indexes for name in index.names)}
        kept |= {"tenantId"}
        self.alter(entity, key, {name: [item] for name, item in value.items() if name not in kept})
        return True

    def _raw(self, entity: Entity, key: Key) -> dict[str, Any] | None:
        for value in self._values(self._path(entity, key)):
            if all(value.get(name) == part for name, part in zip(entity.key, key, strict=True)):
                return value
        return None

    def _path(self, entity: Entity, key: Key) -> Path:
        layout = self._layouts[entity.name]
        return self._root / layout.place(layout.run_of(key)).path

    def _files(self, entity: Entity) -> list[Path]:
        layout = self._layouts[entity.name]
        pattern = f"*/{layout.manifest}" if layout.manifest else f"*{layout.suffix}"
        return sorted((self._root / layout.folder).glob(pattern))

    def _values(self, path: Path) -> list[dict[str, Any]]:
        if not path.exists():
            return []
        if path.suffix == ".ndjson":
            return [json.loads(line) for line in path.read_bytes().splitlines()]
        found: Any = json.loads(path.read_bytes())
        return found if isinstance(found, list) else [found]

    def _write(self, path: Path, values: list[dict[str, Any]]) -> None:
        if path.suffix == ".ndjson":
            path.write_bytes(b"".join(json_text.dumps(value) + b"\n" for value in values))
        elif path.name == "artifact-manifest.json" or path.parent.name == "approvals":
            path.write_bytes(json_text.dumps(values))
        else:
            path.write_bytes(json_text.dumps(values[0]))


class WholeProbe(FilesystemProbe):
    """The same for the files of one row each, with markers."""

    @override
    def count(self, entity: Entity, tenant_id: str) -> int:
        return sum(
            value["document"].get("tenantId") == tenant_id or entity.tenant_field is None
            for path in self._files(entity)
            for value in self._values(path)
        )

    @override
    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        found = self._values(self._path(entity, key))
        if not found:
            return None
        row = row_of_json(entity, *(json.dumps(found[0][name]) for name in PARTS))
        return StoredRow(row.document, row.markers)

    @override
    def stamp(self, entity: Entity, key: Key) -> object | None:
        path = self._path(entity, key)
        return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None

    @override
    def alter(self, entity: Entity, key: Key, values: Mapping[str, object]) -> None:
        path = self._path(entity, key)
        (found,) = self._values(path)
        for name, value in values.items():
            part = "markers" if name in entity.markers else "document"
            found[part][name] = format_timestamp(value) if isinstance(value, datetime) else value
        path.write_bytes(json_text.dumps(found))


class FilesystemDeployment(DeploymentDefaults):
    """A tree in a separate folder."""

    def __init__(self, module: ModuleSpec[object], folder: Path) -> None:
        self._module = module
        self._folder = folder
        self.root = folder / "tree"
        ours = layouts_of(module) is LAYOUTS
        self.probe = FilesystemProbe(self.root, module) if ours else WholeProbe(self.root, module)

    @override
    def settings(self, root: Path | None = None) -> Mapping[str, object]:
        return {"Persistence": {"Filesystem": {"Root": str(root or self.root)}}}

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        del expiring
        return open_module(self._module.name, "Filesystem", self.settings(), clock=clock)

    @contextmanager
    def open_module(
        self, module: ModuleSpec[R], *, clock: Clock | None = None
    ) -> Iterator[FilesystemBackend[R]]:
        request = OpenRequest(
            module=module,
            settings=FilesystemSettings(root=self.root),
            options=ModuleOptions(),
            resources=SharedResources(),
            clock=clock or SystemClock(),
        )
        layouts = layouts_of(module)
        kind = FilesystemBackend[R] if layouts is LAYOUTS else FileForEachRow[R]
        with closing(kind(module, request, layouts)) as backend:
            backend.initializer.ensure_migrations()
            yield backend

    def handle(self, tenant_id: str) -> None:
        del tenant_id

    @contextmanager
    @override
    def break_connection(self) -> Iterator[ModuleStorage[object, object]]:
        way = self._folder / "way"
        way.symlink_to(self._folder)
        with open_module(self._module.name, "Filesystem", self.settings(way / "tree")) as storage:
            storage.check_ready()
            way.unlink()
            yield storage


@contextmanager
def filesystem_deployments(
    module: ModuleSpec[object], *, migrated: bool = True
) -> Iterator[FilesystemDeployment]:
    """Make a tree and remove it at the end."""
    del migrated  # there is no schema
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield FilesystemDeployment(module, Path(folder))
