"""The same rows from ever more partitions: how the cost of a Spark query grows, ours beside the stock connector.

A topic with 1, 10, 100, 1,000 and 5,000 partitions has 600,000 records of 100 bytes each time. Both sources read all of
it with their defaults, in turns, into Spark's ``noop`` sink: as a batch, and as a stream with ``availableNow``. A
stream has two times, that of its micro-batch, which counts for one that runs for long, and what it takes to start and
stop, because a Python source starts a planning process. The targets are checked for both: for the micro-batch, and for
the whole query. Beside these times, the table has for the batch

- the time to plan it: from the options to a list of tasks,
- the number of tasks,
- the peak of the driver's heap, without garbage of earlier queries,
- the processor time of all processes together, which says more than the time on a machine that does something else as
  well, and that of the broker.

Times are medians of the rounds, after one warm-up of each source. A query that takes longer than ``--patience`` is
cancelled: then the figure is a lower bound, and the source is not asked again at that size. The stock connector waits
half a second per task behind its own long poll if a partition has more than 500 records left, so a run to the end
would take many minutes.

``python -m benchmarks.spark --growth`` runs it.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.broker_process import BrokerProcess
from benchmarks.measure import Row
from benchmarks.spark import JARS, VALUE_BYTES, cpu_seconds_below, fill, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 600_000
SIZES = (1, 10, 100, 1_000, 5_000)
ROUNDS = 3
PATIENCE_S = 60.0
TARGETS = {1_000: 1.5, 5_000: 3.0}
"""By how much the time of a size may exceed that of 10 partitions."""
BATCH = "batch"
STREAM = "stream"
WHOLE_STREAM = "stream with its start"
OURS = "barnabas"
STOCK = "stock connector"
FORMATS = {OURS: "barnabas", STOCK: "kafka"}


class PatienceError(Exception):
    """A query took too long, and was cancelled."""


@dataclass
class Figures:
    """The measurements of one source at one size."""

    batch_s: list[float] = field(default_factory=list)
    stream_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    planning_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    broker_s: list[float] = field(default_factory=list)
    heap_bytes: list[int] = field(default_factory=list)
    tasks: int = 0
    is_cancelled: bool = False


@dataclass(frozen=True)
class Growth:
    """Measures one session against one broker."""

    spark: SparkSession
    broker: BrokerProcess
    directory: Path
    patience_s: float

    def measure(self, source: str, partitions: int, figures: Figures) -> None:
        """Adds one round to the figures."""
        options = {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "subscribe": topic_of(partitions)}
        started = time.perf_counter()
        rows = self.spark.read.format(FORMATS[source]).options(**options).load()
        figures.tasks = rows._jdf.queryExecution().toRdd().getNumPartitions()
        figures.planning_s.append(time.perf_counter() - started)
        try:
            self._batch(rows, figures)
            self._stream(source, options, figures)
        except PatienceError:
            figures.is_cancelled = True

    def _batch(self, rows: DataFrame, figures: Figures) -> None:
        self._forget_heap()
        cpu_s, broker_s = cpu_seconds_below(), self.broker.cpu_seconds
        figures.batch_s.append(self._timed(lambda: rows.write.format("noop").mode("overwrite").save()))
        figures.broker_s.append(self.broker.cpu_seconds - broker_s)
        figures.cpu_s.append(cpu_seconds_below() - cpu_s)
        figures.heap_bytes.append(self._heap_peak())

    def _timed(self, work: Callable[[], None]) -> float:
        """Returns the time of a batch query; cancels it after a while."""
        context = self.spark.sparkContext
        late = threading.Event()

        def cancel() -> None:
            late.set()
            context.cancelAllJobs()

        timer = threading.Timer(self.patience_s, cancel)
        timer.start()
        started = time.perf_counter()
        try:
            work()
        except Exception:
            if not late.is_set():
                raise
            raise PatienceError from None
        finally:
            timer.cancel()
        return time.perf_counter() - started

    def _stream(self, source: str, options: dict[str, str], figures: Figures) -> None:
        checkpoint = tempfile.mkdtemp(dir=self.directory)
        rows = self.spark.readStream.format(FORMATS[source]).options(**options, startingOffsets="earliest").load()
        started = time.perf_counter()
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(int(self.patience_s)):
            query.stop()
            raise PatienceError
        total_s = time.perf_counter() - started
        batch_s = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000
        figures.stream_s.append(batch_s)
        figures.start_s.append(total_s - batch_s)
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert read == records_in(int(options["subscribe"].rpartition("-")[2])), read

    # -- the driver's heap

    def _pools(self) -> list[Any]:
        jvm: Any = self.spark.sparkContext._jvm
        beans = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        return [one for one in beans if str(one.getType()) == "Heap memory"]

    def _forget_heap(self) -> None:
        jvm: Any = self.spark.sparkContext._jvm
        jvm.java.lang.System.gc()
        for pool in self._pools():
            pool.resetPeakUsage()

    def _heap_peak(self) -> int:
        return sum(int(pool.getPeakUsage().getUsed()) for pool in self._pools())


def topic_of(partitions: int) -> str:
    return f"rows-{partitions}"


def records_in(partitions: int) -> int:
    return RECORDS // partitions * partitions


def run(
    sizes: Sequence[int] = SIZES, rounds: int = ROUNDS, patience_s: float = PATIENCE_S
) -> dict[int, dict[str, Figures]]:
    """Measures all sizes; returns the figures by partitions and source."""
    sources = [OURS, STOCK] if any(JARS.glob("spark-sql-kafka*.jar")) else [OURS]
    found: dict[int, dict[str, Figures]] = {size: {source: Figures() for source in sources} for size in sizes}
    with tempfile.TemporaryDirectory(prefix="barnabas-growth-") as name:
        directory = Path(name)
        with BrokerProcess(directory / "data") as broker:
            for size in sizes:
                fill(broker.bootstrap_servers, RECORDS, topic_of(size), size)
            spark = session(directory)
            try:
                growth = Growth(spark, broker, directory, patience_s)
                warm = min(sizes, key=lambda size: abs(size - 10))
                for source in sources:
                    growth.measure(source, warm, Figures())
                for size in sizes:
                    for _ in range(rounds):
                        for source, figures in found[size].items():
                            if not figures.is_cancelled:
                                growth.measure(source, size, figures)
            finally:
                spark.stop()
    return found


def table(found: dict[int, dict[str, Figures]], patience_s: float) -> str:
    """Returns the figures as a table in Markdown."""
    lines = [
        f"{RECORDS:,} records of {VALUE_BYTES} bytes",
        "",
        "| partitions | source | batch | stream | its start | planning | tasks | driver heap | CPU | broker CPU |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size, by_source in found.items():
        for source, figures in by_source.items():
            times = [
                f"{statistics.median(times):.2f} s" if times else f"> {patience_s:.0f} s"
                for times in (figures.batch_s, figures.stream_s, figures.start_s, figures.planning_s)
            ]
            heap = f"{statistics.median(figures.heap_bytes) / 1e6:.0f} MB" if figures.heap_bytes else "-"
            cpu = [f"{statistics.median(one):.2f} s" if one else "-" for one in (figures.cpu_s, figures.broker_s)]
            lines.append(
                f"| {size:,} | {source} | {' | '.join(times)} | {figures.tasks:,} | {heap} | {' | '.join(cpu)} |"
            )
    return "\n".join(lines)


def rows(found: dict[int, dict[str, Figures]], patience_s: float) -> list[Row]:
    """Returns the targets: against 10 partitions, and against the stock connector at every size."""
    made: list[Row] = []
    for kind in (BATCH, STREAM, WHOLE_STREAM):
        seconds = {
            size: {source: _seconds(figures, kind) for source, figures in by_source.items()}
            for size, by_source in found.items()
        }
        for size, by_source in seconds.items():
            case, ours = f"{kind}, {size:,} partitions", by_source[OURS]
            ten = seconds.get(10, {}).get(OURS)
            rate = RECORDS / ours if ours else 0.0
            if size in TARGETS and ten is not None:
                ratio = ten / ours if ours else 0.0
                made.append(Row(case, OURS, rate, "rows/s", ratio, "10 partitions", 1 / TARGETS[size]))
            if STOCK in by_source:
                ratio = (by_source[STOCK] or patience_s) / ours if ours else 0.0
                made.append(Row(case, OURS, rate, "rows/s", ratio, STOCK, 1.0))
    return made


def _seconds(figures: Figures, kind: str) -> float | None:
    """Returns the median; None if the query was cancelled."""
    measured = {
        BATCH: figures.batch_s,
        STREAM: figures.stream_s,
        WHOLE_STREAM: [sum(one) for one in zip(figures.stream_s, figures.start_s, strict=True)],
    }[kind]
    return statistics.median(measured) if measured else None
