"""Compiles the native library of the fast path, where the machine has a C compiler.

The build of a wheel puts the library into the wheel, which then belongs to one platform, but to every Python,
because the library is loaded by ctypes. An editable installation has it next to the package that loads it.
Nothing here aborts an installation. Without a compiler, or with one that fails, everything works, but slower,
and a file next to the package says why, for `twinstore doctor`. ``CC``, ``CFLAGS`` and ``LDFLAGS`` are
honoured.

As a script it compiles in place, for developers of the C files:

    python hatch_build.py             # `make native`; warnings are errors
    python hatch_build.py --stale     # `make setup`; only if the library is of other sources
"""

from __future__ import annotations

import ctypes
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # as a script, where the build backend is not installed
    BuildHookInterface = object  # type: ignore[assignment,misc]

HERE: Final = Path(__file__).resolve().parent
SOURCES: Final = HERE / "core" / "native"
PACKAGE: Final = Path("twinstore", "fast")
IN_PLACE: Final = HERE / "core" / PACKAGE
LIBRARY: Final = "libtwinstore.so.1"
REASON: Final = "libtwinstore.txt"
# The platform of a wheel for others, as its tag names it. Its library must be in it, or there is no wheel.
PLATFORM: Final = "TWINSTORE_WHEEL_PLATFORM"
COMPILERS: Final = ("cc", "gcc", "clang")
FLAGS: Final = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")
# It reads the bytes of a database: a fault should end the process rather than be exploitable.
HARDENING: Final = ("-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2")
LONGEST_COMPILATION: Final = 600
LONGEST_REASON: Final = 300


class NotCompiledError(Exception):
    """Why there is no library, in words for `twinstore doctor`."""


class NativeHook(BuildHookInterface):  # type: ignore[type-arg]  # of a configuration that is not read
    """Puts the library into a wheel, or next to the package of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; where that is not possible, say why and go on."""
        if self.target_name != "wheel":
            return
        if version == "editable":
            if (reason := compiled_in_place()) is not None:
                self._tell(reason)
            return
        # Not in place: this checkout may be installed, and its library be in use.
        self._folder = tempfile.TemporaryDirectory(prefix="twinstore-native-")
        folder = Path(self._folder.name)
        try:
            compile_library(folder / LIBRARY)
        except NotCompiledError as error:
            if os.environ.get(PLATFORM):
                raise
            (folder / REASON).write_text(f"{error}\n", encoding="utf-8")
            self._tell(str(error))
        else:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform()}"
        for path in folder.iterdir():
            build_data["force_include"][str(path)] = (PACKAGE / path.name).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        del version, build_data, artifact_path
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _tell(self, reason: str) -> None:
        self.app.display_warning(f"twinstore is installed without its fast path, which needs C: {reason}")


def platform() -> str:
    """Return the platform for the tag of a wheel."""
    given = os.environ.get(PLATFORM)
    if given:
        return given
    from packaging.tags import platform_tags  # noqa: PLC0415  # comes with the build backend only

    # The others promise that it runs on older systems, too, which is not checked here.
    return next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))


def compiled_in_place(*extra: str) -> str | None:
    """Compile the library next to its package; return why that was not possible."""
    reason = IN_PLACE / REASON
    try:
        # In the same folder, because only there a file takes the place of another one in one step. A process
        # that has the old one open keeps it.
        with tempfile.TemporaryDirectory(prefix=f"{LIBRARY}.", dir=IN_PLACE) as folder:
            made = Path(folder, LIBRARY)
            compile_library(made, *extra)
            made.replace(IN_PLACE / LIBRARY)
        reason.unlink(missing_ok=True)
    except NotCompiledError as error:
        # A library of other sources would only be refused, for a reason that is not the cause.
        (IN_PLACE / LIBRARY).unlink(missing_ok=True)
        reason.write_text(f"{error}\n", encoding="utf-8")
        return str(error)
    except OSError as error:
        return f"{IN_PLACE} cannot be written to: {error}"
    return None


def compile_library(path: Path, *extra: str) -> None:
    """Compile the C files into a library.

    Raises:
        NotCompiledError: there is no compiler, or it fails.
    """
    command = compiler()
    sources = sorted(str(found.relative_to(SOURCES)) for found in SOURCES.rglob("*.c"))
    version = f'-DTS_VERSION="{source_version()}"'
    arguments = [*FLAGS, *HARDENING, *extra, *given("CFLAGS"), "-I.", version, "-o", str(path), *sources]
    try:
        done = subprocess.run(  # noqa: S603  # the compiler that the user names, and no shell
            [*command, *arguments, "-lm", *given("LDFLAGS")],
            # Its messages, and what it writes down of the sources, name no folder of this machine.
            cwd=SOURCES,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_COMPILATION,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotCompiledError(f"the C compiler cannot be run: {error}") from error
    sys.stderr.write(done.stderr)
    if done.returncode or not path.is_file():
        complaint = first_complaint(done.stderr) or f"{command[0]} ended with {done.returncode}"
        raise NotCompiledError(f"the C compiler failed: {complaint}")


def compiler() -> list[str]:
    """Return the command of the compiler: that of ``CC``, or else the first that there is.

    Raises:
        NotCompiledError: there is none.
    """
    if command := given("CC"):
        if shutil.which(command[0]) is None:
            raise NotCompiledError(f"built without a C compiler: CC names {command[0]}, which is not in PATH")
        return command
    for name in COMPILERS:
        if shutil.which(name) is not None:
            return [name]
    raise NotCompiledError("built without a C compiler: none of cc, gcc and clang is in PATH")


def given(variable: str) -> list[str]:
    """Return the words of an environment variable.

    Raises:
        NotCompiledError: it cannot be read.
    """
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise NotCompiledError(f"{variable} cannot be read: {error}") from error


def first_complaint(text: str) -> str:
    """Return the line of a compiler's messages that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The lines before it may only show which file included which.
    found = next((line for line in lines if "error" in line.casefold()), lines[0] if lines else "")
    return found[:LONGEST_REASON]


def source_version() -> str:
    """Return the digest of the C files, by the function that the package compares it with."""
    found: str = of_package("source_version")(SOURCES)
    return found


def of_package(name: str) -> Any:  # noqa: ANN401  # a function
    """Return a function of the package, which need not be installed."""
    return runpy.run_path(str(IN_PLACE / "sources.py"))[name]


def is_current() -> bool:
    """Check whether the library in place was built from these sources."""
    try:
        if of_package("is_cut_short")(IN_PLACE / LIBRARY):
            return False
        function = ctypes.CDLL(str(IN_PLACE / LIBRARY)).ts_version
    except (OSError, AttributeError):
        return False
    function.restype = ctypes.c_char_p
    return bool(function() == source_version().encode())


def main() -> int:
    """Compile in place; return 1 where that failed and nothing but that was asked for."""
    if_stale = sys.argv[1:] == ["--stale"]
    if if_stale and is_current():
        return 0
    reason = compiled_in_place(*(() if if_stale else ("-Werror",)))
    if reason is not None:
        print(f"The fast path is off, everything works without it: {reason}", file=sys.stderr)  # noqa: T201
    return int(reason is not None and not if_stale)


if __name__ == "__main__":
    sys.exit(main())
