"""Enumerations whose members have a wire text and, on PostgreSQL, a number."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from typing_extensions import override


class NumberedEnum(StrEnum):
    """A wire text with the number that a SMALLINT column holds: the position of the member.

    New members are appended; the numbers of the existing ones never change.
    """

    number: int

    def __new__(cls, text: str) -> Self:
        """Give the member its text and its number."""
        member = str.__new__(cls, text)
        member._value_ = text
        # Members are made in order, so this is the number of those before.
        member.number = len(cls.__members__)
        return member

    @classmethod
    def aliases(cls) -> dict[str, str]:
        """Return the other texts accepted on input, each with the wire text that it represents."""
        return {}

    @classmethod
    @override
    def _missing_(cls, value: object) -> Self | None:
        wire = cls.aliases().get(value) if isinstance(value, str) else None
        return None if wire is None else cls(wire)

    @classmethod
    def from_number(cls, number: int) -> Self:
        """Return the member with that number.

        Raises:
            ValueError: no member has it.
        """
        members = list(cls)
        if not 0 <= number < len(members):
            raise ValueError(f"{number} is not a number of {cls.__name__}")  # becomes a DocumentDecodeError
        return members[number]
