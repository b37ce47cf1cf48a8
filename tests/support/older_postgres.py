"""A second PostgreSQL, older than that of the wheel, where the machine has one.

Distributions install it (``apt-get install postgresql-15``). A machine without it leaves out what needs it,
and the summary of the run says so. Taken is the oldest from 14 on, or the one with the ``initdb`` in the
folder ``TWINSTORE_TEST_OLDER_POSTGRES``.
"""

from __future__ import annotations

import os
import re
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import twinstore_embedded
from tests.support.databases import PostgresServer
from twinstore_embedded.binaries import POSTGRES_VARIABLE
from twinstore_postgres.connection.target import OLDEST_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

# The folder of initdb, pg_ctl and postgres, or an empty text for a run without.
VARIABLE: Final = "TWINSTORE_TEST_OLDER_POSTGRES"
INSTALLED: Final = Path("/usr/lib/postgresql")
OF_THE_WHEEL: Final = 18
SKIP_NOTE: Final = "No PostgreSQL older than that of the wheel is installed, so nothing was run on one."


def found_programs() -> Path | None:
    """Return the folder of the programs: the one that is named, else the oldest that we support."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    folders = {
        int(folder.parent.name): folder
        for folder in INSTALLED.glob("*/bin")
        if re.fullmatch(r"\d+", folder.parent.name) and (folder / "initdb").exists()
    }
    wanted = range(OLDEST_VERSION // 10_000, OF_THE_WHEEL)
    return next((folders[version] for version in sorted(folders) if version in wanted), None)


PROGRAMS: Final = found_programs()


@contextmanager
def running_older_postgres(directory: Path) -> Iterator[PostgresServer]:
    """Run the server in a directory until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(POSTGRES_VARIABLE, str(PROGRAMS))
        server = twinstore_embedded.start_postgres(directory / "data", durable=False, owned=True)
    try:
        with closing(PostgresServer(server.superuser_url(), directory)) as opened:
            yield opened
    finally:
        server.stop()
