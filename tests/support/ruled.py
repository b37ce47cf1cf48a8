"""A module of data alone whose documents need a rule of each kind, and generated documents of it.

Each row is drawn first and its document is made of it, so what a rule should give is known without a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import count
from random import Random
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from bson import DBRef, Decimal128, Int64, ObjectId

from tests.support.applications import TEXT, entity, identity, index, plugin
from twinstore import module as tm
from twinstore_backfill.rules import model as rules

Document = dict[str, Any]


class State(StrEnum):
    OPEN = "open"
    PAID = "paid"


class Event(tm.CanonicalModel):
    at: tm.Timestamp


class Place(tm.CanonicalModel):
    city: tm.Text | None = None


class Reading(tm.CanonicalModel):
    id: tm.Id
    state: State
    is_open: tm.Flag
    seen_at: tm.Timestamp
    sent_at: tm.Timestamp
    count: tm.Int64
    ratio: tm.Number
    amount: tm.Int64
    price: tm.DecimalNumber
    owner: tm.BinaryUuid
    station: tm.Id
    note: tm.Text
    events: tuple[Event, ...] = ()
    last_event_at: tm.Timestamp | None = None
    event_count: tm.Int64
    place: Place
    grade: tm.Text


class Owner(tm.CanonicalModel):
    id: tm.BinaryUuid
    name: tm.Text


class Station(tm.CanonicalModel):
    id: tm.Id
    name: tm.Text


READINGS: Final = entity("ruled", "readings", Reading, TEXT, indexes=(index("seen", "seenAt", "id"),))
OWNERS: Final = entity("ruled", "owners", Owner, tm.binary_uuid("id"))
STATIONS: Final = entity("ruled", "stations", Station, TEXT)
RULED_PLUGIN: Final = plugin("ruled", READINGS, OWNERS, STATIONS)

ZONE: Final = "Europe/Zurich"
ZURICH: Final = ZoneInfo(ZONE)
LEAP_YEAR: Final = datetime(2024, 1, 1, tzinfo=UTC)
LOCAL: Final = "%d.%m.%Y %H:%M:%S"
ENGLISH: Final = "%d %b %Y %H:%M:%S %z"
OTHER: Final = ("%d/%m/%Y %H:%M %z", "%m/%d/%Y %H:%M %z")
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
STATES: Final = {"offen": "open", "bezahlt": "paid", "1": "open"}
FLAGS: Final = {"ja": True, "nein": False, "1": True, "0": False}


def rule(kind: type[rules.Rule], path: str, **more: Any) -> rules.Rule:  # noqa: ANN401  # of any kind
    entity, *names = path.split(".")
    number = next(NUMBERS)
    return kind(number=number, line=number, entity=entity, path=tuple(names), reason="generated", **more)


NUMBERS: Final = count(1)
RULES: Final = (
    rule(rules.ReplaceRule, "readings.note", old="\r\n", by="\n"),
    rule(rules.ReplaceRule, "readings.note", what="nul", by="?"),
    rule(rules.TrimRule, "readings.note"),
    rule(rules.MapRule, "readings.state", values=STATES),
    rule(rules.MapRule, "readings.isOpen", values=FLAGS),
    rule(rules.DateRule, "readings.seenAt", formats=(LOCAL, ENGLISH, "epoch-milliseconds"), zone=ZONE),
    rule(rules.DateRule, "readings.sentAt", formats=OTHER),
    rule(rules.DateRule, "readings.events.at", formats=("epoch-seconds",)),
    rule(rules.NumberRule, "readings.count", source="text", factor=Decimal(1000)),
    rule(rules.NumberRule, "readings.ratio", source="text", factor=Decimal("0.01")),
    rule(rules.NumberRule, "readings.amount", source="decimal", factor=Decimal(100)),
    rule(rules.NumberRule, "readings.price", source="text", factor=Decimal("0.01")),
    rule(rules.IdRule, "readings.owner", to="uuid"),
    rule(rules.IdRule, "readings.station", to="text"),
    rule(rules.IdRule, "owners._id", to="uuid"),
    rule(rules.IdRule, "stations._id", to="text"),
    rule(rules.DeriveRule, "readings.lastEventAt", how="max", of=("events", "at")),
    rule(rules.DeriveRule, "readings.eventCount", how="count", of=("events",)),
    rule(rules.RenameRule, "readings.ort", to=("place", "city")),
    rule(rules.DropRule, "readings.legacy"),
    rule(rules.DropRule, "readings.place.geo"),
    rule(rules.KeyRule, "readings.code"),
    rule(rules.DefaultRule, "readings.grade", value="none"),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A document, and the values of its row, ``None`` where it is refused."""

    entity: tm.Entity[Any]
    document: Document
    values: Document | None

    @property
    def row(self) -> tm.CanonicalModel:
        """The row of a document that is not refused."""
        found: tm.CanonicalModel = self.entity.model.model_validate(self.values)
        return found


def uuid_of(identifier: ObjectId) -> UUID:
    """Return the UUID of version 7 that an ObjectId becomes: its time, and its other 64 bits behind."""
    seconds, rest = int.from_bytes(identifier.binary[:4]), int.from_bytes(identifier.binary[4:])
    high, low = rest >> 52, rest & (1 << 52) - 1
    return UUID(int=(seconds * 1000) << 80 | 7 << 76 | high << 64 | 2 << 62 | low << 10)


