"""The base of the settings of a driver."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_pascal
from typing_extensions import override

from twinstore.runtime.secrets import MASK, is_secret_key, mask_secret_url

__all__ = ["BackendSettings"]


class BackendSettings(BaseModel):
    """Base of the settings of a driver; keys are PascalCase in files, snake_case in Python."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_pascal,
        validate_by_alias=True,
        validate_by_name=True,
        # What was refused may be a password or an URL that holds one.
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )

    @override
    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    @override
    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())

    @override
    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        """Show values without a secret, also where the author of a driver has taken plain text for it."""
        for name, field in type(self).model_fields.items():
            # `model_construct` leaves values out.
            value = getattr(self, name, None)
            if isinstance(value, str):
                value = MASK if is_secret_key(name) else mask_secret_url(value)
            if field.repr:
                yield name, value
