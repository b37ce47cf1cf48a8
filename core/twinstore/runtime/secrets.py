"""Keeps secrets out of messages, representations and listings.

Every rule here errs on the side of hiding: a text that is masked too far is ugly, a text that is
masked too little is a leak.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import wraps
from hashlib import blake2b
from secrets import token_bytes
from traceback import clear_frames
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, cast
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import SecretStr

__all__ = [
    "MASK",
    "SIMILARITY_CUTOFF",
    "digest_of_secret",
    "is_secret_key",
    "mask_secret_url",
    "mentions_secret",
    "resembles_secret_key",
    "secrets_in",
    "without_locals",
]


MASK = "***"
# Of this process alone, so that passwords cannot be tried against a digest that was logged.
DIGEST_KEY: Final = token_bytes(32)

SENSITIVE = r"(?:password|passwd|pwd|passphrase|secret|token|credential|api_?key|access_?key|private_?key)"
SECRET_WORDS: Final = ("password", "passphrase", "secret", "token", "credential", "credentials", "apikey")
# Two letters that changed places in "secret" are as alike as 0.833.
SIMILARITY_CUTOFF: Final = 0.83
WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
# authMechanismProperties of a mongodb URL may hold AWS_SESSION_TOKEN:<secret>.
SECRET_KEY = re.compile(SENSITIVE, re.IGNORECASE)
MECHANISM = re.compile(r"authmechanismproperties\Z", re.IGNORECASE)
# Every text may come from outside, so each search takes time in proportion to its length: no pattern here
# starts at a position that an earlier attempt has passed, or backtracks.
ASSIGNMENT = re.compile(r"(?<![\w-])(?P<key>[\w-]++)\s*+=\s*+")
# Without any "@" whatever follows a colon and is not a port is taken for a password of a mangled URL.
NO_HOST = re.compile(r"://[^:@/?#\s\[]*+:(?P<secret>(?!\d++(?:[/,?#\s]|\Z))[^@\s]*+)")
QUOTED = {
    "'": re.compile(r"'(?:[^'\\]++|\\.|'')*+(?:'|\\?\Z)", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\]++|\\.|"")*+(?:"|\\?\Z)', re.DOTALL),
}
UNQUOTED = re.compile(r"(?:[^\s\\]++|\\.)*+\\?", re.DOTALL)


def is_secret_key(name: str) -> bool:
    """Return whether the name of a setting denotes a secret (``Password``, ``AccessToken``)."""
    return SECRET_KEY.search(name) is not None


def resembles_secret_key(name: str) -> bool:
    """Return whether a name may be a misspelt name of a secret (``Pasword``); only listings use this."""
    words = (re.sub(r"[^A-Za-z]", "", name), *WORD.findall(name))
    return is_secret_key(name) or any(
        get_close_matches(word.casefold(), SECRET_WORDS, 1, SIMILARITY_CUTOFF) for word in words
    )


def mask_secret_url(text: str) -> str:
    """Return the text with every password in it replaced by ``***``.

    Understands URLs (``mongodb://user:secret@host1,host2/db``), secrets in their query part, and
    ``key=value`` strings of libpq and .NET with quoted, escaped or bare values. A text without a
    secret is returned unchanged.
    """
    masked: list[str] = []
    position = 0
    for start, end in secret_places(text):
        masked.extend((text[position:start], MASK))
        position = end
    return "".join((*masked, text[position:]))


def secrets_in(text: str) -> frozenset[str]:
    """Return every spelling of the secrets in a connection string: as written, unquoted, percent-decoded."""
    found: set[str] = set()
    for start, end in secret_places(text):
        raw = text[start:end]
        bare = re.sub(r"\\(.)", r"\1", raw.strip("'\""), flags=re.DOTALL)
        # A foreign message may repeat any of the three.
        found |= {raw, bare, unquote(raw)}
    return frozenset(found - {""})


def mentions_secret(message: str, secrets: Iterable[str]) -> bool:
    """Return whether a foreign message repeats one of the secrets and therefore must not be shown."""
    return any(secret and secret in message for secret in secrets)


def digest_of_secret(secret: SecretStr | None) -> str | None:
    """Return what identifies a secret within this process and its children without revealing it."""
    if secret is None:
        return None
    text = secret.get_secret_value()
    return blake2b(text.encode(errors="surrogatepass"), key=DIGEST_KEY, digest_size=16).hexdigest()


def secret_places(text: str) -> Iterator[tuple[int, int]]:
    """Yield the secret parts from left to right; overlapping finds become one."""
    begin, reach = 0, -1
    for start, end in sorted([*_user_info_spans(text), *_assignment_spans(text)]):
        if start > reach:
            if reach > begin:
                yield begin, reach
            begin, reach = start, end
        # The patterns overlap; of two finds the longer one hides more.
        reach = max(reach, end)
    if reach > begin:
        yield begin, reach


def _user_info_spans(text: str) -> Iterator[tuple[int, int]]:
    # A password that should have been percent-encoded may hold any character, blanks included, so it
    # reaches from the first colon after the first scheme to the last "@" of the text.
    scheme, last = text.find("://"), text.rfind("@")
    colon = text.find(":", scheme + 3) if scheme >= 0 else -1
    if 0 <= colon < last:
        yield colon + 1, last
    for match in NO_HOST.finditer(text):
        yield match.span("secret")


def _assignment_spans(text: str) -> Iterator[tuple[int, int]]:
    values = Values(text)
    for match in ASSIGNMENT.finditer(text):
        start = _key_start(match)
        if start is not None:
            yield match.end(), values.end(start, match.end())


def _key_start(match: re.Match[str]) -> int | None:
    """Return where the key of an assignment begins that announces a secret, ``None`` for any other."""
    key = match["key"]
    if SECRET_KEY.search(key):
        return match.start()
    mechanism = MECHANISM.search(key)
    return None if mechanism is None else match.start() + mechanism.start()


class Values:
    """Finds where the secret values of a text end; they are asked for from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._dotnet = ";" in text
        # Where what was last looked for begins and ends, because keys may follow each other without a blank,
        # and each of them would look through the same rest of the text.
        self._next: dict[str, int] = {}
        self._bare = 0

    def end(self, key_start: int, start: int) -> int:
        """Return where the value at ``start`` ends: the furthest end that any dialect would see."""
        text = self._text
        # In the query part of a URL neither quotes nor blanks end a value.
        if key_start and text[key_start - 1] in "?&":
            return self._index_or_end("&", start)
        quoted = QUOTED.get(text[start : start + 1])
        match = quoted and quoted.match(text, start)
        end = match.end() if match else self._bare_end(start)
        if quoted is None and self._dotnet:
            # .NET style: blanks belong to the value, a semicolon ends it.
            end = max(end, self._index_or_end(";", start))
        return end

    def _bare_end(self, start: int) -> int:
        if start >= self._bare:
            match = UNQUOTED.match(self._text, start)
            self._bare = match.end() if match else start
        # A value begins behind "=" or a blank, which end no escape: an earlier value that goes on past this
        # place ends where this one does.
        return self._bare

    def _index_or_end(self, character: str, start: int) -> int:
        if self._next.get(character, -1) < start:
            position = self._text.find(character, start)
            self._next[character] = len(self._text) if position < 0 else position
        return self._next[character]


# What a failure takes along besides its message: the local variables of every function it has left.
#
# Error trackers, ``rich`` and ``cgitb`` record them. Around connection strings they hold passwords, also in
# the frames of client libraries, which know nothing of :class:`pydantic.SecretStr`. So a function that
# handles them clears the frames it has called when it fails. Files, lines and names of functions stay in the
# traceback; the values in it are gone, which is the price.


P = ParamSpec("P")
T = TypeVar("T")


def without_locals(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function whose failures show neither its arguments nor any local variable below it."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        # What the caller is handling already is the context of whatever fails here; its frames are his.
        before = sys.exception()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            clear_traceback_locals(error, exclude=before)
            raise
        finally:
            # This frame is in the traceback, too, and is still running.
            del args, kwargs

    return called


def clear_traceback_locals(error: BaseException, *, exclude: BaseException | None = None) -> None:
    """Clear the local variables of all frames that an error, and those that led to it, have left.

    Args:
        error: what was raised.
        exclude: an error that was there before, which is left alone with everything that led to it.
    """
    seen: set[int] = set() if exclude is None else {id(exclude)}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        # Frames that still run, such as those of the caller, are left alone.
        clear_frames(one.__traceback__)
        waiting += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", one).exceptions
