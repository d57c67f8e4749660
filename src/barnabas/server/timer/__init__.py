"""Timeouts: a hierarchical timing wheel. Adding and cancelling take constant time, however many tasks wait."""

from __future__ import annotations

from barnabas.server.timer.system_timer import SystemTimer
from barnabas.server.timer.timer_task import Timer, TimerClosedError, TimerTask

__all__ = ["SystemTimer", "Timer", "TimerClosedError", "TimerTask"]
