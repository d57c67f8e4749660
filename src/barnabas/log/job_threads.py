"""Doing many independent things on a few threads, and waiting for all of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable


def run_jobs(jobs: Iterable[Callable[[], object]], threads: int, name: str) -> list[Exception]:
    """Runs all jobs, on at most so many threads called `name` and a number; returns what went wrong.

    With one thread it is the caller's own. More are worth it where jobs wait for a disk.
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
