"""The fast path passes its tests on a library that watches itself, which ends a run at a fault."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build
from tests.support.sanitized import ENDED, SANITIZERS, sanitized_environment

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, hatch_build.COMPILERS)), reason="this machine has no C compiler"
)
BEYOND = """\
#include "buffer.h"
#ifdef TS_VERSION
TS_API int ts_beyond(size_t at) {
  u8 bytes[8] = {0};
  ((volatile u8 *)bytes)[at] = 1;
  return bytes[0];
}
#endif
"""


def test_a_byte_beyond_what_is_ours_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "native"
    sources.mkdir()
    shutil.copy(hatch_build.SOURCES / "buffer.h", sources)
    (sources / "beyond.c").write_text(BEYOND)
    monkeypatch.setattr(hatch_build, "SOURCES", sources)
    library = tmp_path / "library.so"
    hatch_build.compile_library(library, *SANITIZERS)
    asked = [
        sys.executable,
        "-c",
        f"import ctypes; ctypes.CDLL({str(library)!r}).ts_beyond(ctypes.c_size_t(AT))",
    ]
    for at, code in ((7, 0), (8, ENDED)):
        words = [asked[0], asked[1], asked[2].replace("AT", str(at))]
        done = subprocess.run(words, env=sanitized_environment(library), check=False, capture_output=True)
        assert done.returncode == code, done.stderr.decode()[:2000]


@pytest.mark.long
def test_the_fast_path_passes_its_tests_on_such_a_library() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.sanitized"],
        cwd=hatch_build.HERE,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout.decode()[-5000:] + done.stderr.decode()[-5000:]
