"""The batches that have been created and are not completed yet."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch


class IncompleteBatches:
    """A thread-safe set of batches: a flush waits for them, and a forced close aborts them."""

    __slots__ = ("_batches", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the set. It is taken with a queue's lock held, and no other lock is taken inside it."""
        self._batches: dict[ProducerBatch, None] = {}

    def add(self, batch: ProducerBatch) -> None:
        with self._lock:
            self._batches[batch] = None

    def remove(self, batch: ProducerBatch) -> None:
        with self._lock:
            if batch not in self._batches:
                raise RuntimeError(f"{batch!r} is not among the incomplete batches: it was completed twice")
            del self._batches[batch]

    def remove_all(self, batches: Iterable[ProducerBatch]) -> None:
        with self._lock:
            for batch in batches:
                if self._batches.pop(batch, batch) is not None:
                    raise RuntimeError(f"{batch!r} is not among the incomplete batches: it was completed twice")

    def discard(self, batch: ProducerBatch) -> None:
        """Removes a batch, if present."""
        with self._lock:
            self._batches.pop(batch, None)

    def copy_all(self) -> list[ProducerBatch]:
        with self._lock:
            return list(self._batches)

    def request_results(self) -> list[ProduceRequestResult]:
        with self._lock:
            return [batch.produce_future for batch in self._batches]

    def __len__(self) -> int:
        return len(self._batches)
