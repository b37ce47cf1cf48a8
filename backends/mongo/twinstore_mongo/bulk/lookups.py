"""Other rows that changes of documents look up, in the view of the documents and for a batch of them at once.

A batch is changed twice: first only to learn which rows are looked up, then with these at hand. Rows that are
looked up otherwise, as for a single broken document, are read when it happens. A copy and a comparison make
rows of the documents that are found by code of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from bson import InvalidBSON, decode
from typing_extensions import override

from twinstore.bulk.changes import ChangeRefusedError, FoundRow, Lookup
from twinstore.catalog.keys import LONGEST_TEXT
from twinstore.catalog.tenancy import StoredOwner, Tenant
from twinstore_mongo.client.bson import documents_of
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.stored_values import MongoValues

if TYPE_CHECKING:
    from bson.codec_options import CodecOptions

    from twinstore.bulk.changes import DocumentChange
    from twinstore_mongo.client.types import Document

Place = tuple[Lookup, StoredOwner, type, object]
Wanted = Sequence[tuple[StoredOwner, object]]
# Of one query, whose text grows with them.
VALUES_AT_ONCE: Final = 1000
# Two rows of one value say as much as all of them.
ENOUGH: Final = 2
# Values, apart from those of one batch.
MOST_REMEMBERED: Final = 10_000
# A larger collection is not read as a whole for each batch.
MOST_WITHOUT_INDEX: Final = 100_000


class FindingValues(MongoValues):
    """Values of the documents of one stream, whose changes look up other rows; it remembers some of these.

    ``find`` reads the rows that have some values, each of an owner, and may give more of them.
    """

    def __init__(self, find: Callable[[Lookup, Wanted], Iterator[FoundRow]]) -> None:
        self._find = find
        self._known: dict[Place, list[FoundRow]] = {}
        self._gathered: dict[Place, object] | None = None

    def prepare(self, change: DocumentChange, batch: bytes, options: CodecOptions[Document]) -> None:
        """Find what the change of the documents of a raw batch looks up."""
        if len(self._known) > MOST_REMEMBERED:
            self._known.clear()
        self._gathered = gathered = dict[Place, object]()
        for raw in documents_of(batch):
            with suppress(InvalidBSON, ChangeRefusedError):
                change(decode(raw, options), self)
        self._gathered = None
        self._read(gathered)

    @override
    def found(self, lookup: Lookup, owner: StoredOwner, values: Sequence[object]) -> Sequence[FoundRow]:
        read = ((value, self.read(value)) for value in values if is_askable(owner, value))
        wanted: dict[Place, object] = {(lookup, owner, type(item), item): value for value, item in read}
        missing = {place: value for place, value in wanted.items() if place not in self._known}
        if self._gathered is not None:
            self._gathered |= missing
            # Ends the rule; the other ones go on.
            raise ChangeRefusedError("")
        self._read(missing)
        return [row for place in wanted for row in self._known[place]]

    def _read(self, wanted: Mapping[Place, object]) -> None:
        pairs: defaultdict[Lookup, list[tuple[StoredOwner, object]]] = defaultdict(list)
        for (lookup, owner, *_), value in wanted.items():
            pairs[lookup].append((owner, value))
        self._known.update((place, []) for place in wanted)
        for lookup, some in pairs.items():
            for row in self._find(lookup, some):
                known = self._known.get((lookup, row.owner, type(row.value), row.value))
                if known is not None and len(known) < ENOUGH and row not in known:
                    known.append(row)


def is_askable(owner: StoredOwner, value: object) -> bool:
    """Whether a query can have a value of an owner; a long one, or one with a surrogate, names no row."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return False
    texts = (owner.id if isinstance(owner, Tenant) else "", value if isinstance(value, str) else "")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def conditions_of(lookup: Lookup, wanted: Wanted) -> Iterator[Document]:
    """Yield filters that together find all documents with some values, by the index of a look-up."""
    tenant, by = selecting_tenant(lookup), lookup.by
    for start in range(0, len(wanted), VALUES_AT_ONCE):
        tenants, values = defaultdict[object, list[object]](list), defaultdict[object, list[object]](list)
        for owner, value in wanted[start : start + VALUES_AT_ONCE]:
            stored = owner.id if isinstance(owner, Tenant) else None
            tenants[stored].append(value)
            values[value].append(stored)
        if tenant is None:
            yield {by: {"$in": [*values]}}
            continue
        # Few clauses: with an index on the values alone, each reads the rows of all tenants.
        clauses: list[Document] = [{tenant: name, by: {"$in": some}} for name, some in tenants.items()]
        if len(values) < len(tenants):
            clauses = [{by: value, tenant: {"$in": some}} for value, some in values.items()]
        yield clauses[0] if len(clauses) == 1 else {"$or": clauses}


def selecting_tenant(lookup: Lookup) -> str | None:
    """Return the stored name of the tenant by which documents are selected, ``None`` if by none."""
    return codec_of(lookup.entity).tenant if lookup.keeps_tenant else None


def serves_lookup(index: Mapping[str, Any], lookup: Lookup) -> bool:
    """Check whether an index, as the server describes it, finds the documents of a look-up."""
    names, tenant = list(index["key"]), selecting_tenant(lookup)
    leads = names[0] == lookup.by or set(names[:2]) == {tenant, lookup.by}
    return leads and not any(index.get(name) for name in ("partialFilterExpression", "hidden", "collation"))
