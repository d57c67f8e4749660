"""Answers to fetches that the application has not taken yet, and the place where it waits for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from barnabas.clients.consumer.internals.completed_fetch import CompletedFetch
from barnabas.common.clock import Clock
from barnabas.common.topic_partition import TopicPartition


class FetchBuffer:
    """Between the two threads of a consumer: the background one adds, the application's takes.

    ``next_in_line`` is the answer that the application is in the middle of. While a partition is in here, nothing more
    is fetched of it: that bounds what a slow application can pile up to one answer per partition. An application that
    reads tables takes whole answers, megabytes at a time, and decodes them for as long as the next ones take to arrive.
    For such a one there may be a second answer, which begins where the first ends (see ``reads_ahead``).

    It is also where the application thread waits, for whatever it waits: data, the end of a request, an event, a
    `wakeup`. So there is one condition, and whoever has news notifies it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        """Guards all fields. Nothing else is locked inside it."""
        self._news = threading.Condition(self._lock)
        self._completed: deque[CompletedFetch] = deque()
        self._next_in_line: CompletedFetch | None = None
        self._notified = False
        self.reads_ahead = False
        """Whether a second answer may be fetched while the first is here. Written by the application thread, as it
        reads one way or the other; a value that is a moment old does no harm."""
        self.leaves_unread = False
        """Whether records that are in files of this machine are better left there until they are taken. Written as
        ``reads_ahead`` is."""
        self.holds_up = True
        """Whether something is not fetched because of what is here. If not, nobody need be told that it has been taken:
        an answer is on its way, and with it the background thread will look anyway. Written by that thread, before and
        after it looks; who has taken something reads it after that."""
        self.on_news: Callable[[], None] | None = None
        """Called along with each notification, on whatever thread that comes from, for who cannot wait on a condition.
        It must not wait, and lock nothing."""
        self.on_dropped: Callable[[Sequence[CompletedFetch]], None] = lambda _dropped: None
        """Told of answers that are thrown away, on the application thread, without a lock: for metrics."""

    def add(self, fetches: Iterable[CompletedFetch]) -> None:
        with self._lock:
            self._completed.extend(fetches)
            self._tell()

    def add_first(self, fetches: Iterable[CompletedFetch]) -> None:
        """Puts answers back that were taken out."""
        with self._lock:
            self._completed.extendleft(reversed(list(fetches)))

    def peek(self) -> CompletedFetch | None:
        """The oldest answer. For the application thread: no other takes anything out, and so there is nothing to
        lock."""
        completed = self._completed
        return completed[0] if completed else None

    def waiting(self) -> list[CompletedFetch]:
        """All that there are behind the next in line, the oldest first."""
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
        """Makes the oldest answer the next in line; in one step, so that its partition is never seen as not here."""
        with self._lock:
            self._next_in_line = self._completed.popleft() if self._completed else None
            return self._next_in_line

    def is_empty(self) -> bool:
        with self._lock:
            return not self._completed and (self._next_in_line is None or self._next_in_line.is_consumed)

    def buffered_partitions(self) -> set[TopicPartition]:
        """The partitions that there is something of."""
        with self._lock:
            found = {fetch.partition for fetch in self._completed}
            if self._next_in_line is not None and not self._next_in_line.is_consumed:
                found.add(self._next_in_line.partition)
            return found

    def ends(self) -> dict[TopicPartition, int | None]:
        """The partitions that there is something of, and where a second answer would begin; None if there must be none.

        That is so for a partition with two answers, and for one whose only answer is an error: what comes of that is
        not known before its turn.
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
        """Throws away what belongs to other partitions, which this consumer has no more."""
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
        """There is news for the application, of whatever kind."""
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        self._notified = True
        self._news.notify_all()
        if self.on_news is not None:
            self.on_news()

    def take_news(self) -> bool:
        """Whether there was any since this was last asked."""
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
