"""The reference entry of one name: signature as it is written, docstring, fields and methods."""

from __future__ import annotations

import inspect
import re
from enum import Enum, EnumType
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args, get_origin

import griffe
from typing_extensions import TypeIs

from docs.parts.tables import NONE, code, plain, table
from twinstore.models.canonical import CanonicalModel
from twinstore.models.rules import FilledFrom

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from pydantic.fields import FieldInfo

__all__ = ["INSTALLED", "OURS", "described", "explained", "is_class", "methods", "written"]

TOP: Final = Path(__file__).parents[2]
FOLDERS: Final = {"twinstore": TOP / "core", "twinstore_backfill": TOP / "tools" / "backfill"}
OURS: Final = tuple(f"{name}." for name in FOLDERS)
QUOTED: Final = re.compile(r"'([^'\"\\]*)'")
INSTALLED: Final = "twinstore.storage.installed."
WIDTH: Final = 96
LISTED: Final = {
    griffe.DocstringSectionKind.parameters: "Arguments",
    griffe.DocstringSectionKind.raises: "Raises",
    griffe.DocstringSectionKind.returns: "Returns",
    griffe.DocstringSectionKind.yields: "Yields",
}
ObjectT = TypeVar("ObjectT", griffe.Attribute, griffe.Function)


@cache
def source(module: str) -> griffe.Module:
    """Return the source of a module; its stub if it creates its names on demand."""
    path = place(module)
    files = (path.with_suffix(".pyi"), path.with_suffix(".py"), path / "__init__.py")
    file = next(file for file in files if file.is_file())
    return griffe.visit(module, file, file.read_text("utf-8"), docstring_parser=griffe.Parser.google)


def written(home: str) -> griffe.Object:
    """Return a module, class, function or constant as it is written."""
    if is_module(home):
        return source(home)
    module, _, name = home.rpartition(".")
    found = (source(module) if is_module(module) else written(module)).members[name]
    return written(found.target_path) if isinstance(found, griffe.Alias) else found


def place(module: str) -> Path:
    """Return where the source of a module is, without a suffix."""
    package, *_ = names = module.split(".")
    return FOLDERS[package].joinpath(*names)


def is_module(path: str) -> bool:
    """Whether a dotted path is that of a module."""
    file = place(path)
    return file.with_suffix(".py").is_file() or (file / "__init__.py").is_file()


def explained(title: str, name: str, home: str, thing: object, places: Container[str]) -> Iterator[str]:
    """Yield what is said of a name.

    Args:
        title: its heading.
        name: as it is exported.
        home: where it is written.
        thing: the object.
        places: the homes of everything that the reference explains.
    """
    yield f"### {code(title)}"
    item = written(home)
    if home.startswith(INSTALLED):
        yield from made(item, name, inspect.getdoc(thing) or "")
    elif isinstance(item, griffe.Function):
        yield from function_text(item)
    elif is_class(thing):
        yield fence(f"class {name}{bases(thing)}: ...")
        yield described(item)
        if is_generated(thing):
            yield f"It offers what {code(name.removeprefix('Async'))} offers, and each call is awaited."
        else:
            yield members(thing, places)
        for method, function in methods(thing, places).items():
            yield f"#### {code(f'{title}.{method}')}"
            yield from function_text(function)
    else:
        yield fence(constant(item, name))
        yield described(item)


def constant(item: griffe.Object, name: str) -> str:
    """Return a constant as it is written; only its type if its value is determined on demand."""
    if not isinstance(item, griffe.Attribute):
        return name
    return f"{name}: {item.annotation}" if item.value is None else f"{name} = {item.value}"


def made(item: griffe.Object, name: str, text: str) -> Iterator[str]:
    """Yield what is said of a function that is made for each module and each driver."""
    same = f"add_{name.split('_')[1]}_storage"
    if name == same and isinstance(item, griffe.Function):
        yield fence(signature(item))
    yield plain(text) if name == same else f"{plain(text)} Its arguments are those of {code(same)}."


def function_text(function: griffe.Function) -> Iterator[str]:
    """Yield a signature and what the docstring says."""
    yield fence(signature(function))
    yield described(function)


def described(item: griffe.Object) -> str:
    """Return a docstring as Markdown, without the content of the table of attributes."""
    sections = item.docstring.parsed if item.docstring else []
    return "\n\n".join(filter(None, map(section_text, sections)))


def section_text(section: griffe.DocstringSection) -> str:
    """Return a section of a docstring as Markdown."""
    if section.kind is griffe.DocstringSectionKind.text:
        return plain(cast("str", section.value))
    if section.kind not in LISTED:
        return ""
    lines = (f"- {label(value)}{plain(one_line(value.description))}" for value in section.value)
    return "\n".join((f"{LISTED[section.kind]}:", "", *lines))


def label(value: griffe.DocstringElement) -> str:
    """Return what an item of a list begins with: the argument, or the error."""
    name = getattr(value, "name", "") or ("" if value.annotation is None else str(value.annotation))
    return f"{code(name)}: " if name else ""


def one_line(text: str) -> str:
    """Return text without line breaks."""
    return " ".join(text.split())


