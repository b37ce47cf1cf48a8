"""How many connections a command needs at most, said where a server lets it have no more."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from twinstore.errors import UnavailableError
from twinstore.fast.library import SWITCH, fast_path

if TYPE_CHECKING:
    from collections.abc import Iterator


def copy_needs(jobs: int) -> str:
    """Return how many connections a copy needs of each side."""
    # Each job may look at conflicting rows while its transaction is open.
    source, target = jobs + 1, 2 * jobs + 3
    return (
        f"A copy with --jobs {jobs} needs up to {source} connections of the source and {target} of the target"
        f"{fewer_jobs_hint(jobs)}"
    )


def verify_needs(jobs: int) -> str:
    """Return how many connections a verification needs of each side."""
    rows, less = 2 * jobs, fewer_jobs_hint(jobs)
    most = f"{rows} connections of each side"
    if fast_path().is_on:
        most = (
            f"{rows + readers_at_once(jobs) + 1} connections of each side, and with {SWITCH}=off up to {rows}"
        )
    return f"A verification with --jobs {jobs} needs up to {most}{less}"


def fewer_jobs_hint(jobs: int) -> str:
    """Return the end of the sentence."""
    return "." if jobs == 1 else "; with a smaller --jobs it needs fewer."


@contextmanager
def explain_connection_limit(needs: str) -> Iterator[None]:
    """Say what a command needs where it ends because a server has no connection left."""
    try:
        yield
    except UnavailableError as error:
        if not error.full:
            raise
        explained = UnavailableError(f"{error.message} {needs}", outcome=error.outcome, driver=error.driver)
        explained.full = True
        raise explained from error


# Connections of each side; one server gains nothing by more readers.
MOST_READERS: Final = 8


def readers_at_once(jobs: int) -> int:
    """Return how many threads read the digests of each side, each on its own connection."""
    return min(jobs, MOST_READERS)
