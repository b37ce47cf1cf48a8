"""The C files: what they include and know, and what their library asks of a system."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

import hatch_build
from release_wheels import PLATFORMS, Platform, problems
from tests.house.test_architecture import NAMES
from twinstore.fast import library

if TYPE_CHECKING:
    from collections.abc import Iterator

NATIVE: Final = Path(__file__).parents[2] / "core/native"
FILES: Final = sorted(path.relative_to(NATIVE) for path in NATIVE.rglob("*.[ch]"))
INCLUDED: Final = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
LITERAL: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Those of C11, and what a processor and its compiler have.
HEADERS: Final = frozenset(
    {
        "cpuid.h",
        "float.h",
        "immintrin.h",
        "inttypes.h",
        "limits.h",
        "locale.h",
        "math.h",
        "stddef.h",
        "stdint.h",
        "stdio.h",
        "stdlib.h",
        "string.h",
    }
)
# The copier and the verifier are independent, so that a fault of one is not also a fault of the other.
APART: Final = (("copier", "verifier"), ("verifier", "copier"))
# What it may ask for besides functions of the C library: what a compiler adds to every library.
ADDED: Final = frozenset({"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"})
# What a compiler keeps of every library.
KEPT: Final = re.compile(r"completed\.\d+|__dso_handle|__TMC_END__")


def code(path: Path) -> str:
    """Return a file without its comments."""
    return COMMENT.sub(" ", (NATIVE / path).read_text("utf-8"))


def test_there_are_files_to_look_at() -> None:
    assert {Path("buffer.h"), Path("version.c")} <= set(FILES)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_includes_the_c_library_and_its_own_side(path: Path) -> None:
    for name in INCLUDED.findall((NATIVE / path).read_text("utf-8")):
        found = next((at for at in (path.parent / name, Path(name)) if at in FILES), None)
        assert found is not None or name in HEADERS, name
        for own, other in APART:
            if path.parts[0] == own and found is not None:
                assert found.parts[0] != other, name


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_knows_no_module_no_entity_and_no_field(path: Path) -> None:
    assert [text for text in LITERAL.findall(code(path)) if text in NAMES] == []


def test_an_include_a_name_and_a_comment_would_be_found() -> None:
    assert INCLUDED.findall('#include "copier/copier.h"\n  # include <stdlib.h>\n') == [
        "copier/copier.h",
        "stdlib.h",
    ]
    assert LITERAL.findall('f("tenantId", "\\"x");') == ["tenantId", '\\"x']
    assert "runs" not in COMMENT.sub(" ", 'f("x"); // "runs"\n/* "runs"\n */')


needs_library = pytest.mark.skipif(not library.LIBRARY.exists(), reason="no library was compiled here")


def symbols(*, defined: bool) -> Iterator[str]:
    """Yield the names that the library shows, or asks for."""
    table = ELFFile(BytesIO(library.LIBRARY.read_bytes())).get_section_by_name(".dynsym")
    assert isinstance(table, SymbolTableSection)
    for symbol in table.iter_symbols():
        if symbol.name and (symbol["st_shndx"] != "SHN_UNDEF") is defined:
            yield symbol.name


@needs_library
def test_the_library_shows_nothing_but_its_functions() -> None:
    found = set(symbols(defined=True))
    assert {"ts_version", "ts_buffer_new"} <= found
    assert [name for name in found if not name.startswith("ts_")] == []


@needs_library
def test_the_library_asks_for_the_c_library_only() -> None:
    libc = ctypes.CDLL(None)
    wanted = set(symbols(defined=False)) - ADDED
    assert wanted
    assert [name for name in wanted if name.startswith(("Py", "_Py")) or not hasattr(libc, name)] == []


@needs_library
def test_the_library_keeps_nothing_between_calls() -> None:
    """What it changes is the caller's alone, so that threads and forked processes need not wait for it."""
    read = ELFFile(BytesIO(library.LIBRARY.read_bytes()))
    table = read.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    names = [section.name for section in read.iter_sections()]
    changing = [
        symbol.name
        for symbol in table.iter_symbols()
        if isinstance(symbol["st_shndx"], int)
        and names[symbol["st_shndx"]] in {".data", ".bss", ".tdata", ".tbss"}
        and symbol["st_info"]["type"] in {"STT_OBJECT", "STT_TLS"}
        and not KEPT.fullmatch(symbol.name)
    ]
    assert changing == []


@needs_library
def test_what_a_wheel_for_others_may_not_ask_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    binary = library.LIBRARY.read_bytes()
    (own,) = (item for item in PLATFORMS if item.name == os.uname().machine)
    assert list(problems(binary, Platform(own.name, "EM_OTHER"))) == [f"it is for {own.machine}"]
    monkeypatch.setattr("release_wheels.GLIBC", (2, 0))
    monkeypatch.setattr("release_wheels.SYSTEM", set())
    found = list(problems(binary, own))
    assert "it needs libc.so.6" in found
    assert [text for text in found if text.startswith("it needs GLIBC_2.")]


def test_a_machine_with_a_compiler_has_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this a fault of the build would let the whole suite pass on the exact way alone."""
    monkeypatch.delenv(library.SWITCH, raising=False)
    if any(map(shutil.which, hatch_build.COMPILERS)):
        assert str(library.fast_path()) == "native"
    else:
        assert library.fast_path().reason.startswith("built without a C compiler")
