"""Runs many independent jobs on a few threads, and waits for all of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.common.clock import Clock

PROGRESS_INTERVAL_MS: Final = 2000


class Progress:
    """Counts completed jobs, and reports their number at most every `PROGRESS_INTERVAL_MS`.

    Work that takes less time than that is not reported at all.
    """

    def __init__(self, total: int, clock: Clock, report: Callable[[int, int], None]) -> None:
        """`report` is called with the number of completed jobs and `total`, by one thread at a time."""
        self._total = total
        self._clock = clock
        self._report = report
        self._lock = threading.Lock()
        """Guards the fields below; held while `report` is called."""
        self._done = 0
        self._next_ms = clock.hi_res_milliseconds() + PROGRESS_INTERVAL_MS

    def advance(self) -> None:
        """Counts one more job."""
        with self._lock:
            self._done += 1
            now_ms = self._clock.hi_res_milliseconds()
            if now_ms >= self._next_ms:
                self._next_ms = now_ms + PROGRESS_INTERVAL_MS
                self._report(self._done, self._total)


def run_jobs(
    jobs: Iterable[Callable[[], object]], threads: int, name: str, progress: Progress | None = None
) -> list[Exception]:
    """Runs all jobs on a limited number of threads, named `name` and a number; returns the errors.

    With one thread, the jobs run on the caller's own. More threads help if jobs wait for a disk.
    """
    waiting = deque(jobs)
    errors: list[Exception] = []

    def work() -> None:
        while True:
            try:
                job = waiting.popleft()
            except IndexError:
                return
            try:
                job()
            except Exception as error:  # noqa: BLE001 - handed to the caller
                errors.append(error)
            if progress is not None:
                progress.advance()

    count = min(threads, len(waiting))
    if count <= 1:
        work()
        return errors
    workers = [threading.Thread(target=work, name=f"{name}-{number}") for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return errors
