"""Texts that a node admits, and texts that come near it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.fast.nodes import HEX_DIGIT, NO_LIMIT, TextFlag

if TYPE_CHECKING:
    from random import Random

    from twinstore.fast.nodes import Node

WORDS: Final = (
    "a",
    "b",
    "ab",
    "Zeta",
    "x-1",
    "tenant",
    "42",
    "é",
    "漢字",
    "😀",
    'quo"te',
    "back\\slash",
    "q r",
    "ß",
    "İ",
)
CONTROLLED: Final = ("tab\there", "line\nfeed", "bell\x07x", "del\x7fx", "c1\x85x")
CRONS: Final = ("0 0 * * *", "*/5 1-3,7 28 * 1", "59 23 31,1 12 7", "0 0 1-31/2 1,2 *", "5/15 * * * 0-6/2")
ODD: Final = (
    "",
    " ",
    " a",
    "a ",
    "a\u00a0",
    "\u3000a",
    "a\u2028",
    "\u200ba",
    "a\u200b",
    "\ufeffa",
    "a\x85",
    "a\x1f",
    "\x1ca",
    "a\x00b",
    "\x00",
    "a\x07b",
    "a\x9fb",
    "a:b",
    ":none",
    "system",
    "SYSTEM",
    "System ",
    "Upper",
    "ÄÖ",
    "a\u0130b",
    "\u017f",
    "-a",
    ".a",
    "a b",
    "é",
    "😀",
    "UTC",
    "localtime",
    "utc",
    "Europe/Berlin",
    "0 0 * * *",
    "0  0 * * *",
    "0 0 30 2 *",
    "0 0 31 * *",
    "0 0 31 4,6 *",
    "60 0 * * *",
    "0 24 * * *",
    "0 0 0 * *",
    "0 0 * 13 *",
    "0 0 * * 8",
    "0 0 * * 7",
    "*/0 0 * * *",
    "5-1 0 * * *",
    "0 0 * * mon",
    "@daily",
    "0 0 * *",
    "0 0 * * * *",
    "00 007 * * *",
    "1, 0 * * *",
    "canceled",
    "conselier",
    "sha256:" + "0" * 64,
    "sha256:" + "A" * 64,
    "sha256:" + "0" * 63,
    "sha256:" + "0" * 65,
    "2025-10-26T14:05:00+00:00",
    "$a",
    "a.b",
)


def fitting_text(node: Node, random: Random) -> str:
    """Return a text that a node admits and that no model would change."""
    flags = TextFlag(node.flags)
    if flags & TextFlag.LISTED:
        return random.choice(node.texts).text
    if flags & TextFlag.TEMPLATE:
        return "".join(random.choice("0123456789abcdef") if c == HEX_DIGIT else c for c in node.texts[0].text)
    if flags & TextFlag.DIGEST:
        # Few, so that they meet.
        return "sha256:" + random.choice("0123456789abcdef") * 64
    if flags & TextFlag.CRON:
        return random.choice(CRONS)
    if flags & (TextFlag.IDENTIFIER | TextFlag.LOWER):
        return random.choice(("a", "b0", "run.started", "x:y", "0-_")) + str(random.randrange(30))
    return _plain(node, flags, random)


def _plain(node: Node, flags: TextFlag, random: Random) -> str:
    if random.random() < 0.1 and not flags & TextFlag.NONEMPTY:
        return ""
    if random.random() < 0.3:
        # Few, so that they meet.
        return random.choice(WORDS[:3])
    words = [random.choice(WORDS) for _ in range(1 + random.randrange(3))]
    if random.random() < 0.1 and not flags & TextFlag.NO_CONTROL:
        words.insert(1, random.choice(CONTROLLED))
    if random.random() < 0.1 and not flags & TextFlag.TRIM:
        words.append(" ")
    text = " ".join(words) if flags & TextFlag.TRIM or random.random() < 0.5 else "-".join(words)
    if random.random() < 0.05 and node.high != NO_LIMIT:
        text = text.ljust(node.high, random.choice("xé漢😀"))
    return text if node.high == NO_LIMIT else text[: node.high].strip() or "x"


def odd_texts(node: Node | None) -> list[str]:
    """Return texts that come near what a node admits, on either side of it."""
    found: list[str] = [*ODD]
    if node is None:
        return found
    if node.high != NO_LIMIT:
        found += [letter * (node.high + more) for letter in "aé😀" for more in (0, 1)]
        found += [" " + "a" * node.high, "a" * node.high + " "]
    return [*found, *own_texts(node), *[""] * 8]


def own_texts(node: Node) -> list[str]:
    """Return texts that come near the few that a node admits."""
    found: list[str] = []
    for item in node.texts[:20]:
        text = item.text.replace(HEX_DIGIT, "a")
        found += [text, text.upper(), text + " ", text[:-1], text + "a", text.replace("a", "g")]
    return found
