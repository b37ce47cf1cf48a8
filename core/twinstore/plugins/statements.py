"""The statements that a driver sends for a module, by name, as a file in the package of the module pins them.

A file holds one block for each statement: a line ``== <entity>.<operation> ...`` with its name, then its
text. The part that all statements of an entity repeat is written once, as ``<columns>``, in a separate line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["Statement", "format_statements", "parse_statements", "statements_file", "statements_of"]


FOLDER: Final = "statements"
MARK: Final = "== "
COLUMNS: Final = "<columns>"
COLUMNS_LINE: Final = f"{COLUMNS} of "


@dataclass(frozen=True, slots=True, order=True)
class Statement:
    """One statement: its name, and its text with a place holder for every value."""

    name: str
    text: str

    @property
    def entity(self) -> str:
        """The entity whose rows it is about; ``session`` where it is about none."""
        return self.name.partition(".")[0]


def statements_file(spec: ModuleSpec[object], store: str) -> Traversable:
    """Return the file with the statements of a module for a kind of store, such as ``postgres``."""
    return files(spec.package) / FOLDER / f"{store}.txt"


def statements_of(spec: ModuleSpec[object], store: str) -> tuple[Statement, ...]:
    """Return the recorded statements of a module for a kind of store, in the order of their names.

    Raises:
        ConfigurationError: none are recorded.
    """
    file = statements_file(spec, store)
    if not file.is_file():
        raise ConfigurationError(
            f"No statements of module {spec.name} are recorded for {store}: there is no file {file}. They "
            "are recorded from a run of the contract kit, see `make statements` in a checkout."
        )
    return parse_statements(file.read_text("utf-8"))


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of a file."""
    shared: dict[str, str] = {}
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(COLUMNS_LINE):
            entity, _, columns = line.removeprefix(COLUMNS_LINE).partition(": ")
            shared[entity] = columns
        elif line.startswith(MARK):
            found.append((line.removeprefix(MARK), []))
        elif found and line:
            found[-1][1].append(line)
    return tuple(_expanded(Statement(name, "\n".join(lines)), shared) for name, lines in found)


def format_statements(
    title: str, statements: Iterable[Statement], columns: Mapping[str, str] | None = None
) -> str:
    """Return the text of a file.

    Args:
        title: its first line.
        statements: in any order.
        columns: what is written once for each entity.
    """
    blocks = [title]
    for entity, group in groupby(sorted(statements), lambda item: item.entity):
        shared = (columns or {}).get(entity, "")
        blocks += _blocks(entity, shared, group)
    return "\n\n".join(blocks) + "\n"


def _blocks(entity: str, shared: str, statements: Iterable[Statement]) -> Iterator[str]:
    if shared:
        yield f"{COLUMNS_LINE}{entity}: {shared}"
    for item in statements:
        text = item.text.replace(shared, COLUMNS) if shared else item.text
        yield f"{MARK}{item.name}\n{text}"


def _expanded(statement: Statement, shared: Mapping[str, str]) -> Statement:
    columns = shared.get(statement.entity, COLUMNS)
    return Statement(statement.name, statement.text.replace(COLUMNS, columns))
