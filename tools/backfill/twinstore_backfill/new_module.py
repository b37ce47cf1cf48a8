"""The first module of an author: a package with models, repositories, storage and tests, as text by path.

One of data alone has models, descriptions and tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Final

from pydantic.alias_generators import to_pascal

from twinstore import module as public
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.plugins.modules import broken_modules, is_module_name, module_plugins
from twinstore.storage.module import is_part_of_storages

# Short enough for the lines of every file.
LONGEST: Final = 18
NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
RULE: Final = f"use at most {LONGEST} lower-case letters, digits and underscores"


@dataclass(frozen=True, slots=True)
class NewEntity:
    """An entity by the name of one of its rows, such as ``note``."""

    name: str
    module: str

    @property
    def plural(self) -> str:
        """The name of the entity, of its table and of the attribute of a storage."""
        if re.search(r"[^aeiou]y$", self.name):
            return f"{self.name[:-1]}ies"
        return self.name + ("es" if re.search(r"(?:s|x|z|ch|sh)$", self.name) else "s")

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes."""
        model = to_pascal(self.name)
        return model, f"{model}Repository", to_pascal(self.plural)

    def filled(self, text: str) -> str:
        """Return a template with the names of the entity."""
        return Template(text).substitute(
            module=self.module,
            name=self.name,
            words=self.name.replace("_", " "),
            model=to_pascal(self.name),
            plural=self.plural,
            plurals=to_pascal(self.plural),
            constant=self.plural.upper(),
        )


def new_module(name: str, entities: Sequence[str], out: Path, *, data_only: bool = False) -> dict[Path, str]:
    """Return the files of a new project by path; with ``data_only`` one without repositories.

    Raises:
        ConfigurationError: its folder exists, or a module or package of that name is installed.
        ValidationError: a name cannot be used.
    """
    check_module(name)
    found = [NewEntity(entity, name) for entity in sorted(entities)]
    for item in found:
        check_entity(item)
    own = (
        "Protocol",
        "Repositories",
        *(f"{to_pascal(name)}{part}" for part in ("Contract", "Session", "Storage")),
    )
    classes = Counter((*own, *(item for entity in found for item in entity.classes)))
    if doubled := [item for item, count in classes.items() if count > 1]:
        raise ValidationError(f"Two classes would be called {', '.join(doubled)}; choose other entities.")
    folder = out / name
    if folder.exists():
        raise ConfigurationError(f"{folder} exists; choose another name, or another folder with --out.")
    files: dict[Path, str] = {}
    values = {"module": name, "title": to_pascal(name)}
    for path, (text, *parts) in (DATA_FILES if data_only else FILES).items():
        repeated = {
            f"part{number}": "".join(item.filled(part) for item in found) for number, part in enumerate(parts)
        }
        files[folder / path.format(name)] = Template(text).substitute(values, **repeated)
    return files


def check_module(name: str) -> None:
    """Refuse a name that a module cannot have, or that is taken here."""
    if not is_short(name) or not is_module_name(name) or name == "tests":
        raise ValidationError(f"A module cannot be called {name!r}; {RULE}, and no reserved word.")
    if name in {*module_plugins(), *broken_modules()}:
        raise ConfigurationError(f"The module {name} is installed already; choose another name.")
    if find_spec(name) is not None:
        raise ConfigurationError(f"There is a package {name} already; choose another name.")


def check_entity(entity: NewEntity) -> None:
    """Refuse a name that an entity cannot have."""
    taken = is_part_of_storages(entity.plural) or hasattr(public, to_pascal(entity.name))
    # Names of parameters and attributes are made of both.
    is_reserved = any(iskeyword(name) or name == "self" for name in (entity.name, entity.plural))
    if not is_short(entity.name) or is_reserved or taken:
        raise ValidationError(
            f"An entity cannot be called {entity.name!r}; name one row, such as note, {RULE}, and no name of "
            "Python or twinstore."
        )


def is_short(name: str) -> bool:
    """Return whether a name gives names of files and classes, and no line that is too long."""
    return len(name) <= LONGEST and NAME.fullmatch(name) is not None


# Templates. What is repeated for each entity follows the file, in the order of its ``part0``, ``part1``.


FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "pyproject.toml": (
        """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "${module}"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["twinstore"]

[project.optional-dependencies]
test = ["twinstore[testing]", "ruff"]

[project.entry-points."twinstore.modules"]
${module} = "${module}.plugin:PLUGIN"

[tool.hatch.build.targets.wheel]
packages = ["${module}"]

[tool.pytest.ini_options]
testpaths = ["tests"]

[tool.ruff]
line-length = 110
""",
    ),
    "{0}/__init__.py": ('"""${title} as a module of twinstore."""\n',),
    "{0}/plugin.py": (
        '''\
"""The light description of the module, which every application reads."""

from __future__ import annotations

from typing import Final

from twinstore.module import ModulePlugin, ModuleSettings, ModuleSpec


def spec() -> ModuleSpec[object]:
    """Return the module; its models are imported here and nowhere earlier."""
    from ${module}.module import MODULE

    return MODULE


PLUGIN: Final = ModulePlugin(
    name="${module}",
    title="${title}",
    settings=ModuleSettings(section="${title}"),
    spec=spec,
)
''',
    ),
    "{0}/models.py": (
        '''\
"""What a row is, and the contracts of the repositories."""

from __future__ import annotations

from typing import Protocol

from twinstore.module import CanonicalModel, Id, Name, Page, TenantId, Timestamp
${part0}''',
        '''

class ${model}(CanonicalModel):
    """One ${words} of a tenant."""

    id: Id
    tenant_id: TenantId
    name: Name
    created_at: Timestamp


class ${model}Repository(Protocol):
    """The rows of each tenant."""

    def put(self, ${name}: ${model}, /) -> ${model}:
        """Store a row, or replace the one of its id. Repeated call: the same. Atomic."""
        ...

    def get(self, tenant_id: str, ${name}_id: str, /) -> ${model} | None:
        """Return one row. Absent: ``None``."""
        ...

    def list(
        self,
        tenant_id: str,
        /,
        *,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[${model}]:
        """Return a page of rows. Order: latest first, then by id. At most 200."""
        ...

    def delete(self, tenant_id: str, ${name}_id: str, /) -> bool:
        """Remove one row; return whether it was there. Atomic."""
        ...
''',
    ),
    "{0}/catalog.py": (
        '''\
"""What is stored."""

from __future__ import annotations

from typing import Final

from twinstore.module import Entity, Index, Module, Tenancy, text

from ${module} import models

${part0}
CATALOG: Final = Module(
    name="${module}",
    entities=(
        # Parents before their children.
${part1}    ),
)
''',
        """\
${constant}: Final = Entity(
    name="${plural}",
    singular="${words}",
    module="${module}",
    model=models.${model},
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="${plural}",
    indexes=(Index(fields=("tenantId", "-createdAt", "id"), name="tenant_created"),),
    dated="createdAt",
)
""",
        "        ${constant},\n",
    ),
    "{0}/repository.py": (
        '''\
"""The repositories, once for all drivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from twinstore.module import Access, KeyedRepository

from ${module} import catalog, models

${part0}
@dataclass(frozen=True, slots=True)
class Repositories:
    """All repositories of the module."""

${part1}
    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access."""
        return cls(
${part2}        )
''',
        '''
class ${plurals}(KeyedRepository[models.${model}], models.${model}Repository):
    """Implements ${model}Repository."""

    entity = catalog.${constant}
    order = ("-createdAt",)

''',
        "    ${plural}: ${plurals}\n",
        "            ${plural}=${plurals}(access),\n",
    ),
    "{0}/storage.py": (
        '''\
"""What an application holds."""

from __future__ import annotations

from dataclasses import dataclass

from twinstore.module import ModuleStorage

from ${module}.models import (
${part0})
from ${module}.repository import Repositories


@dataclass(frozen=True, eq=False, repr=False)
class ${title}Session:
    """The repositories, bound to one session or unit of work, or unbound."""

${part1}

class ${title}Storage(ModuleStorage[Repositories, ${title}Session], ${title}Session):
    """The same, unbound, and what opens sessions and units of work."""

    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> ${title}Session:
        """Return the session over the repositories of a driver."""
        return ${title}Session(
${part2}        )
''',
        "    ${model}Repository,\n",
        "    ${plural}: ${model}Repository\n",
        "            ${plural}=repositories.${plural},\n",
    ),
    "{0}/module.py": (
        '''\
"""The module: what brings its parts together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from twinstore.module import Entity, ModuleSpec, Row, Trial

from ${module} import catalog, models
from ${module}.repository import Repositories
from ${module}.storage import ${title}Session, ${title}Storage


def trial_rows(tenant: str) -> Iterator[tuple[Entity, Row]]:
    """Return a row of each entity, which `twinstore smoke` inserts, finds and removes."""
    now = datetime.now(UTC)
${part0}

MODULE: Final = ModuleSpec(
    catalog=catalog.CATALOG,
    repositories=Repositories.over,
    title="${title}",
    package="${module}",
    storage=${title}Storage,
    session=${title}Session,
    trial=Trial(rows=trial_rows),
    kit="${module}.testing:${title}Contract",
)
''',
        """\
    yield (
        catalog.${constant},
        Row(models.${model}(id=tenant, tenant_id=tenant, name="trial", created_at=now)),
    )
""",
    ),
    "{0}/testing.py": (
        '''\
"""The kit of the module: how its rows are made; the cases follow from its description. Needs pytest."""

from __future__ import annotations

from twinstore.testing import ModuleContract
from twinstore.testing.examples import ModuleExamples, example
from twinstore.testing.instants import at

from ${module} import catalog, models
from ${module}.module import MODULE

${part0}
class ${title}Contract(ModuleContract):
    """What the module must do on a driver, and a driver for the module."""

    module = ModuleExamples(
        MODULE,
        (
${part1}        ),
    )
''',
        '''
def make_${name}(tenant: str, name: str) -> models.${model}:
    """Return a row with a value in every field."""
    return models.${model}(id=name, tenant_id=tenant, name="Ärmel", created_at=at())

''',
        """\
            example(
                entity=catalog.${constant},
                protocol=models.${model}Repository,
                small=make_${name},
                rich=make_${name},
                store="put",
                remove="delete",
                orders={"list": "-createdAt id"},
            ),
""",
    ),
    "tests/test_kit.py": (
        '''\
from __future__ import annotations

import pytest
from twinstore.testing import BackendFactory
from twinstore_memory.testing import memory_deployments

from ${module}.testing import ${title}Contract


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return memory_deployments


class TestInMemory(${title}Contract):
    """Without a server."""
''',
    ),
}
# What differs in a module of data alone, which has one file of models and descriptions.
DATA_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        path: FILES[path]
        for path in ("pyproject.toml", "{0}/__init__.py", "{0}/plugin.py", "tests/test_kit.py")
    },
    "{0}/module.py": (
        '''\
"""What the existing database holds: a model and a description of each entity."""

from __future__ import annotations

from typing import Final

from twinstore.module import (
    CanonicalModel,
    Entity,
    Id,
    Module,
    ModuleSpec,
    Name,
    Tenancy,
    Timestamp,
    text,
)
${part0}

MODULE: Final[ModuleSpec[object]] = ModuleSpec(
    catalog=Module(
        name="${module}",
        entities=(
            # Parents before their children.
${part1}        ),
    ),
    title="${title}",
    package="${module}",
    kit="${module}.testing:${title}Contract",
)
''',
        '''

class ${model}(CanonicalModel):
    """One ${words}; each field by the name and type that the database has."""

    id: Id
    name: Name
    created_at: Timestamp


${constant}: Final = Entity(
    name="${plural}",
    singular="${words}",
    module="${module}",
    model=${model},
    key_parts=(text("id"),),
    tenancy=Tenancy.none(),
    group="${plural}",
    dated="createdAt",
)
''',
        "            ${constant},\n",
    ),
    "{0}/testing.py": (
        '''\
"""The kit of the module: how its rows are made; the cases follow from its description. Needs pytest."""

from __future__ import annotations

from twinstore.testing import DataContract
from twinstore.testing.examples import ModuleExamples, data_example
from twinstore.testing.instants import at

from ${module} import module as data

${part0}
class ${title}Contract(DataContract):
    """What the module must do on a driver, and a driver for the module."""

    module = ModuleExamples(
        data.MODULE,
        (
${part1}        ),
    )
''',
        '''
def make_${name}(tenant: str, name: str) -> data.${model}:
    """Return a row with a value in every field; no tenant owns it."""
    del tenant
    return data.${model}(id=name, name="Ärmel", created_at=at())

''',
        "            data_example(entity=data.${constant}, small=make_${name}, rich=make_${name}),\n",
    ),
}
