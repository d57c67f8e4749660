"""The data files of a table that is not ours alone: named after the batch that wrote them, moved to their place.

Readers of a lake look at directories, and know nothing of our manifests. So a batch that is run again after a crash has
to find, and remove, what it left the first time:

1. Spark writes the rows to ``_barnabas/staging``, which readers pass over, as its name begins with an underscore.
2. The *plan*, a list of which file goes where, is written in one step.
3. The files are moved.
4. The table's format commits them, if it has commits; then the *mark* says that the batch is in.

A batch without a mark is done again from the start: whatever its plan has moved is deleted first, so that no row is in
the table twice. Until then readers of a table without commits may see part of a batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from barnabas.spark.pipelines.file_system import FileSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWN: Final = "_barnabas"
PLAN: Final = f"{OWN}/plan.json"
MARK: Final = f"{OWN}/batch.json"
STAGING: Final = f"{OWN}/staging"
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the table."""

    path: str
    """Below the table's directory."""
    size: int
    partition: dict[str, str | None]


class LakeFiles:
    """The directory of a table."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.files = FileSystem(spark, location)

    def mark(self) -> tuple[str, int]:
        """Query and number of the last batch; -1 if there is none."""
        if not self.files.exists(MARK):
            return "", -1
        found = json.loads(self.files.read(MARK))
        return found["query_id"], found["batch_id"]

    def set_mark(self, query_id: str, batch_id: int) -> None:
        self.files.replace(MARK, json.dumps({"query_id": query_id, "batch_id": batch_id}).encode())
        self.files.delete(PLAN)

    def undo(self, last_batch: int) -> None:
        """Removes what a batch has moved that did not come to its end; `last_batch` did."""
        if self.files.exists(PLAN):
            plan = json.loads(self.files.read(PLAN))
            if plan["batch_id"] > last_batch:
                for target in plan["moves"].values():
                    self.files.delete(target)
            self.files.delete(PLAN)
        self.files.delete(STAGING)

    def add(
        self, frames: dict[str, DataFrame], partition_by: tuple[str, ...], query_id: str, batch_id: int
    ) -> dict[str, list[DataFile]]:
        """Writes frames, each below a directory ("" is the table's own), and returns what is there then of each."""
        tag = f"{query_id[:8]}-{batch_id:09d}"
        moves: dict[str, str] = {}
        found: dict[str, list[DataFile]] = {}
        for number, (directory, frame) in enumerate(frames.items()):
            staging = f"{STAGING}/{number}"
            keys = partition_by if not directory else ()
            frame.write.partitionBy(*keys).mode("overwrite").parquet(f"{self.files.root}/{staging}")
            found[directory] = []
            for index, (name, size) in enumerate(self.files.walk(staging, ".parquet")):
                parts = name.split("/")[:-1]
                target = "/".join([*([directory] if directory else []), *parts, f"{tag}-{index:05d}.parquet"])
                moves[f"{staging}/{name}"] = target
                found[directory].append(DataFile(target, size, partition_values(parts)))
        self.files.replace(PLAN, json.dumps({"batch_id": batch_id, "moves": moves}).encode())
        for source, target in moves.items():
            self.files.rename(source, target)
        self.files.delete(STAGING)
        return found


def partition_values(parts: list[str]) -> dict[str, str | None]:
    """
    >>> partition_values(["date=2026-11-15", "topic=a%2Fb"])
    {'date': '2026-11-15', 'topic': 'a/b'}
    """
    values: dict[str, str | None] = {}
    for part in parts:
        name, _, value = part.partition("=")
        values[unquote(name)] = None if value == NULL_PARTITION else unquote(value)
    return values


def as_local_path(uri: str) -> str:
    """The path of a ``file:`` URI; any other stays as it is."""
    return unquote(uri.removeprefix("file:").replace("///", "/", 1)) if uri.startswith("file:") else uri


def json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
