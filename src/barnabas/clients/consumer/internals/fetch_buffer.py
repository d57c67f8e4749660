"""Buffers fetch responses; the application thread waits here."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from barnabas.clients.consumer.internals.completed_fetch import CompletedFetch
from barnabas.common.clock import Clock
from barnabas.common.topic_partition import TopicPartition


class FetchBuffer:
    """Passes fetch responses from the background thread to the application thread.

    ``next_in_line`` is the response that the application is reading. While a partition is buffered, it is not fetched:
    a slow application piles up at most one response per partition. An application that reads tables takes whole
    responses, megabytes at a time, and decodes them while the next ones arrive. For it there may be a second response,
    which begins where the first ends (see ``reads_ahead``).

    The application thread also waits here for everything else: the end of a request, an event, a `wakeup`. So there is
    one condition, which every source of news notifies.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        """Guards all fields. No other lock is taken while it is held."""
        self._news = threading.Condition(self._lock)
        self._completed: deque[CompletedFetch] = deque()
        self._next_in_line: CompletedFetch | None = None
        self._notified = False
        self.reads_ahead = False
        """Whether a second response may be fetched while the first is here. Written by the application thread as it
        reads records or tables; a slightly stale value is harmless."""
        self.leaves_unread = False
        """Whether records in files of this machine stay there until they are taken. Written like ``reads_ahead``."""
        self.holds_up = True
        """Whether buffered data prevents a fetch. If not, taking data needs no notification: a response is on its way,
        and the background thread checks again when it arrives. The background thread writes this before and after it
        checks; the application thread reads it after it has taken something."""
        self.on_news: Callable[[], None] | None = None
        """Called with each notification, on the notifying thread, for code that cannot wait on a condition. It must not
        block or take a lock."""
        self.on_dropped: Callable[[Sequence[CompletedFetch]], None] = lambda _dropped: None
        """Called with discarded responses, on the application thread, without a lock: for metrics."""

    def add(self, fetches: Iterable[CompletedFetch]) -> None:
        with self._lock:
            self._completed.extend(fetches)
            self._tell()

    def add_first(self, fetches: Iterable[CompletedFetch]) -> None:
        """Puts responses back that were taken out."""
        with self._lock:
            self._completed.extendleft(reversed(list(fetches)))

    def peek(self) -> CompletedFetch | None:
        """Returns the oldest response. Needs no lock, because only the application thread removes responses."""
        completed = self._completed
        return completed[0] if completed else None

    def waiting(self) -> list[CompletedFetch]:
        """Returns all responses behind the next in line, the oldest first."""
        with self._lock:
            return list(self._completed)

    def poll(self) -> CompletedFetch | None:
        with self._lock:
            return self._completed.popleft() if self._completed else None

    @property
    def next_in_line(self) -> CompletedFetch | None:
        return self._next_in_line

    @next_in_line.setter
    def next_in_line(self, fetch: CompletedFetch | None) -> None:
        with self._lock:
            self._next_in_line = fetch

    def advance(self) -> CompletedFetch | None:
        """Makes the oldest response the next in line, in one step, so that its partition always counts as buffered."""
        with self._lock:
            self._next_in_line = self._completed.popleft() if self._completed else None
            return self._next_in_line

    def is_empty(self) -> bool:
        with self._lock:
            return not self._completed and (self._next_in_line is None or self._next_in_line.is_consumed)

    def buffered_partitions(self) -> set[TopicPartition]:
        """Returns the partitions with buffered data."""
        with self._lock:
            found = {fetch.partition for fetch in self._completed}
            if self._next_in_line is not None and not self._next_in_line.is_consumed:
                found.add(self._next_in_line.partition)
            return found

    def ends(self) -> dict[TopicPartition, int | None]:
        """Returns the buffered partitions, and where a second response would begin; None if there must be none.

        There must be none for a partition with two responses, or whose only response is an error, which is handled in
        its turn.
        """
        with self._lock:
            fetches = list(self._completed)
            if self._next_in_line is not None and not self._next_in_line.is_consumed:
                fetches.append(self._next_in_line)
        found: dict[TopicPartition, int | None] = {}
        for fetch in fetches:
            partition = fetch.partition
            if partition in found:
                found[partition] = None
            else:
                end = fetch.known_end_offset
                found[partition] = fetch.end_offset() if end is None else end
        return found

    def retain_all(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Discards data of all other partitions, which are no longer assigned."""
        with self._lock:
            dropped = [fetch for fetch in self._completed if fetch.partition not in partitions]
            if dropped:
                self._completed = deque(fetch for fetch in self._completed if fetch.partition in partitions)
            current = self._next_in_line
            if current is not None and current.partition not in partitions:
                self._next_in_line = None
                if not current.is_consumed:
                    dropped.append(current)
        if dropped:
            self.on_dropped(dropped)

    # -- waiting

    def notify(self) -> None:
        """Wakes the application thread."""
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        self._notified = True
        self._news.notify_all()
        if self.on_news is not None:
            self.on_news()

    def take_news(self) -> bool:
        """Returns whether there was news since the last call."""
        with self._lock:
            notified, self._notified = self._notified, False
            return notified

    def wait(self, timeout_ms: float) -> bool:
        """Waits for news; returns whether there may be any."""
        with self._lock:
            deadline = self._clock.hi_res_milliseconds() + timeout_ms
            while not self._notified:
                remaining = deadline - self._clock.hi_res_milliseconds()
                if remaining <= 0:
                    return False
                self._clock.wait(self._news, remaining)
            self._notified = False
            return True

    def __repr__(self) -> str:
        with self._lock:
            return f"FetchBuffer(next {self._next_in_line}, {list(self._completed)})"
