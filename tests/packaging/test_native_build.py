"""What compiles the library and what loads it: no fault ends an installation, and no stale one is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import hatch_build
from tests.support.distributions import ROOT, built_wheel
from twinstore.fast import library
from twinstore.fast.sources import source_version

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.long

# Writes down what it was given, and something in the place of a library.
PRETENDING: Final = """\
#!/bin/sh
printf '%s\\n' "$@" >"{folder}/arguments"
while [ "$1" != -o ]; do shift; done
echo library >"$2"
"""
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, hatch_build.COMPILERS)), reason="this machine has no C compiler"
)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the two C files of every library, alone; the build and the loader check them."""
    folder = tmp_path / "native"
    folder.mkdir()
    for name in ("buffer.h", "buffer.c", "version.c"):
        shutil.copy(hatch_build.SOURCES / name, folder)
    place = tmp_path / "fast"
    place.mkdir()
    shutil.copy(hatch_build.IN_PLACE / "sources.py", place)
    monkeypatch.setattr(hatch_build, "SOURCES", folder)
    monkeypatch.setattr(hatch_build, "IN_PLACE", place)
    monkeypatch.setattr(library, "SOURCES", folder)
    monkeypatch.setattr(library, "LIBRARY", place / hatch_build.LIBRARY)
    monkeypatch.setattr(library, "REASON", place / hatch_build.REASON)
    for name in ("CC", "CFLAGS", "LDFLAGS", library.SWITCH):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def pretending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Replace the compiler by a program; return a function that reads its arguments."""
    compiler = tmp_path / "own compiler"
    compiler.write_text(PRETENDING.format(folder=tmp_path))
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", f"'{compiler}' --its-own")
    return lambda: (tmp_path / "arguments").read_text().splitlines()


def loaded() -> str:
    """Return what the loader says in a process that begins now."""
    return str(library._loaded.__wrapped__())  # noqa: SLF001  # the loader looks once in the life of a process


def left_in(sources: Path) -> set[str]:
    return {path.name for path in (sources.parent / "fast").iterdir() if path.name != "__pycache__"}


@pytest.mark.usefixtures("sources")
def test_the_user_names_the_compiler_and_adds_to_its_flags(
    pretending: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFLAGS", "-O1 -DNAME='two words'")
    monkeypatch.setenv("LDFLAGS", "-Wl,-z,now")
    assert hatch_build.compiled_in_place() is None
    given = pretending()
    assert given[0] == "--its-own"
    # Behind ours, so that the user has the last word.
    assert given.index("-O3") < given.index("-O1")
    assert "-DNAME=two words" in given
    assert given[-1] == "-Wl,-z,now"
    assert not [flag for flag in given if flag.startswith(("-march", "-mtune", "-mcpu"))]
    # No folder of this machine gets into a library.
    assert [name for name in given if name.endswith(".c")] == ["buffer.c", "version.c"]


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"CC": "no-such-compiler"}, "built without a C compiler: CC names no-such-compiler"),
        ({"CC": "'cc"}, "CC cannot be read: No closing quotation"),
        ({"CC": "true", "CFLAGS": "'"}, "CFLAGS cannot be read: No closing quotation"),
        ({"CC": "false"}, "the C compiler failed: false ended with 1"),
        # It ends with 0 and has made nothing.
        ({"CC": "true"}, "the C compiler failed: true ended with 0"),
        ({"PATH": ""}, "built without a C compiler: none of cc, gcc and clang is in PATH"),
    ],
    ids=str,
)
def test_what_keeps_it_from_being_compiled_is_kept_for_the_doctor(
    variables: dict[str, str], reason: str, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sources.parent / "fast" / hatch_build.LIBRARY).write_text("an older one")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if "CC" not in variables:
        monkeypatch.delenv("CC", raising=False)
    found = hatch_build.compiled_in_place()
    assert found is not None
    assert found.startswith(reason)
    assert loaded() == f"off ({found})"
    assert left_in(sources) == {"sources.py", hatch_build.REASON}


@pytest.mark.usefixtures("sources")
def test_a_compiler_that_cannot_be_started_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "cc"
    broken.write_text("no program")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    found = hatch_build.compiled_in_place()
    assert found is not None
    assert found.startswith("the C compiler cannot be run:")


def test_a_folder_that_cannot_be_written_to_ends_nothing(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hatch_build, "IN_PLACE", sources / "not there")
    found = hatch_build.compiled_in_place()
    assert found is not None
    assert "cannot be written to" in found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("In file included from a.c:1:\na.h:5:10: fatal error: x.h: No such file\n", "a.h:5:10: fatal error"),
        ("\n  what is this?\n", "what is this?"),
        ("", ""),
        ("error: " + "x" * 1000, "error: xxx"),
    ],
)
def test_of_a_long_complaint_the_line_that_says_it_is_kept(text: str, line: str) -> None:
    found = hatch_build.first_complaint(text)
    assert found.startswith(line)
    assert len(found) <= 300


@needs_compiler
def test_a_library_of_other_sources_is_not_used(sources: Path) -> None:
    assert loaded() == "off (the library is not compiled; run: make setup)"
    assert hatch_build.compiled_in_place() is None
    assert hatch_build.is_current()
    assert loaded() == "native"
    # As `git pull` does.
    (sources / "buffer.c").write_text((sources / "buffer.c").read_text() + "\n")
    assert not hatch_build.is_current()
    assert loaded() == "off (the library is of another version; run: make setup)"
    # An installation from a wheel has no sources, and the library that came with it.
    shutil.rmtree(sources)
    assert loaded() == "native"


@needs_compiler
def test_a_library_without_a_function_is_not_used(sources: Path) -> None:
    """As where only the Python files of an installation were replaced."""
    (sources / "buffer.c").unlink()
    assert hatch_build.compiled_in_place() is None
    assert loaded() == "off (the library is of another version; run: make setup)"
    shutil.rmtree(sources)
    assert loaded() == "off (the library is of another version; install twinstore again)"


@needs_compiler
@pytest.mark.usefixtures("sources")
def test_a_library_for_another_processor_is_not_used() -> None:
    assert hatch_build.compiled_in_place() is None
    binary = bytearray(library.LIBRARY.read_bytes())
    binary[18] ^= 0xFF  # of the number of the processor in the head of the file
    library.LIBRARY.write_bytes(binary)
    assert loaded() == "off (the library is for another kind of processor; run: make setup)"
    assert not hatch_build.is_current()


def test_nothing_is_loaded_from_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packages.zip"
    archive.touch()
    folder = archive / "twinstore" / "fast"
    monkeypatch.setattr(library, "LIBRARY", folder / hatch_build.LIBRARY)
    monkeypatch.setattr(library, "REASON", folder / hatch_build.REASON)
    assert loaded() == f"off (no library can be loaded from an archive, as {archive} is)"


@pytest.mark.usefixtures("sources")
def test_what_is_no_library_is_not_used() -> None:
    library.LIBRARY.write_text("no library")
    assert loaded().startswith("off (the library cannot be loaded:")


@needs_compiler
def test_a_library_that_is_cut_short_is_not_loaded(sources: Path) -> None:
    """The loader of the system would end the process at the first byte that is not there."""
    assert hatch_build.compiled_in_place() is None
    whole = library.LIBRARY.read_bytes()
    for size in (100, len(whole) // 2, len(whole) - 1):
        library.LIBRARY.write_bytes(whole[:size])
        assert loaded() == "off (the library is cut short; run: make setup)"
        assert not hatch_build.is_current()
    shutil.rmtree(sources)
    assert loaded() == "off (the library is cut short; install twinstore again)"


@needs_compiler
def test_builds_at_the_same_time_leave_one_whole_library(sources: Path) -> None:
    """None of those who load it meanwhile sees a part of one: at each moment it is all there."""
    assert hatch_build.compiled_in_place() is None
    whole = library.LIBRARY.read_bytes()
    with ThreadPoolExecutor(4) as threads:
        builds = [threads.submit(hatch_build.compiled_in_place) for _ in range(8)]
        while not all(build.done() for build in builds):
            assert library.LIBRARY.read_bytes() == whole
    assert [build.result() for build in builds] == [None] * 8
    assert left_in(sources) == {"sources.py", hatch_build.LIBRARY}


def test_the_digest_covers_names_and_contents(tmp_path: Path) -> None:
    def digest(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            path = folder / name.replace("_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return source_version(folder)

    assert digest(a_c="x", b_h="y") == digest(b_h="y", a_c="x")
    versions = [digest(a_c="x"), digest(a_h="x"), digest(b_c="x"), digest(a_c="y"), digest(a_c="x", b_c="")]
    assert len(set(versions)) == len(versions)
    assert digest(a_c="x", notes_md="z") == versions[0]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("off", "off (TWINSTORE_FAST_PATH=off)"),
        (" OFF ", "off (TWINSTORE_FAST_PATH=off)"),
        ("0", "off (TWINSTORE_FAST_PATH='0' is not on or off)"),
        ("a\nb", r"off (TWINSTORE_FAST_PATH='a\nb' is not on or off)"),
    ],
)
def test_the_switch_turns_it_off(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.SWITCH, value)
    assert str(library.fast_path()) == said
    assert library.library() is None


@pytest.mark.parametrize("value", ["", "on", "On"])
def test_the_switch_leaves_it_on(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.SWITCH, raising=False)
    usual = str(library.fast_path())
    monkeypatch.setenv(library.SWITCH, value)
    assert str(library.fast_path()) == usual


def test_a_wheel_for_others_is_not_built_without_its_library(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        built_wheel(tmp_path, {hatch_build.PLATFORM: "manylinux_2_28_x86_64", "CC": "false"})
    assert "the C compiler failed: false ended with 1" in raised.value.stdout
    assert not list(tmp_path.glob("*.whl"))


@needs_compiler
def test_make_setup_compiles_what_is_stale_and_says_what_it_cannot() -> None:
    """On the real sources, which are current: what it would do otherwise is the tests above."""
    command = [sys.executable, "hatch_build.py", "--stale"]
    before = library.LIBRARY.stat()
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert os.path.samestat(before, library.LIBRARY.stat())
