"""Runs commands one after the other in the environment of the wheel; answers a line of JSON for each."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from twinstore_backfill.cli import main

for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(json.loads(line))
    sys.stdout.write(f"{json.dumps([code, out.getvalue(), err.getvalue()])}\n")
