"""Keeps secrets out of everything a command prints."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from typing_extensions import override

from twinstore.runtime.secrets import MASK, is_secret_key, mask_secret_url, secrets_in
from twinstore_backfill.outcome import TOOL_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.config import Settings
    from twinstore.config.entries import SettingsEntry

SHORTEST: Final = 4


class Redactor:
    """Replaces every secret that any loaded settings mention, and whatever looks like one."""

    def __init__(self) -> None:
        self._known: list[str] = []

    def learn(self, settings: Settings) -> None:
        """Remember the secrets of some settings."""
        entries = settings.entries.values()
        public = "\n".join(
            (TOOL_NAME, *(mask_secret_url(entry.text) for entry in entries if not _is_secret(entry)))
        )
        for entry in entries:
            found = secrets_in(entry.text) | ({entry.text} if _is_secret(entry) else set())
            # A password that equals a user, a host or our own name is visible anyway.
            self.add(secret for secret in found if secret not in public)

    def learn_user(self, url: str) -> None:
        """Remember the user of a URL, in the places where clients and servers repeat it."""
        user_info = urlsplit(url).netloc.rpartition("@")[0]
        if user := unquote(user_info.partition(":")[0]):
            self.add((f"://{user_info}@", f'"{user}"', f"'{user}'", f"{user}@"))

    def add(self, secrets: Iterable[str]) -> None:
        """Remember some secrets; very short ones would blot out ordinary words and are left to the masks."""
        known = {*self._known, *(secret for secret in secrets if len(secret) >= SHORTEST)}
        # The longest first: a secret that is a part of another one would leave the rest in sight.
        self._known = sorted(known, key=len, reverse=True)

    def clean(self, text: str) -> str:
        """Return a message without any secret."""
        for secret in self._known:
            text = text.replace(secret, MASK)
        return "\n".join(mask_secret_url(line) for line in text.split("\n"))


def _is_secret(entry: SettingsEntry) -> bool:
    return is_secret_key(entry.path[-1])


REDACTOR: Final = Redactor()


class RedactingFormatter(logging.Formatter):
    """Formats a log record, traceback included, without any secret."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return REDACTOR.clean(super().format(record))
