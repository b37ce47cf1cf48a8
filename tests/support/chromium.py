"""A headless Chromium, where the machine has one: what a page looks like and does there, by scripts.

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
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.outages import eventually

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
KEYS: Final = {"Tab": 9, "Enter": 13}
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


class Tab:
    """A page that goes on living: it is asked, resized and typed into by the DevTools protocol."""

    def __init__(self, browser: Browser, url: str, width: int, scheme: str) -> None:
        self._browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **screen)
        self._send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def _send(self, method: str, **parameters: object) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def ask(self, expression: str) -> Any:  # noqa: ANN401  # what JSON can hold
        """Return the value of an expression."""
        answer = self._send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        assert eventually(lambda: bool(self.ask(expression))), self.ask("document.body.innerText")

    def press(self, key: str) -> None:
        """Press a key."""
        named = {"key": key, "text": {"Enter": "\r"}.get(key, ""), "windowsVirtualKeyCode": KEYS[key]}
        for kind in ("keyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, **named)


class Browser:
    """A browser for several pages that are served, driven over a pair of pipes."""

    def __init__(self, directory: Path) -> None:
        """Start it; the directory is an empty one for its profile."""
        (commands, self._out), (self._in, answers) = os.pipe(), os.pipe()
        options = " ".join((*OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={directory}"))
        # It reads commands from file 3 and writes answers to file 4.
        shell = ["/bin/bash", "-c", f"exec {PROGRAM} {options} 3<&{commands} 4>&{answers}"]
        files = (commands, answers)
        self._process = subprocess.Popen(shell, pass_fds=files, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self._numbers = count(1)
        self._rest = b""

    def close(self) -> None:
        """End it."""
        self.send("Browser.close")
        self._process.wait(SECONDS)
        os.close(self._out)
        os.close(self._in)

    def send(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Return the answer to a command; events are passed over."""
        number = next(self._numbers)
        target = {} if session is None else {"sessionId": session}
        message = {"id": number, "method": method, "params": parameters, **target}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> bytes:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        found, _, self._rest = self._rest.partition(b"\0")
        return found
