"""Stores the driver's decision to commit a batch, so that it survives the driver.

Many tasks write a batch, each in its own transaction, as a transaction belongs to one producer. To make the batch
visible, the driver must end all transactions, one after the other, and may die in between. So it first stores a list
of them. From then on the batch *is* committed: the next driver ends those that are still open.

The decision is stored as a committed offset of a group: the offset is the batch number, and the metadata lists the
transactions. Every cluster stores and replicates that, and no extra topic is needed. Metadata is limited
(``offset.metadata.max.bytes``), so a long list is split into pieces, each in its own group; the first piece, which
contains the number of pieces, is written last. Consecutive decisions alternate between two sets of groups, so a driver
that dies before it has written the first piece has not overwritten any piece of the previous decision::

    group                            offset  metadata
    barnabas-spark-QUERY-decision        41  1 8 0 3 run AKgPAh...    generation 8, piece 0 of 3
    barnabas-spark-QUERY-decision-0-1    41  1 8 1 3 run ...          even generations
    barnabas-spark-QUERY-decision-1-1    40  1 7 1 2 run ...          odd ones
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from barnabas.common.errors import BarnabasError
from barnabas.spark.sink_messages import TaskTransaction
from barnabas.spark.transaction_names import decision_group

_FORMAT: Final = "1"
_PARTS: Final = 6
MAX_METADATA_BYTES: Final = 4096
"""A broker's default limit."""


class DecisionError(BarnabasError):
    """A stored decision cannot be read."""


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str


class Offsets(Protocol):
    """The group offset operations that decisions use."""

    def committed(self, group: str) -> Mapping[str, CommittedOffset]:
        """Returns the committed offsets of partition 0, by topic."""
        ...

    def commit_offset(self, group: str, topic: str, offset: CommittedOffset) -> None: ...


class Decision(NamedTuple):
    """The transactions to commit for a batch, by task number; None for tasks without rows."""

    batch: int
    transactions: tuple[TaskTransaction | None, ...]
    run: str = "-"
    generation: int = 0

    def has(self, partition: int, transaction: TaskTransaction) -> bool:
        return partition < len(self.transactions) and self.transactions[partition] == transaction

    def pieces(self, limit: int = MAX_METADATA_BYTES) -> list[str]:
        """Encodes the decision as metadata strings of at most `limit` bytes each."""
        body = _encode(self.transactions)
        room = limit - len(f"{_FORMAT} {self.generation} 9999 9999 {self.run} ")
        if room < 1:
            raise ValueError(f"{limit} bytes are too few for a decision")
        count = max(1, -(-len(body) // room))
        return [
            f"{_FORMAT} {self.generation} {number} {count} {self.run} {body[number * room : (number + 1) * room]}"
            for number in range(count)
        ]


class DecisionLog:
    """Reads and writes the last decision of a job."""

    def __init__(self, job: str, offsets: Offsets, *, limit: int = MAX_METADATA_BYTES) -> None:
        self._group = decision_group(job)
        self._offsets = offsets
        self._limit = limit

    def read(self) -> Decision | None:
        first = _latest(self._offsets.committed(self._group))
        if first is None:
            return None
        piece = _Piece.parse(first.metadata)
        rest = [self._read_piece(number, first.offset, piece).body for number in range(1, piece.total)]
        return Decision(first.offset, _decode("".join([piece.body, *rest])), piece.run, piece.generation)

    def _read_piece(self, number: int, batch: int, first: _Piece) -> _Piece:
        group = self._piece_group(first.generation, number)
        expected = (first.generation, number, first.total, first.run)
        for found in self._offsets.committed(group).values():
            piece = _Piece.parse(found.metadata)
            if found.offset == batch and piece[:4] == expected:
                return piece
        raise DecisionError(f"Piece {number} of the decision about batch {batch} is missing in group {group}")

    def write(self, decision: Decision, topic: str) -> None:
        """Stores a decision; returns when it is durable. The topic only has to exist: offsets need one."""
        pieces = decision.pieces(self._limit)
        for number in reversed(range(len(pieces))):
            group = self._piece_group(decision.generation, number) if number else self._group
            self._offsets.commit_offset(group, topic, CommittedOffset(decision.batch, pieces[number]))

    def _piece_group(self, generation: int, number: int) -> str:
        return f"{self._group}-{generation % 2}-{number}"


class _Piece(NamedTuple):
    generation: int
    number: int
    total: int
    run: str
    body: str

    @classmethod
    def parse(cls, text: str) -> _Piece:
        parts = text.split(" ")
        if len(parts) != _PARTS or parts[0] != _FORMAT or not all(part.isdecimal() for part in parts[1:4]):
            raise DecisionError(f"{text[:80]!r} is not a decision: another program has committed offsets to this group")
        return cls(int(parts[1]), int(parts[2]), int(parts[3]), parts[4], parts[5])


def _latest(found: Mapping[str, CommittedOffset]) -> CommittedOffset | None:
    """Returns the newest decision. Batches of a query may use different topics, each with its own decision."""
    return max(found.values(), key=lambda one: (one.offset, _Piece.parse(one.metadata).generation), default=None)


def _encode(transactions: Iterable[TaskTransaction | None]) -> str:
    """Encodes two unsigned varints per transaction: the producer id plus 1, then the epoch and the version."""
    out = bytearray()
    for one in transactions:
        if one is None:
            out.append(0)
        else:
            _put(out, one.producer_id + 1)
            _put(out, one.epoch << 1 | one.is_v2)
    return base64.urlsafe_b64encode(out).decode().rstrip("=")


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _decode(text: str) -> tuple[TaskTransaction | None, ...]:
    try:
        numbers = _numbers(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise DecisionError(f"A decision is damaged: {error}") from error
    found: list[TaskTransaction | None] = []
    for number in numbers:
        if number == 0:
            found.append(None)
            continue
        rest = next(numbers, None)
        if rest is None:
            raise DecisionError("A decision is damaged: it ends in the middle of a transaction")
        found.append(TaskTransaction(number - 1, rest >> 1, bool(rest & 1)))
    return tuple(found)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for octet in data:
        number |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise DecisionError("A decision is damaged: it ends in the middle of a number")
