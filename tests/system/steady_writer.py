"""Writes without a pause, so that whoever processes is in the middle of something whenever it is killed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

WAIT_S = 60


class SteadyWriter:
    """A thread that writes records, each once and in order, whatever happens to the broker. A context manager."""

    def __init__(self, bootstrap: str, topic: str, make: Callable[[int], tuple[int, bytes]], interval_s: float) -> None:
        """`make` gets the number of a record, from 0 on, and tells its partition and value."""
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            # It is asked again soon after the broker was killed, not after ten seconds.
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        self._topic = topic
        self._make = make
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            partition, value = self._make(self.count)
            self._producer.produce(self._topic, value, partition=partition)
            self._producer.poll(0)
            self.count += 1

    def stop(self) -> int:
        """How many records were written in all."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        return self.count

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.purge()
