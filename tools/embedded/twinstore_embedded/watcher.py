"""``python -m twinstore_embedded.watcher HOME PID``: stop a server when its owner has ended.

Standard input is a pipe that only the owner holds; its end is the end of the owner.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(home: Path, owner: int) -> None:
    """Wait for the end of the owner and stop the server, unless another process took it over meanwhile."""
    sys.stdin.buffer.read()
    # Imported late: a watcher that only waits should cost next to nothing.
    from twinstore_embedded.lifecycle import stop_orphan  # noqa: PLC0415

    stop_orphan(home, owner)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
