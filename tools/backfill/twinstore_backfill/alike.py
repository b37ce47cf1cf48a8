"""What must be the same for what one process has begun to be continued by another one."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from twinstore.runtime.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

    from twinstore.catalog.entity import Entity

RELEASE: Final = re.sub(r"(\.dev|\+).*", "", __version__)


def digest_of(entities: Iterable[Entity]) -> str:
    """Return what is the same where entities are described alike, as far as it decides what is copied."""
    said = [
        (
            entity.name,
            _schema_of(entity.model),
            entity.key_parts,
            (entity.tenancy.kind, entity.tenancy.field),
            sorted(entity.taken_names),
            sorted(index.fields for index in entity.uniques),
            (entity.append_only, entity.copy_policy, entity.collection),
        )
        for entity in entities
    ]
    return sha256(repr(said).encode()).hexdigest()[:16]


@cache
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()
