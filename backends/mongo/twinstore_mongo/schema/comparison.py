"""The wanted schema against the real one: what differs, and how it is brought in line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from pymongo import IndexModel
from pymongo.errors import CollectionInvalid, OperationFailure

from twinstore.errors import Effect, EffectKind, MigrationError
from twinstore.migrations.migration import COUNTED_ROWS
from twinstore_mongo.client.errors import DRIVER, DUPLICATE_KEY
from twinstore_mongo.mapping.key_order import SIMPLE
from twinstore_mongo.mapping.layout import CollectionSpec, IndexSpec
from twinstore_mongo.schema.validators import is_closed

if TYPE_CHECKING:
    from twinstore.plugins.options import ModuleOptions
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Document

NAMESPACE_EXISTS: Final = 48
INDEX_CONFLICTS: Final = frozenset({85, 86})  # IndexOptionsConflict, IndexKeySpecsConflict
MOST_DUPLICATES: Final = 100  # of which a message lists each
DEFAULT_ID_INDEX: Final = "_id_"
ORDINARY: Final = "collection"


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """One way in which the real schema differs from the wanted one.

    Attributes:
        guarded: the repair lets the server remove or refuse documents, so their number comes first.
        vital: rows may be written meanwhile that the wanted schema would not have taken.
    """

    problem: str
    change: str
    repair: Callable[[], None]
    guarded: bool = False
    vital: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """The collections that a module wants.

    Nothing here lets the server remove or refuse a document that is there, except the repairs of the
    differences that are ``guarded``: a collection that holds documents gets its TTL index without the age
    and no validator. Both are differences then, and :meth:`effects` counts what they would do.

    Attributes:
        validators: by collection; empty where no validators are wanted.
        plain: even an empty collection gets neither age nor validator, because another program writes here.
        snapshot: what the database has, where nothing is changed meanwhile; default: it is asked each time.
    """

    store: OpenDatabase
    collections: tuple[CollectionSpec, ...]
    validators: Mapping[str, Document]
    options: ModuleOptions
    plain: bool = False
    snapshot: SchemaSnapshot | None = field(default=None, compare=False, repr=False)

    def with_snapshot(self) -> Self:
        """Return the same for one comparison, which changes nothing and asks for each part once."""
        return replace(self, snapshot=SchemaSnapshot(self.store))

    @property
    def _snapshot(self) -> SchemaSnapshot:
        return self.snapshot or SchemaSnapshot(self.store)

    def create(self, collections: tuple[CollectionSpec, ...]) -> None:
        """Create collections with validators, then unique indexes, then the others."""
        present = set(self.store.database.list_collection_names())
        new = [
            item for item in collections if item.name not in present and self._create_collection(item.name)
        ]
        ordered = [(item.name, index) for item in collections if item not in new for index in item.indexes]
        # Duplicates refuse a unique index, and then no other one should have been built in vain.
        for name, index in sorted(ordered, key=lambda pair: not pair[1].unique):
            self.create_index(name, index)
        for collection in new:
            self._index_empty(collection)

    def _create_collection(self, name: str) -> bool:
        """Create a collection; return whether this process was the first."""
        known = name in self.validators and not self.plain
        options: dict[str, Any] = {"validator": self.validators[name], **STRICT} if known else {}
        try:
            self.store.database.create_collection(name, **options)
        except (CollectionInvalid, OperationFailure) as error:
            if isinstance(error, OperationFailure) and error.code != NAMESPACE_EXISTS:
                raise
            return False
        return True

    def _index_empty(self, collection: CollectionSpec) -> None:
        """Create the indexes of a collection that was just created, all with one command."""
        if not collection.indexes:
            return
        wanted = [(list(index.key), self._at_once(index)) for index in collection.indexes]
        models = [IndexModel(key, collation=SIMPLE, **options) for key, options in wanted]
        try:
            self.store.collection(collection.name).create_indexes(models)
        except OperationFailure as error:
            # Another process already writes there, or creates indexes.
            if error.code not in {DUPLICATE_KEY, *INDEX_CONFLICTS}:
                raise
            for index in collection.indexes:
                self.create_index(collection.name, index)

    def create_index(self, collection: str, index: IndexSpec) -> None:
        """Create an index; an equivalent one under another name is accepted.

        Raises:
            MigrationError: duplicates under a unique index, or another index in the way.
        """
        if self.find(self.existing(collection), index) is not None:
            return
        options = self._at_once(index)
        if AGE in options and self._holds_documents(collection):
            del options[AGE]
        try:
            with self.store.with_index_timeout():
                # Without one an index would take the collation of its collection, and serve no read of ours.
                self.store.collection(collection).create_index(list(index.key), collation=SIMPLE, **options)
        except OperationFailure as error:
            if error.code == DUPLICATE_KEY:
                raise self._duplicates(collection, index) from error
            if error.code in INDEX_CONFLICTS:
                raise index_conflict(collection, index) from error
            raise

    def _holds_documents(self, collection: str) -> bool:
        return self.store.collection(collection).find_one({}, {"_id": 1}) is not None

    def _at_once(self, index: IndexSpec) -> Document:
        """Return the options of an index whose collection is empty."""
        return {name: value for name, value in self.wanted(index).items() if name != AGE or not self.plain}

    def wanted(self, index: IndexSpec) -> Document:
        """Return the options of an index on this server."""
        return index.options(self.options, server_ttl=self.store.capabilities.server_ttl)

    def existing(self, collection: str) -> Existing:
        """Return the real indexes of a collection by name."""
        return self._snapshot.indexes(collection)

    def _ordinary(self) -> set[str]:
        """Return the names of the collections that are no views."""
        return {name for name, kind in self._kinds().items() if kind == ORDINARY}

    def _kinds(self) -> dict[str, str]:
        """Return the kinds of collections by name: views too."""
        return {item["name"]: item.get("type", ORDINARY) for item in self._snapshot.collections}

    def find(self, existing: Existing, index: IndexSpec) -> str | None:
        """Return the name of a real index that does what the wanted one should, at whatever age."""
        if index.name in existing:
            return index.name
        wanted = shape(list(index.key), self.wanted(index))
        # The server admits no second one that differs in nothing but its age.
        equal = (name for name, spec in existing.items() if shape(spec["key"], spec)[:-1] == wanted[:-1])
        return next(equal, None)

    def effects(self) -> Iterator[Effect]:
        """Yield what the wanted ages and validators would let the server do to documents that are there."""
        present = self._ordinary()
        for collection in self.collections:
            existing = self.existing(collection.name) if collection.name in present else {}
            for index in collection.indexes:
                yield from self._expiring(collection.name, existing, index)
        for name in self._other_validators(present):
            yield from refused(self.store, name, self.validators.get(name, {}))

    def _expiring(self, collection: str, existing: Existing, index: IndexSpec) -> Iterator[Effect]:
        """Yield what an index would remove that none removes today."""
        *wanted, age_wanted = shape(list(index.key), self.wanted(index))
        age_now = None
        if (name := self.find(existing, index)) is not None:
            *real, age_found = shape(existing[name]["key"], existing[name])
            age_now = age_found if real == wanted else None
        if existing and age_wanted is not None and is_shorter(age_wanted, age_now):
            yield from expiring(self.store, collection, index, wanted=age_wanted, real=age_now)

    def differences(self) -> Iterator[SchemaDifference]:
        """Yield every difference, without changing anything."""
        kinds = self._kinds()
        ordinary = {name for name, kind in kinds.items() if kind == ORDINARY}
        for collection in self.collections:
            if collection.name not in kinds:
                yield self._missing_collection(collection)
            elif collection.name in ordinary:
                existing = self.existing(collection.name)
                for index in collection.indexes:
                    yield from self._index_difference(collection.name, existing, index)
        yield from self._validator_differences(ordinary)

    def unknown(self, *, harmless: bool = True) -> Iterator[str]:
        """Yield the indexes that no step wants; those that refuse and remove nothing only on request."""
        present = self._ordinary()
        for collection in self.collections:
            existing = self.existing(collection.name) if collection.name in present else {}
            wanted = {self.find(existing, index) for index in collection.indexes}
            yield from (
                f"{collection.name}.{name}"
                for name in sorted(existing)
                if name not in {*wanted, DEFAULT_ID_INDEX} and (harmless or is_enforced(existing[name]))
            )

    def undone(self) -> Iterator[str]:
        """Yield a sentence for each difference under which rows are stored that the schema forbids."""
        yield from (item.problem for item in self.differences() if item.vital)
        yield from self.foreign_kinds()

    def foreign_kinds(self) -> Iterator[str]:
        """Yield a sentence for each collection that was made as another kind than every store needs.

        Nothing repairs that: the server fixes it when it makes the collection.
        """
        wanted = {collection.name for collection in self.collections}
        for item in self._snapshot.collections:
            if item["name"] in wanted:
                yield from kind_problems(item)

    def enforced_extras(self) -> Iterator[str]:
        """Yield a sentence for each index that no step wants and that refuses or removes rows."""
        for place in self.unknown(harmless=False):
            collection, _, name = place.rpartition(".")
            found = described(self.existing(collection)[name])
            yield (
                f"The index {place} belongs to no migration and refuses or removes rows; found {found}. "
                f"To fix: db.{collection}.dropIndex({json.dumps(name)})"
            )

    def _missing_collection(self, collection: CollectionSpec) -> SchemaDifference:
        text = f"collection {collection.name}"
        return SchemaDifference(
            f"The {text} is missing.", f"{text} created", lambda: self.create((collection,)), vital=True
        )

    def _index_difference(
        self, collection: str, existing: Existing, index: IndexSpec
    ) -> Iterator[SchemaDifference]:
        found = self.find(existing, index)
        text = f"index {collection}.{index.name}"
        if found is None:
            yield SchemaDifference(
                f"The {text} is missing.",
                f"{text} created",
                lambda: self.create_index(collection, index),
                vital=index.unique,
            )
            return
        real, wanted = (
            shape(existing[found]["key"], existing[found]),
            shape(list(index.key), self.wanted(index)),
        )
        if real == wanted:
            return
        if real[:-1] == wanted[:-1]:
            yield self._other_age(collection, index, found, (real[-1], wanted[-1]))
        else:
            wanted_index = {"key": index.key, **self.wanted(index)}
            yield SchemaDifference(
                f"The {text} has another key or other options than wanted: wanted {described(wanted_index)}, "
                f"found {described(existing[found])}.",
                f"{text} built again",
                lambda: self._rebuild(collection, index, found),
                vital=index.unique,
            )

    def _other_age(
        self, collection: str, index: IndexSpec, found: str, ages: tuple[int | None, int | None]
    ) -> SchemaDifference:
        """Another retention: changed in place, but an index cannot stop expiring rows."""
        text = f"index {collection}.{found}"
        real, wanted = ages

        def change() -> None:
            if wanted is None:
                self._rebuild(collection, index, found)
            else:
                spec = {"name": found, AGE: wanted}
                self.store.database.command("collMod", collection, index=spec)

        return SchemaDifference(
            f"The {text} removes rows {age(real)}, but should {age(wanted)}.",
            f"{text} now removes rows {age(wanted)}",
            change,
            guarded=wanted is not None and is_shorter(wanted, real),
        )

    def _rebuild(self, collection: str, index: IndexSpec, found: str) -> None:
        self.store.collection(collection).drop_index(found)
        self.create_index(collection, index)

    def _validator_differences(self, present: set[str]) -> Iterator[SchemaDifference]:
        for name, found in self._other_validators(present).items():
            yield SchemaDifference(
                validator_problem(name, self._validation(name), found),
                f"validator of {name} set",
                lambda name=name: self._set_validator(name),  # type: ignore[misc]  # mypy cannot infer a lambda with defaults
                guarded=True,
                vital=is_closed(found.get("validator", {})),
            )

    def _other_validators(self, present: set[str]) -> dict[str, Mapping[str, Any]]:
        """Return the options of the collections with another validator than the wanted one, or with none."""
        real = {item["name"]: item.get("options", {}) for item in self._snapshot.collections}
        return {
            item.name: real[item.name]
            for item in self.collections
            if item.name in present and not self._is_validated(item.name, real[item.name])
        }

    def _is_validated(self, name: str, real: Mapping[str, Any]) -> bool:
        if not self.validators:
            return not is_closed(real.get("validator", {}))
        wanted = self._validation(name)
        return name not in self.validators or all(real.get(key) == value for key, value in wanted.items())

    def _validation(self, name: str) -> Document:
        """Return the options of a collection that say what it refuses."""
        return {"validator": self.validators.get(name, {}), **STRICT}

    def _set_validator(self, name: str) -> None:
        self.store.database.command("collMod", name, **self._validation(name))

    def _duplicates(self, collection: str, index: IndexSpec) -> MigrationError:
        """Return the error that lists the keys which a unique index would refuse."""
        fields = [name for name, _ in index.key]
        group: Document = {
            # A unique index takes an absent field for null.
            "_id": {f"k{n}": {"$ifNull": [f"${name}", None]} for n, name in enumerate(fields)},
            "count": {"$sum": 1},
        }
        pipeline: list[Document] = [
            {"$match": dict(index.partial)},
            {"$group": group},
            {"$match": {"count": {"$gt": 1}}},
            {"$sort": {"_id": 1}},
            {"$limit": MOST_DUPLICATES},
        ]
        with self.store.with_index_timeout():
            found = list(self.store.collection(collection).aggregate(pipeline, allowDiskUse=True))
        keys = [" / ".join(str(value) for value in item["_id"].values()) for item in found]
        more = f" (the first {MOST_DUPLICATES})" if len(keys) == MOST_DUPLICATES else ""
        return MigrationError(
            f"{collection} has rows that are equal in {', '.join(fields)}, so the unique index {index.name} "
            f"cannot be built. Make them differ and run the migration again. Keys{more}: {'; '.join(keys)}.",
            entity=collection,
            driver=DRIVER,
        )


# Spelt out, because collMod keeps options that were set before.
STRICT: Final = {"validationLevel": "strict", "validationAction": "error"}


def age(seconds: object) -> str:
    """Return an age as messages show it."""
    return "never" if seconds is None else f"after {seconds} s"


def index_conflict(collection: str, index: IndexSpec) -> MigrationError:
    """Return the error of an index that the server refuses because of another one."""
    key = ", ".join(f"{name}: {direction}" for name, direction in index.key)
    return MigrationError(
        f"{collection} has another index on {{{key}}} with other options, which conflicts "
        f"with {index.name}; drop it, then run the migration again.",
        entity=collection,
        driver=DRIVER,
    )


Existing: TypeAlias = Mapping[str, Mapping[str, Any]]


class SchemaSnapshot:
    """The collections of a database and their indexes, as they were when they were first asked for.

    A comparison asks hundreds of times.
    """

    def __init__(self, store: OpenDatabase) -> None:
        self._store = store
        self._collections: Sequence[Mapping[str, Any]] | None = None
        self._indexes: dict[str, Existing] = {}

    @property
    def collections(self) -> Sequence[Mapping[str, Any]]:
        """The collections and views, with their kinds and options."""
        if self._collections is None:
            self._collections = tuple(self._store.database.list_collections())
        return self._collections

    def indexes(self, collection: str) -> Existing:
        """Return the indexes of a collection by name."""
        if collection not in self._indexes:
            self._indexes[collection] = self._store.collection(collection).index_information()
        return self._indexes[collection]


# Of an index; its number, version and namespace differ between servers.
PRINTED_OPTIONS: Final = (
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
        f" {name}={shortened(index[name])}"
        for name in PRINTED_OPTIONS
        # An age may be 0, which Python takes for false.
        if index.get(name) is not None and index[name] is not False
    )
    return f"{{{key}}}{options}"


def shortened(value: object) -> str:
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
        f"wanted {path} {shortened(one)}, found {shortened(other)}"
        for path, one, other in differing(wanted, found)
    ]
    more = len(ways) - MOST_PATHS
    rest = f"; and {more} more" if more > 0 else ""
    return f"The validator of {collection} differs: {'; '.join(ways[:MOST_PATHS])}{rest}."


def differing(wanted: object, found: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield the paths at which two options differ; ignore options that only the collection has."""
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
            f"The collection {name} should be an ordinary one, but is a {item['type']}. To fix: keep what "
            f"it shows elsewhere, db.{name}.drop(), then `twinstore migrate run`."
        )
    if options.get("capped"):
        yield (
            f"The collection {name} should hold any number of rows, but is capped at {options.get('size')} "
            "bytes, so the server removes rows. To fix: copy it into a database where it is not."
        )
    if (collation := options.get("collation")) is not None:
        yield (
            f"The collection {name} compares texts by its own collation ({collation['locale']}), which "
            "does not distinguish all keys and tenants; copy it into a database where it has none."
        )


