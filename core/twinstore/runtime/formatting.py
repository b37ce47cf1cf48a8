"""How messages and logs repeat what is stored or given: in one line, and never megabytes of it."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Final, cast

# Characters of a stored text.
SHORT_REPR_LENGTH: Final = 256
# Characters of an argument that is wrong.
SAFE_REPR_LENGTH: Final = 60
MAX_PRINTED_NUMBER: Final = 2**64


def short_repr(text: str | None) -> str:
    """Return a stored key, tenant or name for a message."""
    if text is None or len(text) <= SHORT_REPR_LENGTH:
        return repr(text)
    return f"{text[:SHORT_REPR_LENGTH]!r} and {len(text) - SHORT_REPR_LENGTH} more characters"


def safe_repr(value: object) -> str:
    """Return an argument for the message that it is wrong; it may be any value.

    Short, and by its class if it is not simple: a representation may be endless, fail, or hold what should
    not be read.
    """
    kind = type(value)
    if kind is str or kind is bytes:
        text = cast("str | bytes", value)
        return repr(text) if len(text) <= SAFE_REPR_LENGTH else f"{text[:SAFE_REPR_LENGTH]!r}..."
    if kind is timedelta:
        return str(value)
    if value is None or kind in {bool, float, date, datetime}:
        return repr(value)
    if kind is int:
        number = cast("int", value)
        # Python refuses to format the digits of a very long one.
        return repr(number) if abs(number) < MAX_PRINTED_NUMBER else f"a number of {number.bit_length()} bits"
    return f"the class {value.__name__}" if isinstance(value, type) else kind.__name__
