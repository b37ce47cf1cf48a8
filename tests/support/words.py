"""Refuse words that our texts avoid: ``python -m tests.support.words``, a part of ``make check``.

It reads Markdown outside of code, docstrings, and the texts of the product with more than one word: help of
the command line, messages and log lines.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
BANNED: Final = re.compile(
    r"\b(tells?|told|whoever|anew|of its own|once more|beside|shall|somebody|what is more)\b", re.IGNORECASE
)
CODE: Final = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
# Names of parameters and attributes in a section of a docstring, and code in its text.
NAMES: Final = re.compile(r"^ +\w+:(?= )|``.*?``", re.MULTILINE | re.DOTALL)
# Their texts are seen by users; those of the kit and of tests are data.
PRODUCT: Final = ("core/", "backends/", "tools/backfill/", "tools/embedded/")
KIT: Final = "core/twinstore/testing/"
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def banned(text: str) -> Iterator[tuple[int, str]]:
    """Yield each word that a text may not use, with the number of its line."""
    for found in BANNED.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[0]


def without(pattern: re.Pattern[str], text: str) -> str:
    """Return a text with what a pattern finds blanked, so that lines keep their numbers."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def in_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield what prose says."""
    return banned(without(CODE, text))


def in_source(text: str, *, messages: bool) -> Iterator[tuple[int, str]]:
    """Yield what docstrings say and, if asked, other texts of more than one word."""
    tree = ast.parse(text)
    docstrings = {
        id(node.body[0].value): node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) in docstrings or (messages and " " in node.value):
            for line, word in banned(without(NAMES, node.value)):
                yield node.lineno + line - 1, word


def findings(folder: Path = ROOT) -> Iterator[str]:
    """Yield a line for each word that stands where it may not."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py", "*.md"]
    names = subprocess.run(listed, cwd=folder, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if not (folder / name).is_file():
            continue
        text = (folder / name).read_text("utf-8")
        is_product = name.startswith(PRODUCT) and not name.startswith(KIT)
        found = in_markdown(text) if name.endswith(".md") else in_source(text, messages=is_product)
        yield from (f"{name}:{line}: {word}" for line, word in found)


def main() -> int:
    """Print what was found; return the exit code."""
    found = list(findings())
    sys.stdout.writelines(f"{line}\n" for line in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
