"""Modules of data alone for databases in the forms of public applications, and for documents of any shape.

With the modules are builders of such databases, which plant what is wrong with some documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import bson
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex
from pydantic import Field

from twinstore import module as tm

Document = dict[str, Any]
M = TypeVar("M", bound=tm.CanonicalModel)
START: Final = datetime(2024, 3, 1, 8, 0, tzinfo=UTC)
ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Wart:
    """What is wrong with some documents of a collection.

    Attributes:
        collection: of which documents.
        changes: the properties that differ from a good document; :data:`ABSENT` removes one.
        reason: a part of the reason for which they are quarantined; empty where they are copied.
        kind: the equivalence that they are counted under.
        times: how many of 1,000 documents of the collection have it, at least one.
    """

    collection: str
    changes: Document
    reason: str = ""
    kind: str = ""
    times: int = 1

    def applied(self, document: Document) -> bytes:
        changed = {name: value for name, value in {**document, **self.changes}.items() if value is not ABSENT}
        return bson.encode(changed)


@dataclass(frozen=True, slots=True)
class Application:
    """A database in the form of an application, of which 1,000 documents are shared among the collections."""

    name: str
    shares: dict[str, int]
    makers: dict[str, Callable[[int], Document]]
    warts: tuple[Wart, ...]
    verdict: str

    def documents(self, total: int) -> list[tuple[str, bytes, Wart | None]]:
        """Return documents with their collection, and with what is wrong with them."""
        found: list[tuple[str, bytes, Wart | None]] = []
        for name, share in self.shares.items():
            count = max(share * total // 1000, 20)
            planted = [wart for wart in self.warts if wart.collection == name]
            turns = [wart for wart in planted for _ in range(max(1, wart.times * count // 1000))]
            for number, wart in enumerate((*turns, *(None,) * (count - len(turns)))):
                document = self.makers[name](number)
                found.append((name, bson.encode(document) if wart is None else wart.applied(document), wart))
        return found


def bad(name: str, *found: tuple[Document, str]) -> tuple[Wart, ...]:
    return tuple(Wart(name, changes, reason) for changes, reason in found)


def entity(module: str, name: str, model: type[M], *key: tm.KeyPart, **more: Any) -> tm.Entity[M]:  # noqa: ANN401
    """Return the description of a collection, whose rows no tenant owns."""
    common = {"singular": name, "group": module, "tenancy": tm.Tenancy.none(), "key_parts": key}
    return tm.Entity(name=name, module=module, model=model, **{**common, **more})


def plugin(name: str, *entities: tm.Entity[Any]) -> tm.ModulePlugin:
    """Return a module of data alone."""
    catalog = tm.Module(name=name, entities=entities)
    spec: tm.ModuleSpec[object] = tm.ModuleSpec(catalog=catalog, title=name.title(), package=name)
    settings = tm.ModuleSettings(section=name.title(), options=tm.ModuleOptions, option_paths={})
    return tm.ModulePlugin(name=name, title=name.title(), settings=settings, spec=lambda: spec)


def index(name: str, *fields: str, **more: Any) -> tm.Index:  # noqa: ANN401  # of a description
    return tm.Index(fields=fields, name=name, **more)


def moment(number: int) -> datetime:
    """Return an instant with milliseconds; each is later than the one of the number before."""
    return START + timedelta(seconds=61 * number, milliseconds=number % 1000)


def identity(kind: int, number: int) -> ObjectId:
    return ObjectId(f"{0x65A1F0C2 + kind:08x}{kind:08x}{number:08x}")


Extra = Annotated[tm.ExtraProperties, Field(default_factory=dict, exclude_if=tm.is_empty)]
Updated = Annotated[tm.Timestamp, Field(alias="_updatedAt")]
Revision = Annotated[tm.Int64, Field(alias="__v")]
TEXT, OBJECT_ID, UUID = tm.text("id"), tm.object_id("id"), tm.binary_uuid("id")


# A chat server: ids that are texts, names with `_` in front, values of any type, files in chunks.


class Author(tm.CanonicalModel):
    id: Annotated[tm.Id, Field(alias="_id")]
    username: tm.Name | None = None


class User(tm.CanonicalModel):
    id: tm.Id
    username: tm.Name
    roles: tuple[tm.Text, ...] = ()
    utc_offset: tm.Number
    services: tm.FreeObject
    updated_at: Updated


class Room(tm.CanonicalModel):
    id: tm.Id
    t: tm.Name
    name: tm.Text | None = None
    u: Author
    msgs: tm.Int64
    ro: tm.Flag
    uids: tuple[tm.Id, ...] | None = None
    last_message: tm.FreeObject | None = None
    updated_at: Updated


class Message(tm.CanonicalModel):
    id: tm.Id
    rid: tm.Id
    msg: tm.Text
    ts: tm.Timestamp
    u: Author
    tmid: tm.Id | None = None
    tcount: tm.Int64 | None = None
    mentions: tuple[Author, ...] = ()
    md: tm.FreeList | None = None
    reactions: tm.FreeObject | None = None
    updated_at: Updated
    extra: Extra


class Setting(tm.CanonicalModel):
    id: tm.Id
    extra: Extra


class Chunk(tm.CanonicalModel):
    id: tm.ObjectIdText
    file: Annotated[tm.Id, Field(alias="files_id")]
    n: tm.Int64
    data: tm.Bytes


MESSAGE_INDEXES: Final = (
    index("room", "rid", "ts", "id"),
    index("thread", "tmid", where=(tm.IsPresent("tmid"),)),
    index("author", "u._id", stores=frozenset({tm.StoreKind.DOCUMENTS})),
)
CHAT_PLUGIN: Final = plugin(
    "chat",
    entity("chat", "users", User, TEXT, indexes=(index("name", "username", unique=True, noun="name"),)),
    entity("chat", "rooms", Room, TEXT, indexes=(index("type", "t", "id"),)),
    entity("chat", "messages", Message, TEXT, indexes=MESSAGE_INDEXES),
    entity("chat", "settings", Setting, TEXT),
    entity("chat", "chunks", Chunk, OBJECT_ID),
)


def author(number: int) -> Document:
    return {"_id": f"user{number % 40:013}", "username": f"user.{number % 40}"}


def a_user(number: int) -> Document:
    token = {"when": moment(number), "hashedToken": "aGFzaA==", "from": {"ip": "10.0.0.1", "port": 443}}
    services = {"password": {"bcrypt": "$2b$10$x"}, "resume": {"loginTokens": [token]}, "email2fa": None}
    found = {"_id": f"user{number:013}", "services": services, "username": f"user.{number}"}
    roles, offset = ["user", "admin"][: 1 + number % 2], (5.5, -3.5, 0.25)[number % 3]
    return found | {"roles": roles, "utcOffset": offset, "_updatedAt": moment(number)}


def a_room(number: int) -> Document:
    last = {"_id": "m", "ts": moment(number), "u": author(number), "md": [], "n": Int64(2**40)}
    found: Document = {
        "_id": f"room{number:013}",
        "t": ("c", "p", "d")[number % 3],
        "u": author(number),
        "msgs": number,
    }
    found |= {"ro": False, "lastMessage": last, "_updatedAt": moment(number)}
    return found | ({"name": f"room {number}"} if number % 3 < 2 else {"uids": ["a", "b"]})


def a_message(number: int) -> Document:
    value = f"text {number} \U0001f600"
    paragraph = {"type": "PARAGRAPH", "value": [{"type": "PLAIN_TEXT", "value": value, "og:image": "x"}]}
    found = {"_id": f"{number:017}", "rid": f"room{number % 50:013}", "msg": value, "ts": moment(number)}
    found |= {"u": author(number), "_updatedAt": moment(number), "mentions": [author(7)] * (number % 2)}
    found |= {"md": [paragraph, None, 1, {"a.b": 1, "$set": 2}, [2.5]][: 1 + number % 5]}
    if number % 5 == 0:
        found |= {"tcount": Int64(3), "reactions": {":+1:": {"usernames": ["user.1"]}}, "editedAt": moment(1)}
    if number % 7 == 0:
        found |= {
            "tmid": f"{number // 2:017}",
            "_hidden": True,
            "customFields": {"ticket": identity(9, number)},
        }
    if number % 11 == 0:
        found |= {"federation.id": Binary(b"12", 6), "$app": {"$ref": "x", "$id": 7}, "": None, "$ref": "r"}
    return found


def a_setting(number: int) -> Document:
    any_of = (True, 5, 2**40, 2.5, "x", None, [1, "a", None], {"a": {"$ref": "c", "$id": 1}}, moment(3), b"x")
    return {
        "_id": f"Setting_{number}",
        "value": any_of[number % len(any_of)],
        "$id": 7,
        "_updatedAt": moment(1),
    }


def a_chunk(number: int) -> Document:
    found = {"_id": identity(1, number), "files_id": f"file{number // 4}", "n": Int64(number % 4)}
    return found | {"data": bytes([number % 256]) * 50}


CHAT: Final = Application(
    name="chat",
    shares={"users": 20, "rooms": 210, "messages": 720, "settings": 20, "chunks": 30},
    makers={
        "users": a_user,
        "rooms": a_room,
        "messages": a_message,
        "settings": a_setting,
        "chunks": a_chunk,
    },
    warts=(
        Wart("messages", {"ts": "2024-03-01T08:00:00.5Z"}, kind="text_timestamp", times=2),
        Wart("messages", {"tmid": None}, kind="null_for_absent", times=3),
        Wart("messages", {"tcount": 3.0}, kind="number_type"),
        Wart("users", {"utcOffset": 2.0}, kind="number_type"),
        Wart("users", {"utcOffset": Int64(2**53 + 1)}, "utcOffset: Whole number has more digits"),
        *bad(
            "messages",
            ({"msg": ABSENT}, "msg: Required property is missing"),
            ({"msg": None}, "msg: Required property is missing"),
            ({"msg": "a\0b"}, "U+0000"),
            ({"ts": bson.Timestamp(5, 1)}, "ts: Input should be a timestamp"),
            ({"u": {"_id": 7}}, "u._id: Input should be a valid string"),
            ({"u": {"_id": "a", "_class": "x"}}, "u._class: Unknown property"),
            ({"md": [{"a": [Regex("^a")]}]}, "md.0.a.0"),
            ({"md": [Code("x")]}, "code is a type of BSON that no copy keeps"),
            ({"reactions": {"x": MinKey()}}, "reactions.x"),
            ({"mood": {"x": [MaxKey()]}}, "mood.x.0"),
            ({"tcount": 3.5}, "tcount: Input should be a whole number"),
        ),
        Wart("chunks", {"data": Binary(b"x", 5)}, "data: binary data of subtype 5"),
        Wart("chunks", {"data": "eA=="}, "data: a text, and not binary data"),
    ),
    verdict="INCONCLUSIVE",
)


# Film samples: ids that are ObjectIds, nested models, ratings that may be whole, coordinates.


class Rating(tm.CanonicalModel):
    rating: tm.Number | None = None
    votes: tm.Int64


class Movie(tm.CanonicalModel):
    id: tm.ObjectIdText
    title: tm.Name
    year: tm.Int64
    released: tm.Timestamp
    plot: tm.Text | None = None
    genres: tuple[tm.Name, ...] = ()
    imdb: Rating
    places: tuple[tm.Number, ...]
    tomatoes: tm.FreeObject | None = None
    comments: Annotated[tm.Int64, Field(alias="num_mflix_comments")]


class Comment(tm.CanonicalModel):
    id: tm.ObjectIdText
    email: tm.Name
    movie: Annotated[tm.ObjectIdText, Field(alias="movie_id")]
    date: tm.Timestamp


FILM_SAMPLES_PLUGIN: Final = plugin(
    "film_samples",
    entity("film_samples", "movies", Movie, OBJECT_ID, indexes=(index("genres", "genres"),)),
    entity("film_samples", "comments", Comment, OBJECT_ID, indexes=(index("film", "movie_id", "date"),)),
)


def a_movie(number: int) -> Document:
    viewer = {
        "rating": 3.0 + number % 20 / 10,
        "numReviews": number,
        "sent": [moment(number), None, {"$id": 1}],
    }
    found = {"_id": identity(1, number), "plot": f"Plot {number}", "title": f"Film {number}", "year": 1893}
    found |= {"genres": ["Short", "Western", "Élodie"][: number % 4], "num_mflix_comments": number % 5}
    found |= {"released": START - timedelta(days=number % 50_000), "tomatoes": {"viewer": viewer}}
    return found | {"imdb": {"rating": number % 100 / 10, "votes": number}, "places": [-93.25, 44.0]}


def a_comment(number: int) -> Document:
    found = {
        "_id": identity(2, number),
        "email": f"name{number % 180}@films.example",
        "date": moment(-20 * number),
    }
    return found | {"movie_id": identity(1, number % 23_000)}


FILM_SAMPLES: Final = Application(
    name="film_samples",
    shares={"movies": 180, "comments": 820},
    makers={"movies": a_movie, "comments": a_comment},
    warts=(
        Wart("movies", {"year": 1981.0}, kind="number_type", times=3),
        Wart("movies", {"released": "1893-05-09T00:00:00Z"}, kind="text_timestamp"),
        Wart("movies", {"plot": None, "tomatoes": None}, kind="null_for_absent"),
    ),
    verdict="PASS",
)


# A shop on an object mapper: decimals, `__v`, embedded documents with ids, compound and binary ids.


class Address(tm.CanonicalModel):
    id: Annotated[tm.ObjectIdText, Field(alias="_id")]
    street: tm.Text


class Customer(tm.CanonicalModel):
    id: tm.ObjectIdText
    email: tm.Name
    phone: tm.Text | None = None
    addresses: tuple[Address, ...] = ()
    v: Revision


class Product(tm.CanonicalModel):
    id: tm.ObjectIdText
    price: tm.DecimalNumber
    thumbnail: tm.Bytes
    attributes: tm.FreeObject
    v: Revision
    extra: Extra


class Status(StrEnum):
    OPEN = "open"
    PAID = "paid"


class Item(tm.CanonicalModel):
    product: tm.ObjectIdText
    quantity: tm.Int64
    price: tm.DecimalNumber


class Order(tm.CanonicalModel):
    id: tm.ObjectIdText
    customer: tm.ObjectIdText
    items: tuple[Item, ...] = ()
    total: tm.DecimalNumber
    status: Status
    payment: tm.BinaryUuid | None = None
    placed_at: tm.Timestamp


class Price(tm.CanonicalModel):
    product: tm.ObjectIdText
    country: tm.Text
    amount: tm.DecimalNumber


class Cart(tm.CanonicalModel):
    id: tm.BinaryUuid
    expires_at: tm.Timestamp


class Rate(tm.CanonicalModel):
    number: tm.Int64
    rate: tm.DecimalNumber


CUSTOMER_INDEXES: Final = (
    index("email", "email", unique=True, noun="email"),
    index("phone", "phone", "id", where=(tm.IsPresent("phone"),)),
)
PRICE_KEY: Final = (tm.object_id("product"), tm.text("country"))
REVISION: Final = {"__v": "revision"}
SHOP_PLUGIN: Final = plugin(
    "shop",
    entity("shop", "customers", Customer, OBJECT_ID, indexes=CUSTOMER_INDEXES, columns=REVISION),
    entity("shop", "products", Product, OBJECT_ID, columns=REVISION),
    entity("shop", "orders", Order, OBJECT_ID, indexes=(index("placed", "customer", "placedAt"),)),
    entity("shop", "prices", Price, *PRICE_KEY, key_as_id=True),
    entity("shop", "carts", Cart, UUID),
    entity("shop", "rates", Rate, tm.int64("number"), key_as_id=True, narrow=("number",)),
)
CENT: Final = ("0.01", "19.90", "5", "1.500", "-3.25", "12345678901234567890123456789012.34")


def decimal(number: int) -> Decimal128:
    return Decimal128(CENT[number % len(CENT)])


def a_customer(number: int) -> Document:
    found = {"_id": identity(1, number), "email": f"{number}@shop.example", "phone": f"+31 {number}"}
    return found | {"addresses": [{"_id": identity(7, number), "street": "Dam"}] * (number % 3), "__v": 0}


def a_product(number: int) -> Document:
    parts = [identity(2, 1), Binary(b"x", 4), decimal(number), moment(1)]
    found = {"_id": identity(2, number), "price": decimal(number), "thumbnail": bytes(range(number % 200))}
    found |= {"attributes": {"colour": "red", "parts": parts}, "__v": 1}
    left = {
        "old.price": decimal(number),
        "$legacy": {"oid": identity(8, 1)},
        "_cls": "P",
        "tags": [None, 1.5],
    }
    return found | (left if number % 5 == 0 else {})


def an_order(number: int) -> Document:
    item = {"product": identity(2, number), "quantity": 1 + number % 3, "price": decimal(number)}
    found = {
        "_id": identity(3, number),
        "customer": identity(1, number % 1000),
        "items": [item] * (number % 4),
    }
    found |= {"total": decimal(number), "status": ("open", "paid")[number % 2], "placedAt": moment(number)}
    return found | ({"payment": Binary(number.to_bytes(16, "big"), 4)} if number % 2 else {})


def a_price(number: int) -> Document:
    key = {"product": identity(2, number), "country": ("", "NL")[number % 2]}
    return {"_id": key, "amount": decimal(number)}


def a_cart(number: int) -> Document:
    return {"_id": Binary(number.to_bytes(16, "big"), 4), "expiresAt": moment(number)}


def a_rate(number: int) -> Document:
    return {"_id": number - 5, "rate": decimal(number)}


SHOP: Final = Application(
    name="shop",
    shares={"customers": 150, "products": 150, "orders": 600, "prices": 60, "carts": 30, "rates": 10},
    makers={"customers": a_customer, "products": a_product, "orders": an_order}
    | {"prices": a_price, "carts": a_cart, "rates": a_rate},
    warts=(
        Wart("customers", {"phone": None}, kind="null_for_absent", times=120),
        Wart("orders", {"placedAt": "2024-03-01T08:00:00.000Z"}, kind="text_timestamp", times=3),
        Wart("orders", {"total": Decimal128("1E+3")}, kind="decimal_exponent", times=2),
        Wart("rates", {"_id": 7000000.0}, kind="number_type", times=0),
        *bad(
            "orders",
            ({"giftNote": "for Ada"}, "giftNote: Unknown property"),
            ({"total": 19.9}, "total: Input should be a Decimal"),
            ({"total": Decimal128("NaN")}, "total: NaN is no decimal"),
            ({"total": Decimal128("-0.00")}, "total: Minus zero"),
            ({"customer": "nobody"}, "customer: Text is no ObjectId"),
            ({"payment": Binary(bytes(16), 3)}, "payment: binary data of subtype 3"),
            ({"status": "lost"}, "status: Input should be"),
            ({"placedAt": DatetimeMS(253_402_300_800_000)}, "placedAt: Input should be a timestamp"),
            ({"items": [None]}, "items.0"),
        ),
        Wart("products", {"attributes": {"x": [{"y": Regex("a")}]}}, "attributes.x.0.y"),
        Wart("products", {"attributes": {"x": Decimal128("Infinity")}}, "attributes.x"),
        Wart("products", {"price": ABSENT}, "price: Required property is missing"),
        Wart("orders", {"_id": "0" * 24}, "its _id is not an ObjectId", times=0),
        Wart("prices", {"_id": {"country": "NL", "product": identity(2, 1)}}, "its _id", times=0),
        Wart("prices", {"_id": {"product": "0" * 24, "country": "NL"}}, "its _id", times=0),
        Wart("carts", {"_id": Binary(bytes(15) + b"x", 3)}, "its _id is not", times=0),
        Wart("rates", {"_id": 7.5}, "its _id is not an integer", times=0),
    ),
    verdict="INCONCLUSIVE",
)
APPLICATIONS: Final[Sequence[Application]] = (CHAT, FILM_SAMPLES, SHOP)


# Any shape: a row with ten types, and one that keeps what no field names.


class Ten(tm.CanonicalModel):
    id: tm.ObjectIdText
    label: Annotated[tm.Text, Field(alias="_label")]
    count: Annotated[tm.Int64, Field(alias="$count")]
    score: Annotated[tm.Number | None, Field(alias="sc.ore")] = None
    price: tm.DecimalNumber | None = None
    seen_at: tm.Timestamp | None = None
    is_open: tm.Flag | None = None
    image: tm.Bytes | None = None
    design: tm.BinaryUuid | None = None
    notes: tm.FreeObject | None = None
    things: tm.FreeList | None = None


class Bag(tm.CanonicalModel):
    number: tm.Int64
    label: tm.Text
    seen_at: Annotated[tm.Timestamp | None, Field(alias="_seen")] = None
    extra: Extra


COLUMNS: Final = {"_label": "label", "$count": "count", "sc.ore": "score"}
ANYTHING_PLUGIN: Final = plugin(
    "anything",
    entity("anything", "tens", Ten, OBJECT_ID, columns=COLUMNS),
    entity("anything", "bags", Bag, tm.int64("number"), key_as_id=True),
)
