"""The programs of the sample service, as processes of their own with a clock and ids that a test decides.

python -m tests.service.programs serve 7        # on the listening socket 7
python -m tests.service.programs fire --every 0.05
python -m tests.service.programs work --tenant acme --id worker-a ...
"""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore import CanonicalJsonSerializer, Clock
from twinstore.scheduler import PolicyRunStats

if TYPE_CHECKING:
    from scheduler_service.worker import LogFunction
    from twinstore.scheduler import AuditEvent, PolicyRunJob

CLOCK: Final = "TEST_CLOCK"
# A job of this policy is never done by the worker that takes it first.
HELD: Final = "policy-held"


class FileClock(Clock):
    """Reads the time from a file, so that several processes have one clock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @override
    def now(self) -> datetime:
        return datetime.fromisoformat(self._path.read_text("ascii"))

    def set_to(self, instant: datetime) -> None:
        """Write the file in one step, because others read it meanwhile."""
        written = self._path.with_suffix(".new")
        written.write_text(instant.isoformat(), "ascii")
        written.replace(self._path)


def stamp(event: AuditEvent) -> AuditEvent:
    """Give an event an id that follows from its content."""
    return event.evolve(id=f"audit_{sha256(CanonicalJsonSerializer.serialize(event)).hexdigest()[:32]}")


def work(job: PolicyRunJob, say: LogFunction) -> PolicyRunStats:
    """Do the work, or hold it until this process is killed."""
    if job.policy_id == HELD and job.attempt_count == 1:
        Event().wait()
    say("evaluated")
    return PolicyRunStats(components=3, findings_written=1, duration_seconds=0.25)


def main() -> None:
    """Run one program."""
    program = sys.argv.pop(1)
    clock = FileClock(Path(os.environ[CLOCK]))
    # Imported where they are needed: a process starts in half the time without the others.
    if program == "serve":
        import uvicorn  # noqa: PLC0415

        from scheduler_service.app import create_app  # noqa: PLC0415
        from tests.service.serving import by_name  # noqa: PLC0415

        app = create_app(clock=clock, stamp=stamp, authenticate=by_name, metrics=True)
        with socket.socket(fileno=int(sys.argv[1])) as listener:
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
    elif program == "fire":
        from scheduler_service import firing  # noqa: PLC0415

        firing.main(clock)
    else:
        from scheduler_service import worker  # noqa: PLC0415

        sys.stdin.readline()  # the test says when
        worker.main(work, clock)


if __name__ == "__main__":
    main()
