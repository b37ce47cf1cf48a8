"""The settings of the MongoDB driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from twinstore.plugins.settings import BackendSettings

# A request should not wait for pymongo's 30 s when no server answers.
DEFAULT_SELECTION_MS = 5000


class MongoSettings(BackendSettings):
    """Settings of the MongoDB driver.

    Attributes:
        connection_string: a ``mongodb://`` or ``mongodb+srv://`` URL.
        database: name of the database; absent: the name in the connection string.
        allow_standalone: accept a server without transactions and sessions. Methods that change
            several documents then write them one after the other.
        server_selection_timeout_ms: how long to look for a suitable server, in milliseconds.
        validators: create a ``$jsonSchema`` validator for every collection.
        collections: other names for collections, by entity, where the description of the entity allows it.
        client: an existing ``pymongo.MongoClient`` to use instead of a connection string; the library
            never closes it.
    """

    connection_string: SecretStr | None = None
    database: str | None = None
    allow_standalone: bool = False
    server_selection_timeout_ms: Annotated[int, Field(ge=1)] = DEFAULT_SELECTION_MS
    validators: bool = True
    collections: Mapping[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    client: object | None = Field(default=None, exclude=True, repr=False)

    @model_validator(mode="after")
    def _has_a_server(self) -> Self:
        if self.connection_string is None and self.client is None:
            raise ValueError("give ConnectionString, such as mongodb://127.0.0.1:27017/name, or a client")
        return self
