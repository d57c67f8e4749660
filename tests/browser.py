"""A headless Chromium that a test drives through the DevTools protocol, over pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LIMIT_S: Final = 60.0
OPTIONS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip
LAUNCHER: Final = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads from descriptor 3 and writes to 4."""


def find_browser() -> str | None:
    """Returns the path of a browser; None if this machine has none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser refused a command, or a script on the page failed."""


class Browser:
    """One page. The protocol's messages are JSON, each ended by a zero byte."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to_browser = to_browser
        self._from_browser = from_browser
        self._received = b""
        self._last_id = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        """Exceptions, failed loads, and everything that the page wrote to the console as an error or a warning."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while True:
            received = self._next_message(deadline)
            if received.get("id") == self._last_id:
                if "error" in received:
                    raise BrowserError(f"{method}: {received['error']['message']}")
                result: dict[str, Any] = received["result"]
                return result

    def open(self, page: Path, width: int, height: int = 900, scheme: str = "light", scale: float = 1.0) -> None:
        """Shows a page in a window of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page.as_uri())
        self.run("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")

    def run(self, script: str) -> Any:
        """Returns the value of an expression on the page; awaits promises."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Presses a key; ``text`` is the character that it types."""
        more = {"text": text} if text else {}
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def move(self, x: float, y: float) -> None:
        """Moves the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def write_png(self, file: Path, height: float | None = None) -> None:
        """Writes an image of the page from its top; by default all of it."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        file.write_bytes(base64.b64decode(data))

    def write_pdf(self, file: Path) -> None:
        """Prints the page."""
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def _next_message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._from_browser], [], [], max(deadline - time.monotonic(), 0))
            data = os.read(self._from_browser, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser has ended" if ready else f"no response within {LIMIT_S:g} s")
            self._received += data
        raw, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        match message.get("method"):
            case "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(json.dumps(message["params"]))
            case "Runtime.consoleAPICalled" if message["params"]["type"] in {"error", "warning", "assert"}:
                self.complaints.append(json.dumps(message["params"]["args"]))
        return message


@contextmanager
def running_browser(executable: str, directory: Path) -> Iterator[Browser]:
    """Starts a browser whose files are below a directory, and ends it."""
    child_in, to_browser = os.pipe()
    from_browser, child_out = os.pipe()
    profile = f"--user-data-dir={directory / 'profile'}"
    with (directory / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(child_in), str(child_out), executable, *OPTIONS, profile],
            pass_fds=(child_in, child_out), stdout=log, stderr=log, env={**os.environ, "HOME": str(directory)},
        )  # fmt: skip
    os.close(child_in)
    os.close(child_out)
    try:
        yield Browser(to_browser, from_browser)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        process.terminate()
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
