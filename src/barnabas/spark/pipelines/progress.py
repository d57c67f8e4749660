"""Shows the progress of a running pipeline: batch, rows, rows per second and lag."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Protocol, Self


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A completed batch."""

    batch_id: int
    rows: int
    rows_per_second: float
    seconds: float
    behind: int | None
    """The lag: records of the topics that are not in the tables yet; None if the source does not report it."""
    input_rows_per_second: float = 0.0
    state_rows: int = 0
    """Rows in the state of aggregations, joins and the like."""
    state_bytes: int = 0
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The next offset to read, by topic and partition."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Self:
        """Parses Spark's progress report of a batch."""
        sources = report.get("sources", ())
        behind = [records_behind(source) for source in sources]
        operators = report.get("stateOperators", ())
        offsets: dict[str, dict[str, int]] = {}
        for source in sources:
            for (topic, partition), offset in (_offsets(source.get("endOffset")) or {}).items():
                offsets.setdefault(topic, {})[partition] = offset
        return cls(
            int(report["batchId"]),
            int(report.get("numInputRows") or 0),
            float(report.get("processedRowsPerSecond") or 0.0),
            int(report.get("batchDuration") or 0) / 1_000,
            sum(one or 0 for one in behind) if behind and None not in behind else None,
            float(report.get("inputRowsPerSecond") or 0.0),
            sum(int(one.get("numRowsTotal") or 0) for one in operators),
            sum(int(one.get("memoryUsedBytes") or 0) for one in operators),
            offsets,
        )

    def __str__(self) -> str:
        behind = "" if self.behind is None else f", {self.behind:,} behind"
        return (
            f"batch {self.batch_id}: {self.rows:,} rows in {self.seconds:.1f} s, "
            f"{self.rows_per_second:,.0f} rows/s{behind}"
        )


def records_behind(source: Mapping[str, Any]) -> int | None:
    """Returns the number of records between the end of a batch and the end of the topics.

    >>> records_behind({"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 8, "1": 2}}})
    5
    """
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(offset - end.get(place, 0), 0) for place, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int] | None:
    """Returns the offsets by topic and partition; None if they are not in the connector's form."""
    try:
        by_topic = json.loads(value) if isinstance(value, str) else value
        return {
            (topic, partition): int(offset)
            for topic, partitions in by_topic.items()
            if not topic.startswith("@")  # additions of our source
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        return None


class ProgressDisplay(Protocol):
    """Shows progress."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def batch(self, pipeline: str, progress: BatchProgress) -> None: ...
    def note(self, pipeline: str, text: str) -> None: ...
    def activity(self, pipeline: str, text: str) -> None:
        """Takes Spark's description of what the query does, several times a second."""


class LineProgress:
    """Prints a line for each batch that has rows: for logs and pipes."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream

    def batch(self, pipeline: str, progress: BatchProgress) -> None:
        if progress.rows:
            self.note(pipeline, str(progress))

    def note(self, pipeline: str, text: str) -> None:
        self._stream.write(f"{pipeline}: {text}\n")
        self._stream.flush()

    def activity(self, pipeline: str, text: str) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class TerminalProgress:
    """Updates one line of a terminal: a spinner, or a bar once the amount of work is known."""

    def __init__(self) -> None:
        from rich.console import Console  # only needed on a terminal
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, Any] = {}
        self._done: dict[str, int] = {}

    def batch(self, pipeline: str, progress: BatchProgress) -> None:
        done = self._done[pipeline] = self._done.get(pipeline, 0) + progress.rows
        total = None if progress.behind is None else done + progress.behind
        self._progress.update(self._task(pipeline), completed=done, total=total, text=str(progress))

    def note(self, pipeline: str, text: str) -> None:
        self._progress.update(self._task(pipeline), text=text)

    def activity(self, pipeline: str, text: str) -> None:
        pass

    def _task(self, pipeline: str) -> Any:
        if pipeline not in self._tasks:
            self._tasks[pipeline] = self._progress.add_task(pipeline, total=None, text="")
        return self._tasks[pipeline]

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def progress_display(stream: IO[str] | None = None) -> ProgressDisplay:
    """Returns the display for the error stream: a live line on a terminal, else plain lines."""
    stream = sys.stderr if stream is None else stream
    return TerminalProgress() if stream.isatty() else LineProgress(stream)
