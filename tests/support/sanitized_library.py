"""A plugin of pytest, for tests.support.sanitized: lets the loader find the library that watches itself.

It is loaded before any test is, and with it before anything asks for the library.
"""

from __future__ import annotations

import os
from pathlib import Path

from twinstore.fast import library

VARIABLE = "TWINSTORE_SANITIZED_LIBRARY"

if VARIABLE in os.environ:
    library.LIBRARY = Path(os.environ[VARIABLE])  # type: ignore[misc]  # constant for everybody else
    if not library.fast_path().is_on:
        message = f"the library with the sanitizers is not used: {library.fast_path().reason}"
        raise AssertionError(message)