# What an index is and does, whatever its name: when two are equal, and which remove or refuse rows.


AGE: Final = "expireAfterSeconds"
# What an index does to rows in addition to finding them.
ENFORCING_OPTIONS: Final = frozenset({"unique", "prepareUnique", AGE})
# In addition to key, uniqueness, filter and age: options that our indexes never have.
UNUSUAL: Final = ("sparse", "collation", "hidden", "prepareUnique")


def shape(key: list[tuple[str, Any]], options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what makes two indexes equal; the age at which rows expire comes last."""
    partial = options.get("partialFilterExpression") or {}
    # An index that was made in a shell has its directions as floating-point numbers.
    directions = [
        (name, int(direction) if isinstance(direction, float) else direction) for name, direction in key
    ]
    unusual = {name: options[name] for name in UNUSUAL if options.get(name)}
    age_limit = options.get(AGE)
    return (
        directions,
        bool(options.get("unique")),
        dict(partial),
        unusual,
        None if age_limit is None else int(age_limit),
    )


def is_enforced(index: Mapping[str, Any]) -> bool:
    """Whether an index removes rows or refuses some.

    One of texts, places or hashes refuses those whose field is none, such as a list, or a language that it
    does not know.
    """
    return not ENFORCING_OPTIONS.isdisjoint(index) or any(
        isinstance(direction, str) for _, direction in index["key"]
    )


def is_shorter(wanted: int, real: int | None) -> bool:
    """Whether an age in seconds lets the server remove what another one, or none, leaves alone."""
    return real is None or wanted < real


def expiring(
    store: OpenDatabase, collection: str, index: IndexSpec, *, wanted: int, real: int | None
) -> Iterator[Effect]:
    """Yield what a TTL of ``wanted`` seconds would remove that one of ``real`` seconds leaves alone.

    What is due already counts for the old age: the server removes it within a minute anyway.
    """
    now = store.now()
    due: Document = {"$lte": now - timedelta(seconds=wanted)}
    if real is not None:
        due["$gt"] = now - timedelta(seconds=real)
    condition = {"$and": [{index.key[0][0]: due}, dict(index.partial)]}
    # Without a limit of time: reading a whole collection takes as long as it takes.
    with store.with_index_timeout():
        rows = store.collection(collection).count_documents(condition)
    if rows:
        yield Effect(kind=EffectKind.TTL, name=collection, rows=rows)


def refused(store: OpenDatabase, collection: str, validator: Document) -> Iterator[Effect]:
    """Yield how many documents a validator would refuse."""
    with store.with_index_timeout():
        rows = store.collection(collection).count_documents({"$nor": [validator]}, limit=COUNTED_ROWS + 1)
    if rows:
        more = rows > COUNTED_ROWS
        yield Effect(
            kind=EffectKind.VALIDATOR, name=collection, rows=COUNTED_ROWS if more else rows, more=more
        )
