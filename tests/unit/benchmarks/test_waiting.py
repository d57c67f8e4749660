"""Waiting for others, and when it ends."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from benchmarks.waiting import WaitedInVainError, until


def test_it_returns_what_was_waited_for() -> None:
    looks = iter(["", None, "found"])
    assert until(lambda: next(looks)) == "found"


def test_time_is_over() -> None:
    with pytest.raises(WaitedInVainError, match=r"after 0.02 s: so far 3"):
        until(lambda: False, lambda: f"so far {1 + 2}", 0.02)


def test_nobody_waits_for_a_process_that_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        started = time.monotonic()
        with pytest.raises(WaitedInVainError, match=rf"process {process.pid} ended with 3: a port"):
            until(lambda: False, "a port", 600, pause_s=300, process=process)
        assert time.monotonic() - started < 60, "its end is seen at once"
