"""Reading the content of a scanned row through the model: is it decodable, and what is its canonical form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import orjson
import pydantic

from twinstore import jsontext
from twinstore.fields import parse_timestamp

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.jsontext import JsonObject, JsonValue

__all__ = ["ContentDecoder"]

DOC: Final = b'{"doc":'
STORAGE: Final = b',"storage":{'
NO_STORAGE: Final = b',"storage":{}}'


class ContentDecoder:
    """Decodes the contents of one entity.

    The scan hands over ``{"doc": …, "storage": …}`` as stored; the model says what of it is acceptable
    and which of two spellings mean the same.
    """

    def __init__(self, entity: Entity) -> None:
        """Take the entity."""
        self._model = entity.model
        self._times = entity.marker_times
        self._identity = tuple(entity.identity.items())
        # The validator itself: the classmethod around it costs as much again on small documents.
        self._validate_json = entity.model.__pydantic_validator__.validate_json

    def decodable(self, content: bytes) -> bool:
        """Tell whether the model accepts the content; the way for rows that are equal on both sides."""
        # Most rows have no markers; their document is validated as it stands, without being parsed here.
        if content.endswith(NO_STORAGE) and content.startswith(DOC):
            try:
                self._validate_json(content[len(DOC) : -len(NO_STORAGE)])
            except pydantic.ValidationError:
                # Not logged: the report names the key, and the error would repeat the document.
                return False
            return True
        return self.canonical(content) is not None

    def canonical(self, content: bytes) -> bytes | None:
        """Return the content in canonical form, ``None`` when the model refuses it."""
        value = self.parsed(content)
        document, storage = value.get("doc"), value.get("storage")
        try:
            model = self._model.model_validate(document)
            markers = self._markers(cast("JsonObject", storage))
        except ValueError:
            # Not logged, for the same reason.
            return None
        if not self._identifies_itself(cast("JsonObject", document), model):
            return None
        return jsontext.dumps_sorted({"doc": model.wire(), "storage": markers})

    def _identifies_itself(self, document: JsonObject, model: CanonicalModel) -> bool:
        """Whether key and tenant are stored as the model has them; the copy refuses other documents too."""
        return all(document.get(wire) == getattr(model, name) for wire, name in self._identity)

    @staticmethod
    def parsed(content: bytes) -> JsonObject:
        """Return the content as plain JSON."""
        value: JsonValue = orjson.loads(content)
        return value if isinstance(value, dict) else {}

    def _markers(self, storage: JsonObject) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in storage.items():
            if value is not None:
                found[name] = parse_timestamp(value) if name in self._times else value
        return found
