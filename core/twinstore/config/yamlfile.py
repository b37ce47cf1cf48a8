"""YAML as settings files have it. Only a host with such a file imports this module and the library."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from typing import Final

import yaml
from typing_extensions import override

from twinstore.config.files import RefusedFileError, unique

__all__ = ["load_yaml"]

# What aliases may stand for; without them the length of the file is the limit.
MOST_NODES: Final = 100_000


class UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping that repeats a key, and aliases of which a few lines can mean gigabytes."""

    @override
    def get_single_node(self) -> yaml.Node | None:
        """Return the file as nodes after looking at what its aliases stand for."""
        node: yaml.Node | None = super().get_single_node()
        nodes: dict[int, int] = {}
        size = 0 if node is None else expanded_size(node, nodes)
        if len(nodes) < size > MOST_NODES:
            raise RefusedFileError(
                f"its YAML aliases stand for more than {MOST_NODES:,} values; write out what they mean"
            )
        return node

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        """Build a mapping after checking its keys."""
        unique((str(key.value), None) for key, _ in node.value)
        built: dict[Hashable, object] = super().construct_mapping(node, deep)
        return built


def expanded_size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return of how many nodes one consists where each alias is written out.

    Args:
        node: where to begin.
        known: by identity, the sizes that are known; a node is looked at once, however often it is named.
    """
    if id(node) not in known:
        # A node inside itself has no end.
        known[id(node)] = MOST_NODES + 1
        below: Iterable[yaml.Node] = ()
        if isinstance(node, yaml.MappingNode):
            below = chain.from_iterable(node.value)
        elif isinstance(node, yaml.SequenceNode):
            below = node.value
        known[id(node)] = 1 + sum(expanded_size(part, known) for part in below)
    return known[id(node)]


def load_yaml(text: str) -> object:
    """Return what a text says.

    Raises:
        ValueError: it is no YAML; the message is a position, not the text.
        RefusedFileError: a key is repeated, or aliases stand for too much.
    """
    try:
        return yaml.load(text, UniqueKeyLoader)  # noqa: S506  # it is a SafeLoader
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    raise ValueError(f"line {mark.line + 1} column {mark.column + 1}" if mark else "no YAML")
