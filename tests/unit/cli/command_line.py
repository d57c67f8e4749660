"""``barnabas`` as a person at a terminal runs it: in a process of its own, with a terminal if need be."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

WAIT_S = 60.0
COMMAND = (sys.executable, "-m", "barnabas.cli.main")
_ADDRESS = re.compile(r"bootstrap server\s+(\S+)")
_HTTP = re.compile(r"(http://\S+)/metrics")


def environment(**changes: str) -> dict[str, str]:
    """That of this process, with compiled modules allowed: to compile them again takes seconds."""
    own = {key: value for key, value in os.environ.items() if key not in {"PYTHONDONTWRITEBYTECODE", "NO_COLOR"}}
    return {**own, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TERM": "xterm", **changes}


def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """A command that comes to an end by itself."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


class Terminal:
    """A command with a terminal of its own, into which Ctrl-C can be typed."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, program: Sequence[str] = COMMAND) -> None:
        self._screen, tty = pty.openpty()
        self._process = subprocess.Popen(
            [*program, *arguments],
            env=dict(env or environment()),
            stdin=tty,
            stdout=tty,
            stderr=tty,
            close_fds=True,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - nothing else runs in this process meanwhile that could matter
        )
        os.close(tty)
        self.text = ""

    def interrupt(self) -> None:
        """Ctrl-C"""
        os.write(self._screen, b"\x03")

    def type_in(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def read_until(self, pattern: str) -> re.Match[str]:
        """Reads the screen until this is on it."""
        deadline = time.monotonic() + WAIT_S
        while (found := re.search(pattern, self.text)) is None:
            if not self.read(deadline - time.monotonic()):
                raise AssertionError(f"no {pattern!r} on the screen:\n{self.text}")
        return found

    def read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._screen], [], [], seconds)[0]:
            return False
        try:
            part = os.read(self._screen, 65_536)
        except OSError:  # how Linux says that the other end is closed
            return False
        self.text += part.decode(errors="replace").replace("\r\n", "\n")
        return bool(part)

    def wait(self) -> int:
        """Its exit code; minus the number of a signal if that has ended it."""
        deadline = time.monotonic() + WAIT_S
        while self.read(deadline - time.monotonic()):
            pass
        return self._process.wait(max(0.1, deadline - time.monotonic()))

    def close_window(self) -> None:
        """The terminal is gone, as when its window is closed."""
        if self._screen >= 0:
            os.close(self._screen)
            self._screen = -1

    @property
    def bootstrap_servers(self) -> str:
        return self.read_until(_ADDRESS.pattern)[1]

    @property
    def http_address(self) -> str:
        return self.read_until(_HTTP.pattern)[1]

    def exit_code(self) -> int:
        return self._process.wait(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.close_window()


def _take_terminal() -> None:
    """Makes the standard input the terminal of this session, so that Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def broker(data_dir: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Terminal:
    """``barnabas start`` on a free port."""
    return Terminal("start", "--port=0", f"--data-dir={data_dir}", *arguments, env=env)
