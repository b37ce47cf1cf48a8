"""Whether native code accepts only what the product accepts, and makes the same of it.

``python -m tests.fast.fuzz --documents N --seed S`` tries as many documents as are asked for and prints what
became of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from tests.fast.exact_way import Oracle
from tests.fast.generating import Generator
from tests.fast.mutating import Mutator
from tests.fast.programs import programs
from twinstore.fast.library import fast_path
from twinstore_mongo.bulk.records import documents_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.fast.program import Program

__all__ = ["Fault", "Outcome", "Taken", "fuzz", "mutants", "taken"]

# Rows that documents of one entity are changed from.
BASES: Final = 60
BATCH: Final = 4_000


@dataclass(frozen=True, slots=True)
class Taken:
    """A document that native code accepted, with the row that it made."""

    raw: bytes
    row: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """A document that native code accepted and should not have, or not so."""

    name: str
    raw: bytes
    problem: str

    def __str__(self) -> str:
        """Return what a failing test says."""
        return f"{self.name}: {self.problem}\n  bytes.fromhex('{self.raw.hex()}')"


@dataclass(slots=True)
class Outcome:
    """What became of the documents."""

    counts: Counter[str] = field(default_factory=Counter[str])
    faults: list[Fault] = field(default_factory=list[Fault])


def taken(program: Program, raws: Sequence[bytes]) -> list[Taken]:
    """Return the documents that native code accepts by a program, with their rows."""
    library = fast_path().library
    assert library is not None, str(fast_path())
    documents = documents_of(library, program)
    assert documents is not None
    joined = b"".join(raws)
    found = documents.read(joined)
    assert found is not None
    rows, places = found.rows.tobytes(), memoryview(found.places).cast("I")
    ends = [*places[3::3], len(rows)]
    return [
        Taken(joined[places[at + 1] : places[at + 1] + places[at + 2]], rows[places[at] : ends[at // 3]])
        for at in range(0, len(places), 3)
    ]


def mutants(program: Program, random: Random, count: int, *, bases: int = BASES) -> Iterator[bytes]:
    """Yield changed documents of an entity, each changed from one of a few."""
    generator = Generator(program, random)
    mutator = Mutator(program, [generator.document() for _ in range(bases)], random)
    for _ in range(count):
        yield mutator.mutant()


def fuzz(documents: int, seed: int, *, names: Sequence[str] = ()) -> Outcome:
    """Try changed documents of all entities, or of some, about as many of each."""
    found = {name: program for name, program in programs().items() if not names or name in names}
    outcome = Outcome()
    share = -(-documents // len(found))
    for name, program in found.items():
        left = share
        while left > 0:
            count = min(left, BATCH)
            _try(name, program, list(mutants(program, Random(f"{seed} {name} {left}"), count)), outcome)
            left -= count
    return outcome


def _try(name: str, program: Program, raws: list[bytes], outcome: Outcome) -> None:
    oracle = Oracle(program)
    accepted = taken(program, raws)
    outcome.counts["documents"] += len(raws)
    outcome.counts["accepted"] += len(accepted)
    for item in accepted:
        problem = oracle.wrong(item.raw, item.row)
        if problem:
            outcome.faults.append(Fault(name, item.raw, problem))


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "names", nargs="*", help="entities such as scheduler.runs; default: all with a program"
    )
    arguments = parser.parse_args()
    outcome = fuzz(arguments.documents, arguments.seed, names=arguments.names)
    counts = outcome.counts
    print(  # noqa: T201  # its answer
        f"{counts['documents']:,} documents, {counts['accepted']:,} accepted, {len(outcome.faults):,} faults"
    )
    for fault in outcome.faults[:20]:
        print(fault)  # noqa: T201  # as above
    return bool(outcome.faults)


if __name__ == "__main__":
    sys.exit(main())
