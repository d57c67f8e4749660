"""The status of a pipeline: its state, its lag, and why it is stuck.

A running pipeline writes its status beside its tables (``_barnabas/status.json``), after each batch and every few
seconds in between. ``barnabas pipeline status`` reads it, without Spark and whether or not the process still runs.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Final, Self

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.spark.pipelines.progress import BatchProgress, ProgressDisplay
from barnabas.spark.pipelines.query_metrics import QueryMetrics
from barnabas.spark.pipelines.tables import TableStore

STARTING: Final = "starting"
RUNNING: Final = "running"
FAILED: Final = "failed"
ENDED: Final = "ended"
HEARTBEAT_MS: Final = 5_000
SILENCE_MS: Final = 60_000
"""A process on another machine that has written nothing for this long is assumed dead. A batch that takes longer than
this is reported."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The last reported status of a pipeline. Times are in milliseconds since 1970."""

    pipeline: str
    state: str = STARTING
    host: str = ""
    pid: int = 0
    bootstrap_servers: str = ""
    updated_ms: int = 0
    batch_id: int | None = None
    last_batch_ms: int | None = None
    """When the last batch with rows ended."""
    input_rows_per_second: float = 0.0
    rows_per_second: float = 0.0
    behind: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    dead_letters: int = 0
    activity: str = ""
    """Spark's description of what the query does."""
    activity_since_ms: int = 0
    error: str | None = None
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The next offset to read, by topic and partition."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        document = json.loads(data)
        return cls(**{name: document[name] for name in cls.__slots__ if name in document})


