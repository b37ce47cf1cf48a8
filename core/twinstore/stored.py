"""How a comparison shows a stored value that a copy would not have written in this form.

A scan shows what is stored as canonical JSON where it stands in the one form in which the driver of that
store writes it: the BSON type, the number of bits, the text of a number. In every other form the value stands
under a mark, an object whose one name begins with U+0000, which no document of ours can hold. So the content
of a row without marks is equal on two stores exactly when each of them holds what a copy would have stored.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MARK", "NUMBERS", "has_marks", "marked", "unmarked"]

MARK: Final = "\x00"
# The marks of numbers that are right but for their type or spelling.
NUMBERS: Final = frozenset({"int32", "int64", "double", "number"})
# As JSON has the name of a mark. Text that begins so is refused by every model, so nothing else has it.
IN_JSON: Final = b'"\\u0000'


def marked(kind: str, value: object) -> dict[str, object]:
    """Return a value under the mark of a form, such as ``int32``."""
    return {MARK + kind: value}


def has_marks(content: bytes) -> bool:
    """Whether something in a scanned row is stored in another form than the driver writes."""
    return IN_JSON in content


def unmarked(value: dict[str, object]) -> tuple[str, object] | None:
    """Return the form and the value of a mark, ``None`` for any other object."""
    if len(value) != 1:
        return None
    ((name, inner),) = value.items()
    return (name[1:], inner) if name.startswith(MARK) else None
