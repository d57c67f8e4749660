"""A streaming query whose rows are kept by batch, and which can be made to fail or be set back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Rows = dict[int, list[tuple[int, int, str]]]
"""Partition, offset and value of the rows of each batch."""


class InjectedError(Exception):
    """A failure that a test asked for."""


class Stream:
    """A query from one or more topics to memory, with a checkpoint that outlives its runs.

    As an idempotent sink does, the rows of a batch replace those that an earlier attempt at it has left.
    """

    def __init__(self, spark: SparkSession, directory: Path, **options: str) -> None:
        self._spark = spark
        self.checkpoint = directory / "checkpoint"
        self.options = {name.replace("_", "."): value for name, value in options.items()}
        self.rows: Rows = {}
        self.attempts: list[int] = []
        """The batches in the order in which they were tried."""
        self.before_write: Callable[[int], None] = lambda _batch: None
        self.after_write: Callable[[int], None] = lambda _batch: None
        self.transform: Callable[[DataFrame], DataFrame] = lambda rows: rows
        self.progress: list[dict[str, Any]] = []

    def start(self, **trigger: Any) -> StreamingQuery:
        rows = self._spark.readStream.format("barnabas").options(**self.options).load()
        writer = self.transform(rows).writeStream.foreachBatch(self._write)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, **trigger: Any) -> None:
        """To the end of what is there, or until it fails; then the failure is raised."""
        query = self.start(**(trigger or {"availableNow": True}))
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
            self.progress = [json.loads(one.json) for one in query.recentProgress]

    def _write(self, rows: DataFrame, batch: int) -> None:
        self.attempts.append(batch)
        self.before_write(batch)
        found = rows.select("partition", "offset", "value").collect()
        self.rows[batch] = sorted((row.partition, row.offset, bytes(row.value).decode()) for row in found)
        self.after_write(batch)

    def values(self) -> list[str]:
        """Of all batches; a row that is in two of them is here twice."""
        return sorted(value for rows in self.rows.values() for _, _, value in rows)

    def batches(self) -> dict[int, list[str]]:
        return {batch: [value for _, _, value in rows] for batch, rows in sorted(self.rows.items())}

    # -- crashes, as they leave a checkpoint

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died after this batch was written, and before that was noted."""
        _remove(self.checkpoint / "commits", batch)

    def forget_batch(self, batch: int) -> None:
        """As if it had died before the batch's offsets were noted."""
        self.forget_commit(batch)
        _remove(self.checkpoint / "offsets", batch)

    def noted_offsets(self, batch: int) -> Any:
        lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        return json.loads(lines[-1])


def _remove(directory: Path, batch: int) -> None:
    (directory / str(batch)).unlink()
    (directory / f".{batch}.crc").unlink(missing_ok=True)
