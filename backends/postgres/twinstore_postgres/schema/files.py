"""The migrations of a module as they are shipped: numbered SQL files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from psycopg import sql
from pydantic.alias_generators import to_pascal

from twinstore.migrations.migration import MigrationState, MigrationStatus

FILE_NAME: Final = re.compile(r"(?P<number>\d{3})_[a-z0-9_]+\.sql")
FIRST_RELEASE: Final = 100
ROLE_VARIABLE: Final = ':"application_role"'


@dataclass(frozen=True, slots=True)
class Migration:
    """One shipped file. ``release`` files run only on request."""

    name: str
    text: str

    @property
    def category(self) -> str:
        """``schema`` for 001-099, ``release`` for 100-199."""
        return "release" if int(self.name[:3]) >= FIRST_RELEASE else "schema"

    @property
    def planning_name(self) -> str:
        """The name in plans that are older than this library, such as ``V001_CreateSomeSchema``."""
        number, _, words = self.name.removesuffix(".sql").partition("_")
        return f"V{number}_{to_pascal(words)}"

    @property
    def checksum(self) -> str:
        """SHA-256 of the text as shipped, before the application role is put in."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def status(self) -> MigrationStatus:
        """What is shipped, as pending."""
        return MigrationStatus(
            name=self.name, category=self.category, checksum=self.checksum, state=MigrationState.PENDING
        )

    def rendered(self, role: str) -> str:
        """Return the SQL with the application role."""
        return self.text.replace(ROLE_VARIABLE, sql.Identifier(role).as_string())
