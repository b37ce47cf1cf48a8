"""What may go wrong, in the words of the library: no payloads, no secrets.

Messages of the server repeat documents, keys and hosts, so none of them is passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    DocumentDecodeError,
    DuplicateError,
    MigrationError,
    Outcome,
    TimeoutExceededError,
    TwinstoreError,
    UnavailableError,
    UnsupportedCapabilityError,
    ValidationError,
)

if TYPE_CHECKING:
    from twinstore.catalog import Entity

__all__ = ["DRIVER", "ID_INDEX", "STANDALONE_REMEDY", "Where", "violated_index"]

DRIVER: Final = "Mongo"
ID_INDEX: Final = "_id_"
STANDALONE_REMEDY: Final = (
    "Start mongod with --replSet NAME and run rs.initiate() once, or set AllowStandalone to do without "
    "transactions and sessions."
)
# Of a server that is away, or comes and goes.
AWAY: Final = ("refused", "timed out", "reset by peer", "Name or service not known", "connection closed")
# The first match decides: each failed check of a certificate says the last one too.
TLS_PROBLEMS: Final = {
    "Hostname mismatch": (
        "its certificate is for another host; connect by a name that stands in the certificate."
    ),
    "IP address mismatch": (
        "its certificate is for another address; connect by a name that stands in the certificate."
    ),
    "certificate has expired": "its certificate has expired; renew it on the server.",
    "certificate is not yet valid": "its certificate is not valid yet; look at the clocks of both hosts.",
    "certificate verify failed": (
        "its certificate is signed by nobody who is trusted here; give the authority as tlsCAFile in the "
        "connection string."
    ),
    "WRONG_VERSION_NUMBER": (
        "it does not speak TLS; take tls=true out of the connection string, or switch TLS on there."
    ),
}


@dataclass(frozen=True, slots=True)
class Where:
    """Where an error happened, and what is known of the write when the answer was lost."""

    hosts: str = ""
    entity: str | None = None
    key: str | None = None
    module: str | None = None
    outcome: Outcome = Outcome.UNKNOWN
    timeout_ms: int | None = None

    def of(self, entity: Entity, key: str | None = None, outcome: Outcome = Outcome.NOT_APPLIED) -> Where:
        """Return the same server with an entity."""
        return replace(self, module=entity.module, entity=entity.name, key=key, outcome=outcome)

    @property
    def reading(self) -> Where:
        """The same for what only reads."""
        return replace(self, outcome=Outcome.NOT_APPLIED)

    @property
    def location(self) -> dict[str, str | None]:
        """The location as the errors take it."""
        return {"module": self.module, "entity": self.entity, "key": self.key, "driver": DRIVER}

    @property
    def server(self) -> str:
        """The server as messages name it."""
        return f"MongoDB at {self.hosts}" if self.hosts else "MongoDB"

    @property
    def subject(self) -> str:
        """The row or entity as messages name it."""
        if self.entity and self.key:
            return f"{self.entity} {self.key!r}"
        return self.entity or "the call"


def violated_index(error: BaseException | None) -> str | None:
    """Return the name of the index that a duplicate key violates, ``None`` when the server does not say.

    The structured answer names the fields only; the name stands in the text, between fixed words.
    """
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    text = str(details.get("errmsg", ""))
    _, found, rest = text.partition(" index: ")
    return rest.partition(" ")[0] if found else None


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an exception means whatever it says itself.

    Attributes:
        kind: the class of the error.
        text: its message, with ``{server}`` and ``{subject}``.
        outcome: what is known of a write; ``None``: what the caller knows.
    """

    kind: type[TwinstoreError]
    text: str
    outcome: Outcome | None = None

    def __call__(self, error: Exception, where: Where) -> TwinstoreError:
        """Return the error of the library."""
        del error
        text = self.text.format(server=where.server, subject=where.subject)
        if issubclass(self.kind, UnavailableError):
            return self.kind(text, outcome=self.outcome or where.outcome, **where.location)
        return self.kind(text, **where.location)


