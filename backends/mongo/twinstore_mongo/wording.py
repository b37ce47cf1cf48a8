"""How a difference between the wanted schema and the real one is said: what is wanted, what was found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from twinstore_mongo.validators import is_closed

__all__ = ["described", "kind_problems", "validator_problem"]

# Of an index; its number, version and namespace differ between servers.
SHOWN: Final = (
    "unique",
    "prepareUnique",
    "partialFilterExpression",
    "sparse",
    "collation",
    "hidden",
    "expireAfterSeconds",
)
MOST_PATHS: Final = 3
MOST_CHARACTERS: Final = 120
ABSENT: Final = "nothing"


def described(index: Mapping[str, Any]) -> str:
    """Return key and options of an index on one line."""
    # An index that was made in a shell has its directions as floating-point numbers.
    directions = [(name, int(way) if isinstance(way, float) else way) for name, way in index["key"]]
    key = ", ".join(f"{name}: {way}" for name, way in directions)
    options = "".join(
        f" {name}={shown(index[name])}" for name in SHOWN if index.get(name) not in (None, False)
    )
    return f"{{{key}}}{options}"


def shown(value: object) -> str:
    """Return a value of a schema, cut where it is long."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def validator_problem(collection: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the sentence for a validator that is missing or another one."""
    if is_closed(found.get("validator", {})):
        return f"The collection {collection} refuses every write: `twinstore migrate revert` was interrupted."
    if not found.get("validator"):
        return f"The validator of {collection} is missing: wanted a $jsonSchema, found {ABSENT}."
    ways = [
        f"wanted {path} {shown(one)}, found {shown(other)}" for path, one, other in differing(wanted, found)
    ]
    more = len(ways) - MOST_PATHS
    rest = f"; and {more} more" if more > 0 else ""
    return f"The validator of {collection} differs: {'; '.join(ways[:MOST_PATHS])}{rest}."


def differing(wanted: object, found: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield the paths at which two options differ; what only the collection has is no option of ours."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        names = [*wanted, *(found.keys() - wanted.keys() if path else ())]
        for name in names:
            yield from differing(
                wanted.get(name, ABSENT), found.get(name, ABSENT), f"{path}.{name}" if path else name
            )
    elif wanted != found:
        yield path, wanted, found


def kind_problems(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a collection, as the server lists it, is none that the library can keep rows in."""
    name, options = item["name"], item.get("options", {})
    if item.get("type", "collection") != "collection":
        yield (
            f"The collection {name} should be an ordinary one, but is a {item['type']}. To mend: keep what "
            f"it shows elsewhere, db.{name}.drop(), then `twinstore migrate run`."
        )
    if options.get("capped"):
        yield (
            f"The collection {name} should hold any number of rows, but is capped at {options.get('size')} "
            "bytes, so the server removes rows. To mend: copy it into a database where it is not."
        )
    if (collation := options.get("collation")) is not None:
        yield (
            f"The collection {name} compares texts by a collation of its own ({collation['locale']}), which "
            "does not tell every key and tenant from another; copy it into a database where it has none."
        )
