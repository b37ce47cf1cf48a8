"""Results go to stdout, as text for people or as JSON for programs."""

from __future__ import annotations

import os
import sys
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

from twinstore_backfill.cli.params import Format
from twinstore_backfill.cli.streams import OutputError, emit_json, emit_text
from twinstore_backfill.cli.tables import table, toned, visible_lines
from twinstore_backfill.messages import warn
from twinstore_backfill.report.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from rich.console import RenderableType

__all__ = ["OutputError", "emit", "emit_json", "emit_text", "left_out_texts", "table", "toned"]

# Into a file or a pipe rich would assume 80 columns and fold keys, which nobody could search for then.
UNBROKEN = 100_000


def emit(output: Format, document: object, *texts: RenderableType, kept: Path | None = None) -> None:
    """Print the result: the document as JSON, or the texts.

    Whoever reads stdout may close it early; what the command found stays what it is.

    Args:
        output: text or JSON.
        document: the result for programs.
        texts: the result for people.
        kept: the directory that holds the result as well.

    Raises:
        OutputError: stdout cannot be written to, for example to a full disk, and nothing is kept.
    """
    try:
        if output is Format.JSON:
            emit_json(document)
        else:
            emit_text(_rendered(texts))
    except OutputError as error:
        if kept is None:
            raise
        warn(f"{error.message} It stands in {kept}.")


def _rendered(texts: Iterable[RenderableType]) -> str:
    # Not straight to stdout: rich ends the process when a pipe is closed.
    rendered, terminal = StringIO(), sys.stdout.isatty()
    console = Console(
        file=rendered,
        force_terminal=terminal or bool(os.environ.get("FORCE_COLOR")),
        width=None if terminal else UNBROKEN,
        highlight=False,
        markup=False,
        emoji=False,  # the key "a:b:c" is not to be shown with a picture
    )
    for text in texts:
        shown = visible_lines(text) if isinstance(text, str) else text
        console.print(shown, soft_wrap=isinstance(shown, str) and _has_long_word(shown, console.width))
    return rendered.getvalue()


def _has_long_word(text: str, width: int) -> bool:
    """Tell whether a key or a path is wider than the terminal, which breaks it so that it copies whole."""
    return any(len(word) > width for word in text.split())


def left_out_texts(left_out: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Say of each entity that no copy brings over how many rows it has."""
    for item in left_out:
        source, target = (sum(item[side].values()) for side in ("source", "target"))
        yield f"{item['entity']}: left out; {number_of(source, 'row')} in source, {target:,} in target."
