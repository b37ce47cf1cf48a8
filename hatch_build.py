"""Compiles the native library beside the package that loads it, where the machine has a C compiler.

    python hatch_build.py            # for whoever changes the C files
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script, without the build backend
    BuildHookInterface = object  # type: ignore[assignment,misc]

HERE: Final = Path(__file__).parent
SOURCES: Final = HERE / "core" / "native"
LIBRARY: Final = HERE / "core" / "twinstore" / "fast" / "libtwinstore.so"
FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


class NativeHook(BuildHookInterface):
    """Adds the library to a wheel, or builds it in place for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a machine without a compiler gets a wheel without the library."""
        del version
        if compiled():
            build_data["pure_python"] = False
            build_data["artifacts"].append(str(LIBRARY.relative_to(HERE)))


def compiled() -> bool:
    """Compile the library and tell whether that worked."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        return False
    new = LIBRARY.with_suffix(f".{os.getpid()}")
    sources = sorted(map(str, SOURCES.rglob("*.c")))
    done = subprocess.run([*compiler, *FLAGS, f"-I{SOURCES}", "-o", str(new), *sources], check=False)
    if done.returncode:
        return False
    # At once, because another process may have the old one open.
    new.replace(LIBRARY)
    return True


if __name__ == "__main__":
    sys.exit(not compiled())
