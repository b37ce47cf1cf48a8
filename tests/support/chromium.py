"""A headless Chromium, where the machine has one: what a page looks like there, measured by a script.

It is no wheel, so a machine without it leaves out what needs it, and the summary of the run says so.
``apt-get install chromium`` brings it; ``TWINSTORE_TEST_CHROMIUM`` is the path of another one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS: Final = 120
# A path, or an empty text for a run without.
VARIABLE: Final = "TWINSTORE_TEST_CHROMIUM"
PROGRAM: Final = shutil.which(os.environ.get(VARIABLE, "chromium"))
SKIP_NOTE: Final = "chromium is not installed, so no page was looked at in a browser."
OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",  # as on a phone, where they take no room
    "--window-size=1600,1200",
)
ANSWER: Final = re.compile(r'<pre id="answer">(.*?)</pre>', re.DOTALL)


def measured(
    pages: Mapping[str, str], screens: Sequence[tuple[int, str]], script: str, directory: Path
) -> dict[str, Any]:
    """Return what a script says of each page on each screen.

    One browser shows all pages in frames, each of which is a separate screen to its page.

    Args:
        pages: HTML by name.
        screens: width in pixels of the style sheet, and ``light`` or ``dark``.
        script: the body of a function of ``view``, the window of a page, that returns what JSON can hold.
        directory: an empty one for the profile of the browser.
    """
    frames = "".join(
        f'<iframe data-name="{escape(name)} {width} {scheme}" srcdoc="{escape(content)}" '
        f'style="color-scheme: {scheme}; border: 0; width: {width}px; height: 800px"></iframe>'
        for name, content in pages.items()
        for width, scheme in screens
    )
    script_of_page = (
        f"const asked = (view) => {{ {script} }};"
        "addEventListener('load', () => {"
        "  const found = {};"
        "  for (const frame of document.querySelectorAll('iframe'))"
        "    found[frame.dataset.name] = asked(frame.contentWindow);"
        "  const answer = document.createElement('pre');"
        "  answer.id = 'answer';"
        "  answer.textContent = JSON.stringify(found);"
        "  document.body.replaceChildren(answer);"
        "});"
    )
    file = directory / "frames.html"
    file.write_text(
        f'<!doctype html><meta charset="utf-8"><body>{frames}<script>{script_of_page}</script></body>'
    )
    dumped = subprocess.run(
        [str(PROGRAM), *OPTIONS, f"--user-data-dir={directory / 'profile'}", "--dump-dom", file.as_uri()],
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    ).stdout
    answer = ANSWER.search(dumped)
    assert answer is not None, dumped[-1000:]
    found: dict[str, Any] = json.loads(unescape(answer[1]))
    return found
