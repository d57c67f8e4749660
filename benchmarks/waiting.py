"""Waiting for what happens in another thread, process or machine, when nothing there can wake us."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

SECONDS = 120.0
PAUSE_S = 0.01


class WaitedInVainError(AssertionError):
    """It did not come about in time, or cannot any more."""


def until(
    condition: Callable[[], T],
    what: str | Callable[[], object] = "",
    seconds: float = SECONDS,
    *,
    pause_s: float = PAUSE_S,
    process: subprocess.Popen[Any] | None = None,
) -> T:
    """Looks again and again; what the condition was in the end, which is true.

    ``what`` is for the error: what was waited for, or how far it has got. A ``process`` that has to bring it about is
    watched as well: if it ends, so does the wait, at once.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            why = f"process {process.pid} ended with {process.returncode}" if process and ended else f"{seconds:g} s"
            raise WaitedInVainError(f"not reached, after {why}: {what() if callable(what) else what}")
        if process is None:
            time.sleep(pause_s)  # the one place where there is nothing better to do
        else:
            _wait(process, pause_s)
    return found


def _wait(process: subprocess.Popen[Any], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
