"""Measures a producer under load."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.console import CommandError, UsageError, reason, say
from barnabas.cli.pace import Pace
from barnabas.cli.perf_stats import Figures, Line, Stats
from barnabas.cli.producer_settings import failed, producer_for
from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.clients.producer import KafkaProducer, TableFuture

SEED: Final = 0
"""A fixed seed gives the same values in each run, as in Kafka's tool."""
ALPHABET: Final = bytes(range(ord("A"), ord("Z") + 1))


class PerfProduce:
    """Sends records, one by one or as tables, and reports statistics."""

    def __init__(
        self,
        topic: str,
        num_records: int,
        settings: Mapping[str, Any],
        *,
        record_size: int | None,
        payload_file: str | None,
        payload_delimiter: str,
        throughput: float | None,
        table_rows: int | None,
        line: Line,
        clock: Clock,
    ) -> None:
        self._topic = topic
        self._num_records = num_records
        self._settings = settings
        self._random = Random(SEED)  # noqa: S311 - values to be written, not secrets
        self._values = self._payloads(record_size, payload_file, payload_delimiter)
        self._throughput = throughput
        self._table_rows = table_rows
        self._line = line
        self._clock = clock
        self._error: BaseException | None = None

    def _payloads(self, record_size: int | None, payload_file: str | None, delimiter: str) -> list[bytes]:
        if payload_file is None:
            assert record_size is not None
            return [bytes(self._random.choices(ALPHABET, k=record_size))]
        if not delimiter:
            raise UsageError("--payload-delimiter must not be empty")
        try:
            text = Path(payload_file).read_bytes()
        except OSError as error:
            raise CommandError(reason(error)) from None
        values = text.split(delimiter.encode())
        if values and not values[-1]:
            values.pop()  # the empty string after the last delimiter
        if not values:
            raise CommandError(f"{payload_file} is empty")
        return values

    def run(self) -> None:
        with producer_for(self._settings) as producer:
            # The first record waits for metadata, which must not be part of the measurement.
            try:
                producer.partitions_for(self._topic)
            except BarnabasError as error:
                raise failed(error) from None
            stats = Stats(self._num_records, self._clock, self._tell)
            pace = Pace(self._throughput, self._clock)
            if self._table_rows is None:
                self._send_records(producer, stats, pace)
            else:
                self._send_tables(producer, stats, pace, self._table_rows)
            producer.flush()
            figures = stats.total()
        if figures.records:
            self._tell(figures)
        if self._error is not None:
            raise failed(self._error)

    def _tell(self, figures: Figures) -> None:
        say(self._line(figures) + "\n", sys.stdout)

    def _send_records(self, producer: KafkaProducer, stats: Stats, pace: Pace) -> None:
        values, topic, now, send = self._values, self._topic, self._clock.nanoseconds, producer.send
        value = values[0]
        limited = self._throughput is not None
        for number in range(self._num_records):
            if self._error is not None:
                return
            if limited:
                pace.wait_for(number)
            if len(values) > 1:
                value = self._random.choice(values)
            send(topic, value, callback=partial(self._completed, stats, now(), len(value)))

    def _completed(self, stats: Stats, started_ns: int, size: int, _metadata: Any, error: Exception | None) -> None:
        if error is None:
            stats.add(1, size, started_ns)
        else:
            self._error = self._error or error

    def _send_tables(self, producer: KafkaProducer, stats: Stats, pace: Pace, rows: int) -> None:
        try:
            import pyarrow as pa  # an extra
        except ImportError:
            raise CommandError("--table needs pyarrow: install barnabas[arrow]") from None

        values = self._values * rows if len(self._values) == 1 else self._random.choices(self._values, k=rows)
        table = pa.table({"value": pa.array(values, pa.binary())})
        for first in range(0, self._num_records, rows):
            if self._error is not None:
                return
            pace.wait_for(first)
            part = table.slice(0, min(rows, self._num_records - first))
            size = sum(map(len, values[: len(part)])) if len(self._values) > 1 else len(part) * len(values[0])
            started_ns = self._clock.nanoseconds()
            future = producer.send_table(self._topic, part)
            future.add_done_callback(partial(self._table_completed, stats, started_ns, len(part), size))

    def _table_completed(self, stats: Stats, started_ns: int, rows: int, size: int, future: TableFuture) -> None:
        error = future.exception()
        if error is None:
            stats.add(rows, size, started_ns)
        else:
            self._error = self._error or error
