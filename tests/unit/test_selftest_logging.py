"""What a self-test planted is no news to an operator, and what is not readable afterwards is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from twinstore_backfill.selftest.moving import planted_rows_unlogged

if TYPE_CHECKING:
    import pytest


def test_rows_that_lists_pass_over_are_logged_again_after_the_self_test(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("twinstore.undecodable")
    with planted_rows_unlogged():
        logger.warning("planted")
    logger.warning("found")
    assert caplog.messages == ["found"]