class StatusDisplay:
    """Writes the status and the metrics of a pipeline, and forwards each call to another display."""

    def __init__(
        self,
        display: ProgressDisplay,
        store: Callable[[], TableStore],
        status: PipelineStatus,
        metrics: QueryMetrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``store`` opens the tables beside which the status is written."""
        self._display = display
        self._open = store
        self._clock = clock
        self._metrics = metrics
        self._status = status

    def batch(self, pipeline: str, progress: BatchProgress) -> None:
        self._display.batch(pipeline, progress)
        store = self._open()
        dead_letters = store.state().dead_letters
        now_ms = self._clock.milliseconds()
        status = self._status
        self._write(
            store,
            state=RUNNING,
            batch_id=progress.batch_id,
            last_batch_ms=now_ms if progress.rows else status.last_batch_ms,
            input_rows_per_second=progress.input_rows_per_second,
            rows_per_second=progress.rows_per_second if progress.rows else status.rows_per_second,
            behind=progress.behind,
            state_rows=progress.state_rows,
            state_bytes=progress.state_bytes,
            dead_letters=dead_letters,
            offsets=progress.offsets,
        )
        if self._metrics is not None:
            self._metrics.batch(status.pipeline, progress)
            self._metrics.dead_letters(status.pipeline, dead_letters)

    def activity(self, pipeline: str, text: str) -> None:
        self._display.activity(pipeline, text)
        now_ms = self._clock.milliseconds()
        if text != self._status.activity:
            self._status = replace(self._status, activity=text, activity_since_ms=now_ms)
        if now_ms - self._status.updated_ms >= HEARTBEAT_MS:
            self._write(self._open())

    def note(self, pipeline: str, text: str) -> None:
        self._display.note(pipeline, text)

    def __enter__(self) -> Self:
        self._display.__enter__()
        store = self._open()
        before = store.status()
        if before is not None:
            # The pipeline continues where it stopped, so offsets, batch and dead letters are still valid.
            last = PipelineStatus.from_json(before)
            new = self._status
            self._status = replace(last, pipeline=new.pipeline, bootstrap_servers=new.bootstrap_servers)
        if self._metrics is not None:
            self._metrics.dead_letters(self._status.pipeline, store.state().dead_letters)
        now_ms = self._clock.milliseconds()
        self._write(
            store,
            state=STARTING,
            error=None,
            host=socket.gethostname(),
            pid=os.getpid(),
            activity="",
            activity_since_ms=now_ms,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._metrics is not None:
                self._metrics.ended(self._status.pipeline, failed=error is not None)
            self._write(
                self._open(),
                state=ENDED if error is None else FAILED,
                error=None if error is None else str(error) or type(error).__name__,
            )
        finally:
            self._display.__exit__(kind, error, trace)

    def _write(self, store: TableStore, **changes: object) -> None:
        self._status = replace(self._status, updated_ms=self._clock.milliseconds(), **changes)  # type: ignore[arg-type]
        store.set_status(self._status.to_json())


@dataclass(frozen=True, slots=True)
class Cluster:
    """The current state of the cluster, to compare with the status of the pipeline."""

    end_offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    error: str | None = None
    """Why the cluster cannot be reached."""


def records_behind(status: PipelineStatus, cluster: Cluster) -> int | None:
    """Returns the lag of the pipeline in records: the current one if the cluster responds, else the last reported."""
    if cluster.error is not None or not cluster.end_offsets:
        return status.behind
    return sum(
        max(end - status.offsets.get(topic, {}).get(partition, 0), 0)
        for topic, partitions in cluster.end_offsets.items()
        for partition, end in partitions.items()
    )


def explain(status: PipelineStatus, cluster: Cluster, now_ms: int) -> tuple[str, str]:
    """Returns the state of a pipeline in one word, and a sentence with its lag or the reason why it is stuck."""
    silent_ms = now_ms - status.updated_ms
    if status.state == FAILED:
        return FAILED, f"failed {_time(silent_ms)} ago{_after(status)}: {status.error}"
    behind = records_behind(status, cluster)
    if status.state == ENDED:
        waiting = "" if not behind else f"; {behind:,} records are waiting for the next run"
        return ENDED, f"ended {_time(silent_ms)} ago{_after(status)}{waiting}"
    if not _is_alive(status, silent_ms):
        where = f"process {status.pid} on {status.host}"
        return "dead", f"{where} ended {_time(silent_ms)} ago or later, with no final status: start the pipeline again"
    if cluster.error is not None:
        return "stuck", f"the cluster cannot be reached: {cluster.error}"
    if status.state == STARTING:
        running = _time(now_ms - (status.activity_since_ms or status.updated_ms))
        return STARTING, f"no batch has ended yet; {status.activity or 'starting'} for {running}"
    busy_ms = now_ms - status.activity_since_ms
    if behind:
        if not _is_waiting(status.activity) and busy_ms > SILENCE_MS:
            return "slow", f"{behind:,} records behind; the current batch has been running for {_time(busy_ms)}"
        rate = status.rows_per_second
        if rate <= status.input_rows_per_second:
            return "falling behind", (
                f"{behind:,} records behind; processes {rate:,.0f}/s, and {status.input_rows_per_second:,.0f}/s arrive"
            )
        seconds = behind / (rate - status.input_rows_per_second)
        return RUNNING, f"{behind:,} records behind at {rate:,.0f}/s: up to date in {_time(int(seconds * 1_000))}"
    since = "" if status.last_batch_ms is None else f" for {_time(now_ms - status.last_batch_ms)}"
    return RUNNING, f"up to date; no new records{since}"


def _after(status: PipelineStatus) -> str:
    return "" if status.batch_id is None else f", after batch {status.batch_id}"


def _is_waiting(activity: str) -> bool:
    return activity.startswith("Waiting for")


def _is_alive(status: PipelineStatus, silent_ms: int) -> bool:
    if status.host != socket.gethostname():
        return silent_ms < SILENCE_MS
    try:
        os.kill(status.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _time(milliseconds: int) -> str:
    """
    >>> _time(900), _time(75_000), _time(7_260_000), _time(200_000_000)
    ('1 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    seconds = max(round(milliseconds / 1_000), 0)
    if seconds < 60:
        return f"{seconds} s"
    for size, unit, part_size, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // part_size} {part}"
    raise AssertionError(seconds)
