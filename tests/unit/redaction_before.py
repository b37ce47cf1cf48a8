"""How secrets were found before that was linear: what these patterns find is masked at least."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["masked_before"]


def masked_before(text: str) -> set[int]:
    """Return the places of a short text that were masked."""
    return {place for start, end in _secret_spans(text) for place in range(start, end)}


SENSITIVE = r"(?:password|passwd|pwd|passphrase|secret|token|credential|api_?key|access_?key|private_?key)"
# authMechanismProperties of a mongodb URL may hold AWS_SESSION_TOKEN:<secret>.
ASSIGNMENT = re.compile(rf"(?:[\w-]*{SENSITIVE}[\w-]*|authmechanismproperties)\s*=\s*", re.IGNORECASE)
# A password that should have been percent-encoded may hold any character, blanks included, so it
# reaches from the first colon after the scheme to the last "@" of the text.
USER_INFO = re.compile(r"://[^:]*:(?P<secret>.*)@", re.DOTALL)
# Without any "@" whatever follows a colon and is not a port is taken for a password of a mangled URL.
NO_HOST = re.compile(r"://[^:@/?#\s\[]*:(?P<secret>(?!\d+(?:[/,?#\s]|\Z))[^@\s]*)")
QUOTED = {
    "'": re.compile(r"'(?:[^'\\]|\\.|'')*(?:'|\Z)", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\]|\\.|"")*(?:"|\Z)', re.DOTALL),
}
UNQUOTED = re.compile(r"(?:[^\s\\]|\\.)*\\?", re.DOTALL)


def _secret_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the secret parts from left to right; overlapping finds become one."""
    spans = sorted([*_user_info_spans(text), *_assignment_spans(text)])
    while spans:
        start, end = spans.pop(0)
        while spans and spans[0][0] <= end:
            # The patterns overlap; of two finds the longer one hides more.
            end = max(end, spans.pop(0)[1])
        if end > start:
            yield start, end


def _user_info_spans(text: str) -> Iterator[tuple[int, int]]:
    for pattern in (USER_INFO, NO_HOST):
        for match in pattern.finditer(text):
            yield match.span("secret")


def _assignment_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in ASSIGNMENT.finditer(text):
        yield match.end(), _value_end(text, match.start(), match.end())


def _value_end(text: str, key_start: int, start: int) -> int:
    """Find where a secret value ends, taking the furthest end that any dialect would see."""
    # In the query part of a URL neither quotes nor blanks end a value.
    if key_start and text[key_start - 1] in "?&":
        return _index_or_end(text, "&", start)
    quoted = QUOTED.get(text[start : start + 1])
    match = (quoted or UNQUOTED).match(text, start)
    end = match.end() if match else start
    if quoted is None and ";" in text:
        # .NET style: blanks belong to the value, a semicolon ends it.
        end = max(end, _index_or_end(text, ";", start))
    return end


def _index_or_end(text: str, character: str, start: int) -> int:
    position = text.find(character, start)
    return len(text) if position < 0 else position
