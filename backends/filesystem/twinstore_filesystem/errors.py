"""What the errors of the operating system mean to a caller."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from twinstore.errors import ConfigurationError, Outcome, TwinstoreError, UnavailableError

DRIVER: Final = "Filesystem"
FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
FULL: Final = frozenset({errno.EDQUOT, errno.EFBIG, errno.ENOSPC})
# ENXIO is what a socket answers, and ENODEV a device that is not there.
NOT_OURS: Final = frozenset(
    {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EMLINK, errno.ENXIO, errno.ENODEV}
)


@contextmanager
def translated(path: Path, outcome: Outcome = Outcome.NOT_APPLIED) -> Generator[None]:
    """Raise the errors of the library in place of those of the operating system.

    Args:
        path: what the block works on.
        outcome: what is known of the write when the block fails.
    """
    try:
        yield
    except OSError as error:
        raise meaning(error, path, outcome) from error


def meaning(error: OSError, path: Path, outcome: Outcome = Outcome.NOT_APPLIED) -> TwinstoreError:
    """Return what an error means."""
    reason = error.strerror or type(error).__name__
    if error.errno in FORBIDDEN:
        return ConfigurationError(
            f"{path} cannot be used ({reason}); let the user of this process read and write below the root.",
            driver=DRIVER,
        )
    if error.errno in NOT_OURS:
        return foreign(path)
    if error.errno in FULL:
        return UnavailableError(
            f"{path} cannot be written ({reason}); make room and repeat the call.",
            outcome=outcome,
            driver=DRIVER,
        )
    return UnavailableError(
        f"{path} cannot be reached or written ({reason}); repeat the call when it can.",
        outcome=outcome,
        driver=DRIVER,
    )


def foreign(path: Path) -> ConfigurationError:
    """Return the error of something that is neither a file nor a folder of ours."""
    return ConfigurationError(
        f"{path} is a symbolic link, a pipe, a socket or a device, or a file where a folder belongs, or the "
        "reverse; it is never opened. Move it out of the root.",
        driver=DRIVER,
    )
