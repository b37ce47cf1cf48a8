"""A command in the process of the tests leaves its log to nobody."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tests.commands import LOGGERS, log_as_before
from twinstore_backfill.cli import main
from twinstore_backfill.process.messages import chosen

if TYPE_CHECKING:
    import pytest


def state() -> tuple[object, ...]:
    """Return what a command changes."""
    return logging.getLogger().handlers[:], [logging.getLogger(name).level for name in LOGGERS], chosen()


def test_whoever_logs_after_a_command_does_so_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    before = state()
    with log_as_before():
        assert main(["--debug", "--log-format", "json", "backends"]) == 0
        assert all(was != now for was, now in zip(before, state(), strict=True))
    assert state() == before
    assert capsys.readouterr().err == ""