def bases(kind: type) -> str:
    """Return the bases of a class."""
    names = [base.__name__ for base in kind.__bases__ if base is not object]
    return f"({', '.join(names)})" if names else ""


def is_class(thing: object) -> TypeIs[type]:
    """Whether something is a class, and not another name for one of another library."""
    return (
        isinstance(thing, type) and thing.__module__.startswith(OURS) and not isinstance(thing, GenericAlias)
    )


def is_generated(kind: type) -> bool:
    """Whether a command wrote a class from the synchronous one."""
    return ".aio." in f"{kind.__module__}." and not kind.__module__.startswith("twinstore.aio")


def members(kind: type, places: Container[str]) -> str:
    """Return the table of what a class or its instances hold, empty for none."""
    if isinstance(kind, EnumType):
        rows = [(code(member.name), code(repr(member.value))) for member in cast("Any", kind)]
        return table(("Member", "Value"), rows)
    if issubclass(kind, CanonicalModel):
        fields = [model_row(name, field) for name, field in kind.model_fields.items()]
        return table(("Field", "In JSON", "Type", "Default"), fields) if fields else ""
    return attribute_table(kind, places)


def model_row(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    """Return the row of a field of a model."""
    wire = field.serialization_alias or name
    return code(name), NONE if wire == name else code(wire), code(type_text(field.annotation)), default(field)


def default(field: FieldInfo) -> str:
    """Return the default of a field."""
    if field.is_required():
        return "required"
    if isinstance(field.default_factory, FilledFrom):
        return f"from {code(field.default_factory.source)}"
    value = field.get_default(call_default_factory=True)
    return code(f"{type(value).__name__}()" if isinstance(value, CanonicalModel) else literal(value))


def literal(value: object) -> str:
    """Return a value as one writes it."""
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def type_text(kind: object) -> str:
    """Return a type as one writes it, without what pydantic checks of it."""
    if hasattr(kind, "__metadata__"):
        return type_text(get_args(kind)[0])
    if kind in (None, type(None)):
        return "None"
    if kind is Ellipsis:
        return "..."
    if not get_args(kind):
        return getattr(kind, "__name__", str(kind))
    inner = [type_text(item) for item in get_args(kind)]
    origin = get_origin(kind)
    if isinstance(origin, type) and origin.__name__ != "UnionType":
        return f"{origin.__name__}[{', '.join(inner)}]"
    return " | ".join(inner)


def attribute_table(kind: type, places: Container[str]) -> str:
    """Return the table of the attributes and properties of a class."""
    meanings = told(kind)
    rows = [
        (code(name), code(one_line(str(item.annotation))), meanings.get(name) or first_line(item) or NONE)
        for name, item in own(kind, griffe.Attribute, places).items()
        if item.annotation is not None
    ]
    return table(("Attribute", "Type", "Is"), rows) if rows else ""


def told(kind: type) -> dict[str, str]:
    """Return what the docstring of a class says of its attributes, by name."""
    item = written(f"{kind.__module__}.{kind.__qualname__}")
    sections = item.docstring.parsed if item.docstring else []
    return {
        value.name: plain(one_line(value.description))
        for section in sections
        if section.kind is griffe.DocstringSectionKind.attributes
        for value in section.value
    }


def first_line(item: griffe.Object) -> str:
    """Return the first line of a docstring."""
    return plain(item.docstring.value.partition("\n")[0]) if item.docstring else ""


def methods(thing: object, places: Container[str]) -> dict[str, griffe.Function]:
    """Return the public methods of a class, by name; none for other objects or generated classes."""
    if not is_class(thing) or is_generated(thing):
        return {}
    return own(thing, griffe.Function, places)


def own(kind: type, sort: type[ObjectT], places: Container[str]) -> dict[str, ObjectT]:
    """Return the public members of a class, also those of a base that is not explained itself."""
    found: dict[str, ObjectT] = {}
    for base in kind.__mro__:
        home = f"{base.__module__}.{base.__qualname__}"
        if base is not kind and (home in places or not home.startswith(OURS)):
            continue
        for name, item in written(home).members.items():
            if isinstance(item, sort) and not name.startswith(("_", "test_")):
                found.setdefault(name, item)
    return found


def signature(function: griffe.Function) -> str:
    """Return the first line of a definition, with one argument per line where it is long."""
    text = f"{'async ' if 'async' in function.labels else ''}def {function.signature()}: ..."
    if len(text) <= WIDTH:
        return text
    head, _, rest = text.partition("(")
    arguments, result = closed(rest)
    return "\n".join((f"{head}(", *(f"    {argument}," for argument in arguments), f"){result}"))


def closed(text: str) -> tuple[list[str], str]:
    """Split the text after a parenthesis: the parts between commas up to the closing one, and the rest."""
    depth, found = 0, [""]
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            return [item.strip() for item in found if item.strip()], text[place + 1 :]
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    raise ValueError(text)


def fence(text: str) -> str:
    """Return a block of Python that is shown and not run."""
    return f"```python no-run\n{QUOTED.sub(double_quoted, text)}\n```"


def double_quoted(text: re.Match[str]) -> str:
    """Return a literal as the formatter of this repository writes it, which looks into the pages, too."""
    return f'"{text[1]}"'