# Somebody ended the operation on the server: an administrator, or a call that was given up.
interrupted: Final = Meaning(
    UnavailableError, "{server} was told to end {subject} before it was done; try again."
)
# Every connection of the pool is busy, so nothing was sent.
pool_exhausted: Final = Meaning(
    UnavailableError,
    "All connections to {server} are busy; raise maxPoolSize or use fewer threads.",
    Outcome.NOT_APPLIED,
)
# The server gave up being primary; a new one takes over soon.
not_primary: Final = Meaning(
    UnavailableError, "{server} has no primary at the moment, so {subject} was not served; try again."
)
# A secondary refused the write before doing anything.
refused_write: Final = replace(not_primary, outcome=Outcome.NOT_APPLIED)
# The time limit of the call passed.
timed_out: Final = Meaning(
    TimeoutExceededError,
    "{server} did not finish {subject} in time; try again or raise timeoutMS in the connection string.",
)
# The primary wrote, but a majority did not confirm.
unacknowledged: Final = Meaning(
    UnavailableError,
    "{server} wrote {subject} but a majority of its members did not confirm it; the write may be rolled "
    "back.",
    Outcome.UNKNOWN,
)
# Another writer got in between; everything was rolled back.
concurrency: Final = Meaning(
    ConcurrencyError, "Another writer changed the same data during {subject}; repeat it."
)
# The validator of the collection refused a document.
refused_document: Final = Meaning(
    ValidationError,
    "The validator of the collection refuses {subject}; run `twinstore migrate run` if the validator is "
    "older than this library.",
)
too_large: Final = Meaning(
    ValidationError, "{subject} is larger than the 16 MB that MongoDB takes; make it smaller."
)
# A transaction has written more than the server can take back.
too_much: Final = Meaning(
    ValidationError,
    f"One unit of work has written more than {DRIVER} takes in a transaction, at {{subject}}; nothing was "
    "written. Write less in one unit, or give the server a larger cache.",
)
# Stored bytes are not valid BSON.
undecodable: Final = Meaning(
    DocumentDecodeError,
    f"{{subject}} stored in {DRIVER} is not valid BSON. Repair or quarantine the document.",
)
# The text of the connection string stays hidden, because it holds the password.
bad_uri: Final = Meaning(
    ConfigurationError,
    "The MongoDB connection string is malformed; write mongodb://user@host:27017/database, with a colon and "
    "the password behind the user, and percent-encode special characters of both. Its port is a number, and "
    "its options are those of MongoDB.",
)
# The options contradict each other or the server lacks what they ask for.
bad_settings: Final = Meaning(
    ConfigurationError,
    "The options for {server} are not acceptable to the client or the server; check the options in the "
    "connection string.",
)
rejected_login: Final = Meaning(
    ConfigurationError,
    "{server} rejects the login; check user, password and authSource in the connection string.",
)
# The user may not do this, or nobody logged in.
no_permission: Final = Meaning(
    ConfigurationError,
    "The user of the connection string has no permission for {subject} on {server}; log in with a user that "
    "has readWrite (and dbAdmin for migrations) on the database.",
)
# A standalone server met a transaction.
no_transactions: Final = Meaning(ConfigurationError, f"{{server}} has no transactions. {STANDALONE_REMEDY}")
# The client was used in a way it does not allow, most often after it was closed.
misused: Final = Meaning(
    UnavailableError,
    "The client of {server} cannot serve {subject}; it was closed or its session has ended.",
    Outcome.NOT_APPLIED,
)
# The point in time is older than the history of the server.
lost_history: Final = Meaning(
    UnsupportedCapabilityError,
    "{server} no longer has the history for this point in time; use a newer position or raise its parameter "
    "minSnapshotHistoryWindowInSeconds.",
)


def unavailable(error: Exception, where: Where) -> TwinstoreError:
    """The connection was lost: whether a write was applied is known only outside the exception."""
    del error
    tail = "it is unknown whether the write was applied" if where.outcome is Outcome.UNKNOWN else "try again"
    return UnavailableError(
        f"The connection to {where.server} was lost during {where.subject}; {tail}.",
        outcome=where.outcome,
        **where.location,
    )


def unreachable(error: Exception, where: Where) -> TwinstoreError:
    """No suitable server was found, so nothing was sent."""
    if (problem := untrusted(str(error))) is not None:
        return ConfigurationError(f"{where.server} cannot be used: {problem}", **where.location)
    within = f" within {where.timeout_ms} ms" if where.timeout_ms else ""
    return TimeoutExceededError(
        f"No usable server of {where.server} answered{within}; check that it runs and has a primary, and "
        "that host, port and replicaSet in the connection string are right.",
        outcome=Outcome.NOT_APPLIED,
        **where.location,
    )


def untrusted(text: str) -> str | None:
    """Return why TLS fails with every server that was found, ``None`` where waiting may help.

    The client tells a certificate from a server that is away in its text alone.
    """
    if any(words in text for words in AWAY):
        return None
    return next((problem for words, problem in TLS_PROBLEMS.items() if words in text), None)


def duplicate(error: Exception, where: Where) -> TwinstoreError:
    """A unique index refused a write; the repositories know better which value it was."""
    index = violated_index(error)
    what = f" of index {index}" if index and index != ID_INDEX else ""
    return DuplicateError(
        f"The key or a unique value{what} already exists: {where.subject}.", **where.location
    )


def unencodable(error: Exception, where: Where) -> TwinstoreError:
    """A value has no BSON form."""
    return ValidationError(
        f"{where.subject} holds a value that BSON cannot express ({type(error).__name__}).", **where.location
    )


def unreadable_file(error: OSError, where: Where) -> TwinstoreError:
    """A file of TLS that the connection string names is not there, or may not be read."""
    return ConfigurationError(
        f"A file that the MongoDB connection string names cannot be read ({error.filename or 'unnamed'}: "
        f"{error.strerror or type(error).__name__}); correct tlsCAFile, tlsCertificateKeyFile or tlsCRLFile.",
        **where.location,
    )


def unstorable(error: Exception, where: Where) -> TwinstoreError:
    """The server stores no such name or value."""
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    name = details.get("codeName") or f"code {getattr(error, 'code', None)}"
    return ValidationError(
        f"{where.subject} holds a name or a value that {DRIVER} does not store ({name}); change it.",
        **where.location,
    )


def bad_hint(error: Exception, where: Where) -> TwinstoreError:
    """The server refuses a value; in practice an index that a hint names is missing."""
    if "hint" not in str(error):
        return refused_command(error, where)
    return MigrationError(
        f"{where.entity or 'The collection'} lacks an index that this call needs; "
        "run `twinstore migrate run`.",
        **where.location,
    )


def refused_command(error: Exception, where: Where) -> TwinstoreError:
    """The server refused a command for a reason that has no own row in the table."""
    code = getattr(error, "code", None)
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    name = details.get("codeName") or (f"code {code}" if code is not None else type(error).__name__)
    return TwinstoreError(f"{where.server} refused {where.subject}: {name}.", **where.location)


def unexpected(error: Exception, where: Where) -> TwinstoreError:
    """An exception that the client library documents for calls this driver does not make."""
    return TwinstoreError(
        f"{where.subject} failed in {where.server}: {type(error).__name__}.", **where.location
    )
