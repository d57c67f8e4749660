"""A cluster's transactions and groups in memory, which can be made to fail at any point (for the tests of the sink)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from barnabas.clients.producer.internals.producer_batch import ProducerIdAndEpoch
from barnabas.clients.producer.table_metadata import TableFuture, TableMetadata
from barnabas.common.errors import ProducerFencedError
from barnabas.spark.sink_messages import TaskTransaction
from barnabas.spark.transaction_client import TransactionStatus
from barnabas.spark.transaction_decision import CommittedOffset


class CrashError(BaseException):
    """Somebody has died. Not an `Exception`: nobody cleans up after that."""


@dataclass
class _Transactions:
    """Of one transactional id."""

    producer_id: int
    epoch: int = -1
    state: str = "Empty"
    rows: list[str] = field(default_factory=list)
    offsets: dict[str, dict[str, CommittedOffset]] = field(default_factory=dict)


class ScriptedCluster:
    """What a transaction coordinator does, by version 2 of the protocol, and what a group coordinator does.

    `at_call` is called before and after each request takes effect, with the number of such points so far: so a caller
    dies before it has sent a request, or before it has got the response.
    """

    def __init__(self) -> None:
        self.visible: list[str] = []
        self.groups: dict[str, dict[str, CommittedOffset]] = {}
        self.at_call: Callable[[int], None] = lambda _point: None
        self.points = 0
        self._known: dict[str, _Transactions] = {}

    def _point(self) -> None:
        self.points += 1
        self.at_call(self.points)

    def request(self, effect: Callable[[], Any]) -> Any:
        self._point()
        result = effect()
        self._point()
        return result

    # -- what producers do

    def init(self, name: str) -> ProducerIdAndEpoch:
        one = self._known.setdefault(name, _Transactions(len(self._known) + 1000))
        if one.state == "Ongoing":
            self._end(one, commit=False)
        one.epoch += 1
        one.state = "Empty"
        return ProducerIdAndEpoch(one.producer_id, one.epoch)

    def add(self, name: str, epoch: int, rows: list[str], offsets: dict[str, dict[str, CommittedOffset]]) -> None:
        one = self._known[name]
        if one.epoch != epoch:
            raise ProducerFencedError(name)
        one.state = "Ongoing"
        one.rows += rows
        one.offsets |= offsets

    def end(self, name: str, transaction: TaskTransaction, *, commit: bool) -> bool:
        """False: it is not that transaction, or was ended the other way."""
        one = self._known[name]
        if one.producer_id != transaction.producer_id:
            return False
        if one.state == "Ongoing" and one.epoch == transaction.epoch:
            self._end(one, commit=commit)
            return True
        return one.epoch == transaction.epoch + 1 and one.state == ("CompleteCommit" if commit else "CompleteAbort")

    def _end(self, one: _Transactions, *, commit: bool) -> None:
        if commit:
            self.visible += one.rows
            for group, offsets in one.offsets.items():
                self.groups.setdefault(group, {}).update(offsets)
        one.rows, one.offsets = [], {}
        one.epoch += 1
        one.state = "CompleteCommit" if commit else "CompleteAbort"

    # -- what happens

    def let_time_run_out(self) -> None:
        for one in self._known.values():
            if one.state == "Ongoing":
                self._end(one, commit=False)

    def open_transactions(self) -> list[str]:
        return [name for name, one in self._known.items() if one.state == "Ongoing"]

    def status(self, name: str) -> TransactionStatus | None:
        one = self._known.get(name)
        return None if one is None else TransactionStatus(one.state, one.producer_id, one.epoch)


class ScriptedClient:
    """In place of a `TransactionClient`."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster

    def statuses(self, transactional_ids: Iterable[str]) -> dict[str, TransactionStatus]:
        found = self._cluster.request(lambda: {name: self._cluster.status(name) for name in transactional_ids})
        return {name: status for name, status in found.items() if status is not None}

    def end_transactions(self, transactions: Mapping[str, TaskTransaction], *, commit: bool) -> frozenset[str]:
        ended = {
            name: self._cluster.request(lambda name=name, one=one: self._cluster.end(name, one, commit=commit))  # type: ignore[misc]
            for name, one in transactions.items()
        }
        return frozenset(name for name, worked in ended.items() if not worked)

    def take_over(self, transactional_ids: Iterable[str]) -> None:
        for name in list(transactional_ids):
            self._cluster.request(lambda name=name: self._cluster.init(name))  # type: ignore[misc]

    def ongoing_transactions(self) -> list[str]:
        found: list[str] = self._cluster.request(self._cluster.open_transactions)
        return found

    def committed(self, group: str) -> dict[str, CommittedOffset]:
        found: dict[str, CommittedOffset] = self._cluster.request(lambda: dict(self._cluster.groups.get(group, {})))
        return found

    def commit_offset(self, group: str, topic: str, offset: CommittedOffset) -> None:
        self._cluster.request(lambda: self._cluster.groups.setdefault(group, {}).update({topic: offset}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Coordinators:
    is_transaction_v2_enabled = True


class _Manager:
    def __init__(self, two_phase_commit: bool) -> None:
        self.enable_two_phase_commit = two_phase_commit
        self.coordinators = _Coordinators()
        self.producer_id_and_epoch = ProducerIdAndEpoch(-1, -1)


class ScriptedProducer:
    """In place of a `KafkaProducer`."""

    def __init__(self, cluster: ScriptedCluster, properties: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._name = properties["transactional.id"]
        self.transaction_manager = _Manager(properties.get("transaction.two.phase.commit.enable") == "true")
        self._in_transaction = False

    def init_transactions(self) -> None:
        self.transaction_manager.producer_id_and_epoch = self._cluster.request(lambda: self._cluster.init(self._name))

    def begin_transaction(self) -> None:
        self._in_transaction = True

    def send_table(self, topic: str, table: pa.RecordBatch) -> TableFuture:
        rows = table.column("value").to_pylist()
        self._cluster.request(lambda: self._cluster.add(self._name, self._epoch, rows, {}))
        future = TableFuture()
        future.set_result(TableMetadata(topic, len(rows), {}))
        return future

    def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group: str) -> None:
        made = {one.topic: CommittedOffset(offset.offset, "") for one, offset in offsets.items()}
        self._cluster.request(lambda: self._cluster.add(self._name, self._epoch, [], {group: made}))

    @property
    def _epoch(self) -> int:
        return self.transaction_manager.producer_id_and_epoch.epoch

    def flush(self) -> None:
        pass

    def prepare_transaction(self) -> None:
        self._in_transaction = False

    def close(self, timeout: float) -> None:
        if self._in_transaction and timeout:
            identity = self.transaction_manager.producer_id_and_epoch
            ended = TaskTransaction(identity.producer_id, identity.epoch, True)
            self._cluster.request(lambda: self._cluster.end(self._name, ended, commit=False))
