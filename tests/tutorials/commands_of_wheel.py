"""Runs commands one after the other in the environment of the wheel; answers a line of JSON for each."""

from __future__ import annotations

import io
import json
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout

from twinstore_backfill.cli import main

for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(json.loads(line))
        except SystemExit as error:
            code = error.code
        except BaseException:
            code = -1
            err.write(traceback.format_exc())
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
