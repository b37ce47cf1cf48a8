"""Reads YAML. A module of its own, because its library takes long to import and most settings are JSON."""

from __future__ import annotations

from collections.abc import Hashable

import yaml
from typing_extensions import override

from twinstore.config.unique import MalformedTextError, unique

__all__ = ["read_yaml"]


class UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping that repeats a key, of which plain YAML loaders silently keep the last."""

    @override
    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:  # signature of yaml
        """Build a mapping after checking its keys."""
        unique((str(key.value), None) for key, _ in node.value)
        built: dict[Hashable, object] = super().construct_mapping(node, deep)
        return built


def read_yaml(text: str) -> object:
    """Return what a text holds.

    Raises:
        MalformedTextError: it is no YAML.
        RepeatedKeyError: a mapping repeats a key.
    """
    try:
        return yaml.load(text, UniqueKeyLoader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as error:
        # "from None": the error of the parser quotes the text.
        raise MalformedTextError(_place(error)) from None


def _place(error: yaml.YAMLError) -> str:
    """Say where the parser stopped, from positions alone."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f" at line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    return ""
