"""How the demo fails."""

from __future__ import annotations

from twinstore.errors import TwinstoreError

__all__ = ["DemoFailedError"]


class DemoFailedError(TwinstoreError):
    """The demo did not reach its proof."""

    code = "demo_failed"
