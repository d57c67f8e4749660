"""Read your writes: a client that has changed the cluster sees the change in its next request.

The controller responds as soon as the records are committed; the broker's loader applies the same records a moment
later. A request in between, as from a test that creates a topic and then lists topics, does not find the topic. Kafka
accepts that, and its clients retry.

Here the response waits for the loader. When the response arrives, its records are below the high watermark of the
metadata log, so it is sent once this broker has applied everything up to there:

    CreateTopics --> controller: offsets 40-42, committed --> response, high watermark 43
                     loader: 40 ... 42 applied ------------------------------> response goes to the client

That takes a millisecond or two, and is bounded: a response is delayed by at most `MAX_WAIT_MS`.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from itertools import count
from typing import Final

from barnabas.common.scheduler import Scheduler
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher

MAX_WAIT_MS: Final = 500
"""The maximum delay of a response; a broker that is further behind has other problems."""


class AppliedMetadata(MetadataPublisher):
    """Runs functions when the broker has applied the metadata committed so far. Must be the last publisher."""

    def __init__(self, high_watermark: Callable[[], int | None], scheduler: Scheduler) -> None:
        self._high_watermark = high_watermark
        self._scheduler = scheduler
        self._lock = threading.Lock()
        """Guards the fields below. Not held while functions are called."""
        self._next_offset = 0
        self._waiting: list[tuple[int, int, _Once]] = []
        """A heap, by the awaited offset, then by order of arrival."""
        self._arrivals = count()

    @property
    def name(self) -> str:
        return "AppliedMetadata"

    def when_applied(self, function: Callable[[], object]) -> None:
        """Calls the function exactly once, now or later on another thread."""
        target = self._high_watermark() or 0
        once = _Once(function)
        with self._lock:
            is_there = self._next_offset >= target
            if not is_there:
                heapq.heappush(self._waiting, (target, next(self._arrivals), once))
        if is_there:
            once()
        else:
            self._scheduler.schedule("respond-without-metadata", once, MAX_WAIT_MS)

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:  # noqa: ARG002
        due: list[_Once] = []
        with self._lock:
            self._next_offset = new_image.offset + 1
            while self._waiting and self._waiting[0][0] <= self._next_offset:
                due.append(heapq.heappop(self._waiting)[2])
        for once in due:
            once()

    def close(self) -> None:
        """Calls all waiting functions."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for _, _, once in sorted(waiting):
            once()


class _Once:
    """Calls a function only the first time it is called itself, on any thread."""

    __slots__ = ("_function", "_lock")

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function
        self._lock = threading.Lock()
        """Guards `_function`: the loader and the scheduler may call at the same time."""

    def __call__(self) -> None:
        with self._lock:
            function, self._function = self._function, None
        if function is not None:
            function()
