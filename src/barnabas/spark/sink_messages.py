"""What tasks tell the driver about the rows that they have written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    """A task has written its rows, for everybody to see."""

    rows: int


class TaskTransaction(NamedTuple):
    """A transaction as its coordinator knows it, apart from the transactional id, which the task's number gives."""

    producer_id: int
    epoch: int
    is_v2: bool
    """Whether it is of version 2 of the protocol (KIP-890), and so has to be ended by a request that raises the
    epoch."""


class Outcome(Enum):
    """What a task that writes in transactions has done."""

    WRITTEN = "written, and open"
    EMPTY = "nothing to write"
    DECIDED = "found its rows written before"


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """A task has written its rows, for nobody to see before the driver has ended the transaction."""

    job: str
    """The prefix and the id of the query, which transactional ids and groups begin with."""
    run: str
    """Which run of the query this was, as far as Spark tells."""
    partition: int
    outcome: Outcome
    rows: int = 0
    topic: str | None = None
    """One of those that were written to."""
    transaction: TaskTransaction | None = None
