"""Plants each fault of :mod:`tests.own_driver_mutants` into the sample driver and lets the kit look for it.

    python -m tests.plant_mutants [words of its name ...]

Prints ``N of N found``. Ends with 1 when one survives, or when the cases fail without any fault.
"""

from __future__ import annotations

import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tests.outsiders import SAMPLES, installed
from tests.own_driver_mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.outsiders import Outsider
    from tests.own_driver_mutants import Mutant

FOLDER: Final = SAMPLES / "own_driver"
AT_ONCE: Final = 2
# Of pytest: some tests failed, and it could run them. Anything else is a fault that was planted wrongly.
FAILED: Final = 1
FOUND: Final = re.compile(r"^(?:FAILED|ERROR) .*::(test_\w+)", re.MULTILINE)
NO_PYTHON: Final = re.compile(r"(?:Name|Syntax|Indentation|Import|ModuleNotFound|UnboundLocal)Error: .*")
KIT: Final = ("pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-c", "pyproject.toml", "--tb=line")


def planted(mutant: Mutant, folder: Path) -> None:
    """Put a fault into a copy of the sample.

    Raises:
        ValueError: its text is not there exactly once; the driver has changed, and so must the fault.
    """
    path = folder / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has its text {text.count(mutant.old)} times")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def looked_for(outsider: Outsider, mutant: Mutant) -> tuple[str, str]:
    """Run the cases that are to find a fault; return the one that failed, and the end of what was printed.

    Raises:
        ValueError: the fault is not Python, or uses names that are not there.
    """
    with TemporaryDirectory() as directory:
        folder = Path(directory) / FOLDER.name
        shutil.copytree(FOLDER, folder)
        planted(mutant, folder)
        result = replace(outsider, folder=folder).run(*KIT, "-k", mutant.cases)
    shown = result.stdout + result.stderr
    if wrong := NO_PYTHON.search(shown):
        raise ValueError(f"{mutant.name}: {wrong[0]}")
    failed = FOUND.search(shown) if result.returncode == FAILED else None
    return failed[1] if failed else "", shown[-600:]


def main(words: Sequence[str]) -> int:
    """Plant the chosen faults, all without a choice."""
    chosen = [item for item in MUTANTS if all(word in item.name for word in words)]
    with TemporaryDirectory() as directory, ThreadPoolExecutor(AT_ONCE) as pool:
        outsider = installed(FOLDER, Path(directory) / "venv")
        cases = " or ".join(sorted({f"({item.cases})" for item in chosen}))
        control = outsider.run(*KIT, "-k", cases)
        if control.returncode != 0:
            sys.stdout.write(f"Without any fault:\n{control.stdout[-2000:]}\n{control.stderr[-500:]}\n")
            return 1
        results = list(pool.map(lambda item: looked_for(outsider, item), chosen))
    for mutant, (found, end) in zip(chosen, results, strict=True):
        told = f"found: {mutant.name}\n       by {found}" if found else f"SURVIVED: {mutant.name}\n{end}"
        sys.stdout.write(f"{told}\n")
    number = sum(bool(found) for found, _ in results)
    sys.stdout.write(f"{number} of {len(chosen)} found\n")
    return int(number != len(chosen) or not chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
