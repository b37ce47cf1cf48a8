"""The options of a benchmark."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.groups import FURTHER, GROUPS
from benchmarks.page import PAGE
from benchmarks.peers.groups import PEER_GROUPS, WORKERS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Options", "parse"]

SIZES = (50_000, 200_000, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a benchmark; see ``--help``."""

    runs: int
    documents: int
    operations: int
    entity_megabytes: float
    sizes: tuple[int, ...]
    jobs: int
    only: tuple[str, ...]
    workers: tuple[int, ...]
    seconds: float
    minutes: float
    directory: Path
    durable: bool
    profile: bool
    page: bool

    def of(self, group: str) -> Options:
        """Return the options of one group."""
        extent = PAGE.get(group) if self.page else None
        if extent is None:
            return self
        documents = min(self.documents, extent.documents or self.documents)
        return replace(self, runs=extent.runs, documents=documents)


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line."""
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--runs", type=int, default=5, help="rounds in which all cases take their turn (%(default)s)")
    add("--documents", type=int, default=200_000, help="runs to copy and verify (%(default)s)")
    add("--operations", type=int, default=2_000, help="single operations per case and round (%(default)s)")
    add("--entity-megabytes", type=float, default=24, help="JSON of each entity (%(default)s)")
    add("--sizes", type=int, nargs="+", default=SIZES, help="documents of the group scale (50k 200k 1m)")
    add("--jobs", type=int, default=2, help="--jobs of the command line (%(default)s)")
    some = f"groups to measure (all but {', '.join(FURTHER)})"
    add("--only", nargs="+", choices=[*GROUPS, *FURTHER], help=some)
    add("--page", action="store_true", help="what docs/benchmarks.md shows, with rounds for each group")
    add("--peers", action="store_true", help="only what stands beside other libraries; loads no documents")
    add("--workers", type=int, nargs="+", default=WORKERS, help="worker processes of these groups (1 4 16)")
    add("--seconds", type=float, default=0.4, help="of a slice of these groups, at most (%(default)s)")
    add("--minutes", type=float, default=inf, help="for all groups; no round is begun after it (no limit)")
    add("--directory", type=Path, default=Path(".bench"), help="servers and results (%(default)s)")
    add("--durable", action="store_true", help="start PostgreSQL with fsync and synchronous_commit")
    add("--profile", action="store_true", help="also write what the threads of each candidate do; slows it")
    given = vars(parser.parse_args(arguments))
    given["only"] = given["only"] or list(PAGE if given["page"] else GROUPS)
    if given.pop("peers"):
        given["only"] = [name for name in given["only"] if name in PEER_GROUPS]
    several = {name: tuple(given[name]) for name in ("only", "workers", "sizes")}
    return Options(**{**given, **several})
