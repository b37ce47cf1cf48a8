"""A router of a sharded cluster, where the environment names one.

No wheel has ``mongos``, so a machine without it leaves out what needs it, and the summary of the run says so.
``TWINSTORE_TEST_MONGOS`` is the URL of a router of two or more shards, with a user who may shard and move.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "TWINSTORE_TEST_MONGOS"
URL: Final = os.environ.get(VARIABLE) or None
SKIP_NOTE: Final = f"{VARIABLE} names no router, so nothing was read through one."
