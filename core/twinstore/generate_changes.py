"""Writes the package ``changes`` of a module: what ``evolve`` of each of its models takes, for type checkers.

A model names its own in its signature, under ``if TYPE_CHECKING``; nothing imports the package at run time.
The types are those of the fields, copied as text. ``twinstore dev changes MODULE`` does it for any module.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from typing_extensions import override

from twinstore.canonical import CanonicalModel
from twinstore.errors import ConfigurationError
from twinstore.generated_files import formatted
from twinstore.variants import VariantModel

__all__ = ["changes_files", "models_of"]

OURS: Final = (CanonicalModel, VariantModel)
# They hold no models, and need more than a module does: the first is the output.
PASSED_OVER: Final = frozenset({"aio", "changes", "plugin", "smoke", "testing", "trial"})
PACKAGE: Final = '"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""\n'
HEADER: Final = f"""{PACKAGE}
from __future__ import annotations

from typing_extensions import TypedDict
"""


def changes_files(package: str) -> dict[Path, str]:
    """Return the text of each file of a package with models by its path.

    Raises:
        ConfigurationError: there is no model, or a file cannot be formatted.
    """
    folder = Path(import_module(package).__path__[0]) / "changes"
    modules: dict[str, list[type[CanonicalModel]]] = {}
    for model in models_of(package):
        modules.setdefault(model.__module__.rpartition(".")[2], []).append(model)
    if not modules:
        raise ConfigurationError(
            f"No module of {package} has a model; packages below it are not looked into."
        )
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
    models = {value for value in found if issubclass(value, CanonicalModel) and fields_of(value)}
    return tuple(sorted(models, key=lambda model: model.__name__))


def definition(model: type[CanonicalModel]) -> str:
    """Return the dictionary of a model."""
    fields = [f"    {name}: {ast.unparse(plain)}" for name, (plain, _) in fields_of(model).items()]
    docstring = f'    """What ``{model.__name__}.evolve`` may change."""'
    return "\n".join([f"class {model.__name__}Changes(TypedDict, total=False):", docstring, "", *fields])


def imports_of(model: type[CanonicalModel]) -> Iterator[str]:
    """Yield one line for each name that the types use: from where the module of the field has it."""
    for annotation, module in fields_of(model).values():
        known = names_of(module)
        for node in ast.walk(annotation):
            # What is in neither is of Python itself.
            if isinstance(node, ast.Name) and (node.id in known or node.id in vars(sys.modules[module])):
                # What the source does not tell came with a star, or by other ways.
                yield known.get(node.id, f"from {module} import {node.id}")


@cache
def names_of(module: str) -> dict[str, str]:
    """Return what a module imports and defines: by name, the line that another one imports it with."""
    found: dict[str, str] = {}
    for node in statements(source_of(module).body):
        if isinstance(node, ast.Import):
            for item in node.names:
                found[item.asname or item.name.partition(".")[0]] = f"import {ast.unparse(item)}"
        elif isinstance(node, ast.ImportFrom):
            place = resolve_name("." * node.level + (node.module or ""), sys.modules[module].__package__)
            for item in node.names:
                found[item.asname or item.name] = f"from {place} import {ast.unparse(item)}"
        else:
            own = [node.name] if isinstance(node, ast.ClassDef) else assigned(node)
            found |= {name: f"from {module} import {name}" for name in own}
    return found


def fields_of(model: type[CanonicalModel]) -> dict[str, tuple[ast.expr, str]]:
    """Return the type of each field of a model, also of its bases, and the module that says it."""
    found: dict[str, tuple[ast.expr, str]] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, CanonicalModel) or base in OURS:
            continue
        # A base may promise a type checker the fields of all models under it, below an ``if``.
        for node in statements(body_of(base)):
            if isinstance(node, ast.AnnAssign) and not is_of_class(node.annotation):
                for name in assigned(node):
                    if not name.startswith("_"):
                        found[name] = (Plain().visit(deepcopy(node.annotation)), base.__module__)
    for name in sorted(model.model_fields.keys() - found.keys()):
        # No source tells it, as of a class that was made at run time.
        found[name] = (ast.parse("object", mode="eval").body, model.__module__)
    return found


def is_of_class(annotation: ast.expr) -> bool:
    """Whether what is annotated so is no field."""
    return ast.unparse(annotation).strip("'").partition("[")[0].rpartition(".")[2] == "ClassVar"


def body_of(model: type[CanonicalModel]) -> list[ast.stmt]:
    """Return the statements of a class; none, where it was made without any."""
    classes = (
        node for node in statements(source_of(model.__module__).body) if isinstance(node, ast.ClassDef)
    )
    return next((node.body for node in classes if node.name == model.__name__), list[ast.stmt]())


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class, also those under a condition."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            handlers = (inner for handler in getattr(node, "handlers", ()) for inner in handler.body)
            yield from statements([*node.body, *handlers, *node.orelse])


def assigned(node: ast.stmt) -> Iterator[str]:
    """Yield the name that a statement gives a value or a type."""
    targets: list[ast.expr] = [node.target] if isinstance(node, ast.AnnAssign) else []
    targets += node.targets if isinstance(node, ast.Assign) else []
    yield from (item.id for item in targets if isinstance(item, ast.Name))


@cache
def source_of(module: str) -> ast.Module:
    """Return the source of a module that is imported."""
    return ast.parse(inspect.getsource(sys.modules[module]))


class Plain(ast.NodeTransformer):
    """Leaves the type of ``Annotated``, whose rest only validation needs, and of a quoted type the type."""

    @override
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Return what is annotated."""
        name = ast.unparse(node.value).rpartition(".")[2]
        if name == "Annotated":
            assert isinstance(node.slice, ast.Tuple)  # noqa: S101  # Annotated takes two arguments at least
            plain: ast.AST = self.visit(node.slice.elts[0])
            return plain
        # Its texts are values.
        return node if name == "Literal" else self.generic_visit(node)

    @override
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Return what a text says."""
        quoted = isinstance(node.value, str)
        plain: ast.AST = self.visit(ast.parse(str(node.value), mode="eval").body) if quoted else node
        return plain
