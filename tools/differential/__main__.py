"""Search for calls after which two drivers differ; exit with 1 if any were found.

It runs tests/drivers/agreement, on its own servers, with more and longer examples than ``make test-long``.
A failing example is shortened as far as possible and printed. Further arguments go to pytest.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES: Final = "TWINSTORE_DIFFERENTIAL_EXAMPLES"
MACHINES: Final = ("access", "drivers", "locks", "odd_arguments")
TESTS: Final = Path(__file__).parents[2] / "tests" / "drivers" / "agreement"


def main(given: Sequence[str] | None = None) -> int:
    """Search; return the code of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tools.differential", description=__doc__)
    parser.add_argument("--examples", type=int, default=5000, help="of each machine; rivals draw half")
    parser.add_argument("--seed", help="an example that failed before comes first all the same")
    parser.add_argument("--only", choices=MACHINES, help="this machine alone")
    options, further = parser.parse_known_args(given)
    os.environ[EXAMPLES] = str(options.examples)
    names = (options.only,) if options.only else MACHINES
    seed = [] if options.seed is None else [f"--hypothesis-seed={options.seed}"]
    return int(pytest.main([*(str(TESTS / f"test_{name}.py") for name in names), "--long", *seed, *further]))


if __name__ == "__main__":
    sys.exit(main())
