"""Writes the package ``changes`` of a module: what ``evolve`` of each of its models takes, for type checkers.

A model names its own in its signature, under ``if TYPE_CHECKING``; nothing imports the package at run time.
The types are those of the fields, copied as text. ``twinstore dev changes MODULE`` does it for any module.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from typing_extensions import override

from twinstore.canonical import CanonicalModel
from twinstore.generated_files import formatted
from twinstore.variants import VariantModel

__all__ = ["changes_files", "models_of"]

OURS: Final = (CanonicalModel, VariantModel)
# They hold no models, and need more than a module does: the first is the output.
PASSED_OVER: Final = frozenset({"aio", "changes", "plugin", "smoke", "testing", "trial"})
PACKAGE: Final = '"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""\n'
HEADER: Final = '''"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict
'''


def changes_files(package: str) -> dict[Path, str]:
    """Return the text of each file of a package with models by its path.

    Raises:
        ConfigurationError: it cannot be formatted.
    """
    folder = Path(import_module(package).__path__[0]) / "changes"
    modules: dict[str, list[type[CanonicalModel]]] = {}
    for model in models_of(package):
        modules.setdefault(model.__module__.rpartition(".")[2], []).append(model)
    files = {f"{name}.py": changes_file(models) for name, models in modules.items()}
    # Formatted as if they stood beside the package: ruff sorts imports by the packages that exist already.
    beside = folder.parent
    whole = {"__init__.py": PACKAGE, **files}
    return {folder / name: formatted(beside / name, text) for name, text in whole.items()}


def changes_file(models: list[type[CanonicalModel]]) -> str:
    """Return the file of the models that one module defines."""
    imports = sorted({line for model in models for line in imports_of(model)})
    exported = f"__all__ = {[f'{model.__name__}Changes' for model in models]!r}"
    return "\n\n".join([HEADER + "\n".join(imports), exported, *map(definition, models), ""])


def models_of(package: str) -> tuple[type[CanonicalModel], ...]:
    """Return the models with fields that the modules of a package define, by name."""
    found = [
        value
        for item in iter_modules(import_module(package).__path__, f"{package}.")
        if not item.ispkg and item.name.rpartition(".")[2] not in PASSED_OVER
        for value in vars(import_module(item.name)).values()
        if inspect.isclass(value) and value.__module__ == item.name
    ]
    models = [value for value in found if issubclass(value, CanonicalModel) and fields_of(value)]
    return tuple(sorted(models, key=lambda model: model.__name__))


def definition(model: type[CanonicalModel]) -> str:
    """Return the dictionary of a model."""
    fields = [f"    {name}: {ast.unparse(plain)}" for name, (plain, _) in fields_of(model).items()]
    docstring = f'    """What ``{model.__name__}.evolve`` may change."""'
    return "\n".join([f"class {model.__name__}Changes(TypedDict, total=False):", docstring, "", *fields])


def imports_of(model: type[CanonicalModel]) -> Iterator[str]:
    """Yield one line for each name that the types use: from where the module of the field has it."""
    for annotation, module in fields_of(model).values():
        names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
        for node in ast.walk(source_of(module)):
            if isinstance(node, ast.ImportFrom):
                for item in node.names:
                    if item.name in names:
                        yield f"from {node.module} import {item.name}"
        own = {node.name for node in source_of(module).body if isinstance(node, ast.ClassDef)}
        own |= {name for node in source_of(module).body for name in assigned(node)}
        yield from (f"from {module} import {name}" for name in names & own)


def fields_of(model: type[CanonicalModel]) -> dict[str, tuple[ast.expr, str]]:
    """Return the type of each field of a model, also of its bases, and the module that says it."""
    found: dict[str, tuple[ast.expr, str]] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, CanonicalModel) or base in OURS:
            continue
        tree = next(
            node
            for node in source_of(base.__module__).body
            if isinstance(node, ast.ClassDef) and node.name == base.__name__
        )
        # A base may promise a type checker the fields of all models under it.
        blocks = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]
        for node in (node for block in blocks for node in block):
            for name in assigned(node):
                if isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith(
                    "ClassVar"
                ):
                    found[name] = (Plain().visit(node.annotation), base.__module__)
    return found


def assigned(node: ast.stmt) -> Iterator[str]:
    """Yield the public name that a statement gives a value or a type."""
    targets: list[ast.expr] = [node.target] if isinstance(node, ast.AnnAssign) else []
    targets += node.targets if isinstance(node, ast.Assign) else []
    yield from (item.id for item in targets if isinstance(item, ast.Name) and not item.id.startswith("_"))


def source_of(module: str) -> ast.Module:
    """Return the source of a module that is imported."""
    return ast.parse(inspect.getsource(sys.modules[module]))


class Plain(ast.NodeTransformer):
    """Leaves the type of ``Annotated``, whose rest only validation needs."""

    @override
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Return what is annotated."""
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated":
            assert isinstance(node.slice, ast.Tuple)  # noqa: S101  # Annotated takes two arguments at least
            plain: ast.AST = self.visit(node.slice.elts[0])
            return plain
        return self.generic_visit(node)
