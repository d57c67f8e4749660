"""Where answers wait until what they tell of is committed: see `barnabas.common.deferred_event_queue`."""

from __future__ import annotations

from barnabas.common.deferred_event_queue import DeferredEvent, DeferredEventQueue

__all__ = ["DeferredEvent", "DeferredEventQueue"]
