"""Decodes several responses into columns, on two threads if that is quicker."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from barnabas.clients.consumer.internals.completed_fetch import CompletedFetch, new_table_memory

if TYPE_CHECKING:
    from barnabas.records.columns.arrow import EarlyColumns

log = logging.getLogger(__name__)

THREAD_NAME: Final = "consumer_table_reader"
LEAST_BYTES: Final = 1 << 21
"""Smaller data is read before another thread could begin."""


class TableReader:
    """Reads the sections of a table.

    Large responses in files of this machine (`FetchFiles`) are all available at once, and only reading them takes time.
    So a second thread reads the second half of them, into its own columns: the table has one chunk more. Network
    responses come one after the other, and the receiving thread already keeps a processor busy: the application's
    thread alone reads those.

    Used by the application's thread.
    """

    def __init__(self, client_id: str) -> None:
        self.memory = new_table_memory()
        self._thread_name = f"{THREAD_NAME} | {client_id}"
        self._threads: ThreadPoolExecutor | None = None
        self._begun: Future[None] | None = None

    def begin(
        self, fetches: Sequence[CompletedFetch], columns: tuple[str, ...] | None, binary_type: str
    ) -> EarlyColumns | None:
        """Prepares responses that `CompletedFetch.fetch_sections` will read in this order.

        Returns the columns that the first of them can share, if any. A second thread may be reading the others from now
        on, so `wait` must be called in the end."""
        first, others = _halves(fetches)
        if others:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(1, self._thread_name)
            self._begun = self._threads.submit(self._read, others, columns, binary_type)
            for fetch in others:
                fetch.ahead = self._begun
        return self._shared(first, columns, binary_type)

    def _read(self, fetches: Sequence[CompletedFetch], columns: tuple[str, ...] | None, binary_type: str) -> None:
        try:
            shared = self._shared(fetches, columns, binary_type)
        except Exception:
            # The application's thread then reads them, after those before them.
            log.warning("A second thread cannot read records ahead", exc_info=True)
            return
        for fetch in fetches:
            fetch.decode_ahead(columns, binary_type, shared, self.memory)

    def _shared(
        self, fetches: Sequence[CompletedFetch], columns: tuple[str, ...] | None, binary_type: str
    ) -> EarlyColumns | None:
        if len(fetches) == 1:
            return None
        return CompletedFetch.shared_columns(fetches, columns, binary_type, self.memory)

    def wait(self) -> None:
        """Waits until the second thread has finished, so that its results can be used."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


def _halves(fetches: Sequence[CompletedFetch]) -> tuple[Sequence[CompletedFetch], Sequence[CompletedFetch]]:
    """Splits the responses into two halves of about the same size, for this thread and the other."""
    total = sum(len(fetch.records) for fetch in fetches)
    if len(fetches) == 1 or total < LEAST_BYTES or _processors() == 1 or any(fetch.unread is None for fetch in fetches):
        return fetches, ()
    size = 0
    for index, fetch in enumerate(fetches):
        size += len(fetch.records)
        if 2 * size >= total:
            middle = min(index + 1, len(fetches) - 1)
            return fetches[:middle], fetches[middle:]
    raise AssertionError("all of them are more than half")


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