def spelled(number: Decimal) -> str:
    return f"{number:f}"


def local(instant: datetime, shown: str) -> str:
    return instant.astimezone(ZURICH).strftime(shown)


def seen(random: Random) -> tuple[object, datetime]:
    """Return a form of an instant of a day on which no clock changes, and the instant."""
    # From the fifth to the twentieth of a month.
    day = datetime(random.randrange(1990, 2037), random.randrange(1, 13), random.randrange(5, 21), tzinfo=UTC)
    instant = day + timedelta(seconds=random.randrange(86_400))
    milliseconds = int(instant.timestamp()) * 1000
    english = f"{instant.day} {MONTHS[instant.month - 1]} {instant:%Y %H:%M:%S} +0000"
    forms = (instant, local(instant, LOCAL), english, Int64(milliseconds), str(milliseconds))
    return random.choice(forms), instant


def sent(random: Random) -> tuple[object, datetime]:
    """Return a form of an instant that one of two orders of day and month reads, or both alike."""
    month = random.randrange(1, 13)
    day = random.choice((month, random.randrange(13, 29)))
    instant = datetime(2024, month, day, random.randrange(24), random.randrange(60), tzinfo=UTC)
    return instant.strftime(random.choice(OTHER)), instant


def a_reading(number: int, random: Random) -> Drawn:
    whole, digits = random.randrange(-(10**12), 10**12), Decimal(random.randrange(-(10**14), 10**14))
    ratio, cents = digits.scaleb(-random.randrange(15)), random.randrange(-(10**9), 10**9)
    (given_seen, seen_at), (given_sent, sent_at) = seen(random), sent(random)
    owner, station = identity(1, random.randrange(1 << 32)), identity(2, random.randrange(1 << 32))
    events = [LEAP_YEAR + timedelta(hours=random.randrange(8784)) for _ in range(number % 4)]
    state, is_open = random.choice(list(STATES)), random.choice(list(FLAGS))
    row: Document = {
        "id": f"{number:08}",
        "state": STATES[state],
        "isOpen": FLAGS[is_open],
        "seenAt": seen_at,
        "sentAt": sent_at,
        "count": whole,
        "ratio": float(ratio),
        "amount": cents,
        "price": Decimal(cents).scaleb(-4),
        "owner": str(uuid_of(owner)),
        "station": str(station),
        "note": "first\nsecond?",
        "events": [{"at": at} for at in events],
        "eventCount": len(events),
        "place": {"city": "Bern"},
        "grade": random.choice(("A", "none")),
    }
    document: Document = {
        **row,
        # In another order than the keys; of odd multiples no two are equal.
        "_id": identity(3, number * 2_654_435_761 % (1 << 32)),
        "code": row["id"],
        "state": 1 if state == "1" else state,
        "isOpen": int(is_open) if is_open.isdigit() else is_open,
        "seenAt": given_seen,
        "sentAt": given_sent,
        "count": random.choice((Int64(whole), spelled(Decimal(whole).scaleb(-3)))),
        "ratio": random.choice((float(ratio), spelled(ratio.scaleb(2)))),
        "amount": Decimal128(Decimal(cents).scaleb(-2)),
        "price": spelled(Decimal(cents).scaleb(-2)),
        "owner": random.choice((owner, str(owner), DBRef("owners", owner))),
        "station": random.choice((station, str(station), DBRef("stations", station))),
        "note": "  first\r\nsecond\0\t",
        "events": [{"at": int(at.timestamp())} for at in events],
        "place": {"geo": {"lat": 46.9}},
        "ort": "Bern",
        "legacy": {"of": number},
    }
    for name in ("id", "eventCount", *(("grade",) if row["grade"] == "none" else ())):
        del document[name]
    return Drawn(READINGS, document, row | ({"lastEventAt": max(events)} if events else {}))


# What no rule can give without a guess.
BAD: Final[tuple[Document, ...]] = (
    {"seenAt": "27.10.2024 02:30:00"},
    {"seenAt": "31.03.2024 02:30:00"},
    {"sentAt": "03/04/2024 10:00 +0000"},
    {"sentAt": "30/30/2024 10:00 +0000"},
    {"state": "Offen"},
    {"isOpen": "JA"},
    {"count": "0.0001"},
    {"count": "9223372036854775.808"},
    {"count": "1 000"},
    {"ratio": "1234567890123456.789"},
    {"ratio": "1e3"},
    {"amount": Decimal128("0.001")},
    {"amount": Decimal128("NaN")},
    {"owner": "no digits"},
    {"owner": None},
    {"code": None},
    {"code": ObjectId("65a1f0c200000001000000ff")},
)
EVERY: Final = 50


def drawn(total: int, seed: int) -> Iterator[Drawn]:
    """Yield so many documents by entity and key: three of four are readings; every 50th of these is bad."""
    for number in range(total - 2 * (total // 8)):
        found = a_reading(number, Random(seed << 32 | number))
        if number % EVERY == 0:
            found = Drawn(READINGS, found.document | BAD[number // EVERY % len(BAD)], None)
        yield found
    for number in range(total // 8):
        stored = identity(4, number)
        yield Drawn(OWNERS, {"_id": stored, "name": "Ada"}, {"id": str(uuid_of(stored)), "name": "Ada"})
    for number in range(total // 8):
        stored = identity(5, number)
        yield Drawn(STATIONS, {"_id": stored, "name": "x"}, {"id": str(stored), "name": "x"})
