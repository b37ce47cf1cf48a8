"""Runs the tests of the fast path on a library that watches itself: `make native-sanitized`.

The sanitizers for addresses and for undefined behaviour end the process at the first byte that is read or
written outside of our memory, and at the first overflow. A run that ends well has met none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import hatch_build
from tests.support.sanitized_library import VARIABLE

SANITIZERS: Final = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
    "-O1",
    # Its checks would come before those of the sanitizers and say less.
    "-U_FORTIFY_SOURCE",
)
# The code of a process that a sanitizer ended.
ENDED: Final = 99
# Python keeps objects to its end, which is no leak of ours.
ADDRESS_OPTIONS: Final = f"detect_leaks=0:abort_on_error=0:exitcode={ENDED}:allocator_may_return_null=1"
UNDEFINED_OPTIONS: Final = f"print_stacktrace=1:halt_on_error=1:exitcode={ENDED}"
TESTS: Final = ("tests/unit/fast",)


def main() -> int:
    """Compile, run the tests that are named, or all of the fast path, and return the code of pytest."""
    with tempfile.TemporaryDirectory(prefix="twinstore-sanitized-") as folder:
        library = Path(folder, hatch_build.LIBRARY)
        hatch_build.compile_library(library, *SANITIZERS, "-Werror")
        return subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-n", "0", "-p", "tests.support.sanitized_library"),
                *(sys.argv[1:] or TESTS),
            ],
            cwd=hatch_build.HERE,
            env=sanitized_environment(library),
            check=False,
        ).returncode


def sanitized_environment(library: Path) -> dict[str, str]:
    """Return the environment in which a process can load the library."""
    return os.environ | {
        VARIABLE: str(library),
        "LD_PRELOAD": runtime(),
        "ASAN_OPTIONS": ADDRESS_OPTIONS,
        "UBSAN_OPTIONS": UNDEFINED_OPTIONS,
    }


def runtime() -> str:
    """Return where the library of the sanitizers is, which must be in the process before all others."""
    command = [*hatch_build.compiler(), "-print-file-name=libasan.so"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(found).is_absolute():
        sys.exit("This compiler brings no libasan.so; name GCC: CC=gcc make native-sanitized")
    return found


if __name__ == "__main__":
    sys.exit(main())
