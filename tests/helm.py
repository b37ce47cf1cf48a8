"""Renders what our templates of Helm use and nothing more; there is no Helm where the tests run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import yaml

RELEASE: Final = "release"
EXPRESSION: Final = re.compile(r"(?P<before>[ \t]*\n[ \t]*)?\{\{(?P<trim>-?) (?P<what>.+?) \}\}")


def rendered(path: Path, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the documents of a template; what this file does not know fails."""

    def replace(found: re.Match[str]) -> str:
        before = "" if found["trim"] else found["before"] or ""
        return before + evaluated(found["what"], values)

    text = EXPRESSION.sub(replace, path.read_text())
    assert "{{" not in text, path
    yield from yaml.safe_load_all(text)


def evaluated(expression: str, values: Mapping[str, Any]) -> str:
    """Return the text of an expression such as ``toYaml .Values.settings | nindent 4``."""
    first, *filters = (part.split() for part in expression.split("|"))
    scope: Any = {"Values": values, "Release": {"Name": RELEASE}}
    *function, name = first
    assert name.startswith("."), expression
    value: Any = reduce(lambda place, key: place[key], name[1:].split("."), scope)
    if function == ["toYaml"]:
        value = yaml.safe_dump(value).rstrip()
    else:
        assert not function, expression
    for filtered in filters:
        if filtered == ["quote"]:
            value = json.dumps(value)
        else:
            assert filtered[0] == "nindent", expression
            value = "\n" + indent(value, " " * int(filtered[1]))
    return str(value)
