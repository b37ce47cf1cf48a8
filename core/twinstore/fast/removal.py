"""The conditions of retention as native code reads them: texts, of which a field has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.query import Equals, OneOf

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.catalog import Retention
    from twinstore.fast.encoding import Writer
    from twinstore.query import Condition

__all__ = ["write_removal"]


def write_removal(writer: Writer, retention: Retention | None, number_of: Callable[[str], int]) -> None:
    """Write which rows retention removes of those whose instant has passed.

    Whether all conditions are understood, how many there are, how many texts they have together, and for each
    the number of its field and its texts.
    """
    where = () if retention is None else retention.where
    texts = [texts_of(condition) for condition in where]
    known = [(number_of(item.field), found) for item, found in zip(where, texts, strict=True) if found]
    writer.number(all(texts))
    writer.number(len(known))
    writer.number(sum(len(found) for _, found in known))
    for number, found in known:
        writer.number(number)
        writer.number(len(found))
        for text in found:
            writer.text(text)


def texts_of(condition: Condition) -> tuple[str, ...]:
    """Return the texts of which a field must have one, none where the condition is of another kind."""
    match condition:
        case Equals(_, str(text)):
            return (str(text),)
        case OneOf(_, texts):
            return tuple(map(str, texts))
        case _:
            return ()
