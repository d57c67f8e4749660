"""Counts records and latencies, and formats them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from barnabas.common.clock import Clock

MAX_SAMPLES: Final = 500_000
"""The maximum number of latencies kept for percentiles. With more records, every second or third one is sampled."""
REPORTING_INTERVAL_MS: Final = 5_000
PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)
MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Figures:
    """The statistics of a period."""

    records: int
    records_per_second: float
    mebibytes_per_second: float
    average_latency_ms: float
    max_latency_ms: float
    percentiles_ms: tuple[int, ...] | None = None
    """The 50th, 95th, 99th and 99.9th percentile; only for the whole run."""


Line = Callable[[Figures], str]


def text_line(figures: Figures) -> str:
    """Formats a line like Kafka's tool.

    >>> text_line(Figures(100, 50.0, 0.5, 1.25, 3.0, (1, 2, 3, 3)))
    '100 records sent, 50.0 records/sec (0.50 MB/sec), 1.25 ms avg latency, 3.00 ms max latency, 1 ms 50th, 2 ms 95th, \
3 ms 99th, 3 ms 99.9th.'
    """
    head = (
        f"{figures.records} records sent, {figures.records_per_second:.1f} records/sec "
        f"({figures.mebibytes_per_second:.2f} MB/sec), "
    )
    if figures.percentiles_ms is None:
        return f"{head}{figures.average_latency_ms:.1f} ms avg latency, {figures.max_latency_ms:.1f} ms max latency."
    names = ("50th", "95th", "99th", "99.9th")
    percentiles = ", ".join(f"{value} ms {name}" for value, name in zip(figures.percentiles_ms, names, strict=True))
    return (
        f"{head}{figures.average_latency_ms:.2f} ms avg latency, {figures.max_latency_ms:.2f} ms max latency, "
        f"{percentiles}."
    )


def json_line(figures: Figures) -> str:
    """Formats a line of JSON. Only the last line has percentiles."""
    document = asdict(figures)
    percentiles = document.pop("percentiles_ms")
    document["kind"] = "interim" if percentiles is None else "total"
    if percentiles is not None:
        document |= dict(zip(("p50_ms", "p95_ms", "p99_ms", "p99_9_ms"), percentiles, strict=True))
    return json.dumps(document)


class Stats:
    """Counts acknowledged records, in total and since the last line.

    It needs no lock: records are acknowledged on the producer's I/O thread, and `total` is called after the last one.
    """

    def __init__(self, expected: int, clock: Clock, report: Callable[[Figures], None]) -> None:
        self._nanoseconds = clock.nanoseconds
        self._report = report
        self._every = max(1, -(-expected // MAX_SAMPLES))
        self._latencies = array("d")
        self._records = self._bytes = 0
        self._total_ms = self._max_ms = 0.0
        """Totals of the completed windows."""
        self._window_records = self._window_bytes = 0
        self._window_total_ms = self._window_max_ms = 0.0
        self._started_ns = self._window_started_ns = clock.nanoseconds()
        self._window_ends_ns = self._started_ns + REPORTING_INTERVAL_MS * 1_000_000

    def add(self, records: int, octets: int, started_ns: int) -> None:
        """Counts records that were sent at that time and acknowledged now."""
        now = self._nanoseconds()
        latency_ms = (now - started_ns) / 1e6
        before = self._records + self._window_records
        # The number of these records whose index, counted from the start, is a multiple of the sampling step.
        samples = (before + records - 1) // self._every - (before - 1) // self._every
        if samples == 1:
            self._latencies.append(latency_ms)
        elif samples:
            self._latencies.extend([latency_ms] * samples)
        self._window_records += records
        self._window_bytes += octets
        self._window_total_ms += latency_ms * records
        self._window_max_ms = max(self._window_max_ms, latency_ms)
        if now >= self._window_ends_ns:
            self._report(self._end_window(now))

    def _end_window(self, now: int) -> Figures:
        seconds = max(now - self._window_started_ns, 1) / 1e9
        records = self._window_records
        figures = Figures(
            records,
            records / seconds,
            self._window_bytes / seconds / MEBIBYTE,
            self._window_total_ms / records if records else 0.0,
            self._window_max_ms,
        )
        self._records += records
        self._bytes += self._window_bytes
        self._total_ms += self._window_total_ms
        self._max_ms = max(self._max_ms, self._window_max_ms)
        self._window_records = self._window_bytes = 0
        self._window_total_ms = self._window_max_ms = 0.0
        self._window_started_ns = now
        self._window_ends_ns = now + REPORTING_INTERVAL_MS * 1_000_000
        return figures

    def total(self) -> Figures:
        now = self._nanoseconds()
        self._end_window(now)
        seconds = max(now - self._started_ns, 1) / 1e9
        ordered = sorted(self._latencies)
        return Figures(
            self._records,
            self._records / seconds,
            self._bytes / seconds / MEBIBYTE,
            self._total_ms / self._records if self._records else 0.0,
            self._max_ms,
            tuple(int(ordered[int(part * len(ordered))]) if ordered else 0 for part in PERCENTILES),
        )
