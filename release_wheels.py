"""Builds the wheels of a release into dist/ and checks what their libraries ask of a system: `make wheels`.

Zig compiles for each platform against the C library that its tag names, whatever this machine has.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipfile import ZipFile

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).resolve().parent
LIBRARY: Final = "twinstore/fast/libtwinstore.so.1"
GLIBC: Final = (2, 28)
# What every system of a manylinux tag has, as far as a library in C asks for it.
SYSTEM: Final = {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
SYMBOLS: Final = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Platform:
    """One wheel: what Zig and the format of libraries call its processor, which a tag calls the same."""

    name: str
    machine: str

    @property
    def tag(self) -> str:
        """The platform as the name of the wheel has it."""
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.name}"

    @property
    def compiler(self) -> str:
        """The command that compiles for it."""
        version = ".".join(map(str, GLIBC))
        return f"{shlex.quote(sys.executable)} -m ziglang cc -target {self.name}-linux-gnu.{version}"


PLATFORMS: Final = (Platform("x86_64", "EM_X86_64"), Platform("aarch64", "EM_AARCH64"))


def main() -> int:
    """Build each wheel, check it, and say where it is; return 1 where one is not what its tag says."""
    failed = False
    for platform in PLATFORMS:
        wheel = built(platform, HERE / "dist")
        with ZipFile(wheel) as packed:
            wrong = list(problems(packed.read(LIBRARY), platform))
        failed = failed or bool(wrong)
        print(f"{wheel.relative_to(HERE)}: {'; '.join(wrong) or 'is what its tag says'}")
    return int(failed)


def built(platform: Platform, folder: Path) -> Path:
    """Build the wheel of a platform into a folder; return where it is."""
    folder.mkdir(exist_ok=True)
    # A separate folder, because an earlier wheel may be in the other one.
    with tempfile.TemporaryDirectory(dir=folder) as own:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", own],
            cwd=HERE,
            env=os.environ | {"CC": platform.compiler, "TWINSTORE_WHEEL_PLATFORM": platform.tag},
            check=True,
        )
        (wheel,) = Path(own).glob(f"*-py3-none-{platform.tag}.whl")
        return wheel.replace(folder / wheel.name)


def problems(library: bytes, platform: Platform) -> Iterator[str]:
    """Say what a library asks for that a system of the tag may not have."""
    read = ELFFile(BytesIO(library))
    if read["e_machine"] != platform.machine:
        yield f"it is for {read['e_machine']}"
    for section in read.iter_sections():
        if isinstance(section, DynamicSection):
            needed = {tag.needed for tag in section.iter_tags("DT_NEEDED")}  # type: ignore[attr-defined]  # set by its kind
            yield from (f"it needs {name}" for name in sorted(needed - SYSTEM))
        if isinstance(section, GNUVerNeedSection):
            names = {symbol.name for _, symbols in section.iter_versions() for symbol in symbols}
            yield from (f"it needs {name}" for name in sorted(names) if not is_old_enough(name))


def is_old_enough(name: str) -> bool:
    """Check whether the C library of the tag has a version of symbols."""
    found = SYMBOLS.fullmatch(name)
    return found is not None and (int(found[1]), int(found[2])) <= GLIBC


if __name__ == "__main__":
    sys.exit(main())
