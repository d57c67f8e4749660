"""Timeouts: a hierarchical timing wheel, in which adding and cancelling cost the same however many wait."""

from __future__ import annotations

from barnabas.server.timer.system_timer import SystemTimer
from barnabas.server.timer.timer_task import Timer, TimerClosedError, TimerTask

__all__ = ["SystemTimer", "Timer", "TimerClosedError", "TimerTask"]
