"""``python -m twinstore_backfill`` is the command ``twinstore``."""

from __future__ import annotations

import sys

from twinstore_backfill.cli import main

if __name__ == "__main__":
    sys.exit(main())
