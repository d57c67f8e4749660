"""The messages of write tasks to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    """A task has written its rows, and they are visible."""

    rows: int


class TaskTransaction(NamedTuple):
    """A transaction as its coordinator knows it, without the transactional id, which follows from the task number."""

    producer_id: int
    epoch: int
    is_v2: bool
    """Whether it uses version 2 of the protocol (KIP-890), in which the request that ends it raises the epoch."""


class Outcome(Enum):
    """The result of a task that writes in transactions."""

    WRITTEN = "written, and open"
    EMPTY = "nothing to write"
    DECIDED = "found its rows written before"


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """A task has written its rows; they become visible when the driver commits the transaction."""

    job: str
    """The prefix and the query id, with which transactional ids and groups begin."""
    run: str
    """The run of the query, if Spark provides it."""
    partition: int
    outcome: Outcome
    rows: int = 0
    topic: str | None = None
    """One of the topics that the task wrote to."""
    transaction: TaskTransaction | None = None
