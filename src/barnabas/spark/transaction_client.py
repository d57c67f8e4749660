"""The sink's requests to coordinators: end and describe the tasks' transactions, commit and fetch group offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from barnabas.clients.common.blocking_client import ClientError, raise_for
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import BarnabasError, Errors
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.versions import VersionRange
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.sink_messages import TaskTransaction
from barnabas.spark.sink_settings import SinkSettings
from barnabas.spark.transaction_decision import CommittedOffset

log = logging.getLogger(__name__)

T = TypeVar("T")

_GROUP: Final = 0
_TRANSACTION: Final = 1
_LAST_END_TXN_BEFORE_V2: Final = 4
_LAST_BY_NAME: Final = 9
"""The last version of OffsetCommit and OffsetFetch with topic names; later ones need ids, which must be looked up."""
_FIRST_OF_SEVERAL: Final = 8
_FIRST_FIND_OF_SEVERAL: Final = 4
_UNUSED_TIMEOUT_MS: Final = 60_000
"""The timeout when taking over a transactional id without writing: a producer's default, which every broker allows."""

ONGOING: Final = "Ongoing"
COMMITTING: Final = frozenset({"PrepareCommit", "CompleteCommit"})

_PASSING: Final = frozenset(
    {
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.NOT_COORDINATOR,
        Errors.CONCURRENT_TRANSACTIONS,
        Errors.REQUEST_TIMED_OUT,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_ENOUGH_REPLICAS,
    }
)
_NOT_THAT_TRANSACTION: Final = frozenset(
    {
        Errors.INVALID_TXN_STATE,
        Errors.PRODUCER_FENCED,
        Errors.INVALID_PRODUCER_EPOCH,
        Errors.INVALID_PRODUCER_ID_MAPPING,
        Errors.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""Errors which mean that a transaction was ended the other way, or that a later one exists."""


class TransactionStatus(NamedTuple):
    """The state of the last transaction of a transactional id."""

    state: str
    producer_id: int
    epoch: int

    def is_open(self, transaction: TaskTransaction) -> bool:
        return self == (ONGOING, transaction.producer_id, transaction.epoch)

    def is_committed(self, transaction: TaskTransaction) -> bool:
        """Returns whether it is the last one and was committed. With version 2, ending it raises the epoch."""
        epochs = (transaction.epoch, transaction.epoch + 1)
        return self.state in COMMITTING and self.producer_id == transaction.producer_id and self.epoch in epochs


class TransactionClient(ClusterClient):
    """Retries after transient errors, for at most ``max.block.ms`` per call; then raises the last one."""

    def __init__(self, settings: SinkSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(settings.client, clock=clock)
        self._max_block_ms = settings.max_block_ms
        self._coordinators: dict[tuple[int, str], Node] = {}

    # -- transactions

    def statuses(self, transactional_ids: Iterable[str]) -> dict[str, TransactionStatus]:
        """Describes transactional ids; unknown ones are omitted."""
        found: dict[str, TransactionStatus] = {}
        unknown: set[str] = set()

        def attempt() -> bool:
            missing = [one for one in transactional_ids if one not in found and one not in unknown]
            if not missing:
                return True
            for node, ids in self._by_coordinator(_TRANSACTION, missing).items():
                answer = self.send(DescribeTransactionsRequest(transactional_ids=ids), node)
                for one in answer.transaction_states:
                    if one.error_code == Errors.TRANSACTIONAL_ID_NOT_FOUND:
                        unknown.add(one.transactional_id)
                    elif not self._passes(one.error_code, _TRANSACTION, one.transactional_id):
                        found[one.transactional_id] = TransactionStatus(
                            one.transaction_state, one.producer_id, one.producer_epoch
                        )
            return len(found) + len(unknown) == len(set(transactional_ids))

        self._until(attempt, "Transactions cannot be described")
        return found

    def end_transactions(self, transactions: Mapping[str, TaskTransaction], *, commit: bool) -> frozenset[str]:
        """Ends transactions; returns those that were ended the other way before, or no longer exist.

        A transaction that was already ended in the same way is not an error, so the call can be repeated.
        """
        requests = {name: _end_txn(name, one, commit=commit) for name, one in transactions.items()}
        what = f"Transactions cannot be {'committed' if commit else 'aborted'}"
        return self._ask_each(requests, what, harmless=_NOT_THAT_TRANSACTION)

    def take_over(self, transactional_ids: Iterable[str]) -> None:
        """Becomes the producer of these ids: aborts their open transactions and fences their previous producers."""
        requests = {
            name: InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_UNUSED_TIMEOUT_MS)
            for name in transactional_ids
        }
        self._ask_each(requests, "Transactional ids cannot be taken over")

    def _ask_each(
        self, requests: Mapping[str, Request | _Within], what: str, harmless: Collection[Errors] = ()
    ) -> frozenset[str]:
        """Sends one request per transactional id to its coordinator. Returns the ids with a harmless error."""
        rest = dict(requests)
        marked: set[str] = set()

        def attempt() -> bool:
            failure: ClientError | None = None
            posted = [
                (name, self.post(rest[name], node))
                for node, ids in self._by_coordinator(_TRANSACTION, list(rest)).items()
                for name in ids
            ]
            for name, request in posted:
                try:
                    error = Errors.for_code(self.wait(request).error_code)
                except ClientError as problem:
                    failure = problem
                    self._coordinators.pop((_TRANSACTION, name), None)
                    continue
                if error in harmless:
                    marked.add(name)
                elif self._passes(error, _TRANSACTION, name):
                    continue
                del rest[name]
            if failure is not None:
                raise failure
            return not rest

        self._until(attempt, what)
        return frozenset(marked)

    def ongoing_transactions(self) -> list[str]:
        """Returns the transactional ids in the whole cluster with an open transaction."""
        found: list[str] = []

        def attempt() -> bool:
            found.clear()
            for node in self.nodes().values():
                answer = self.send(ListTransactionsRequest(state_filters=[ONGOING]), node)
                if answer.error_code in _PASSING:
                    return False
                raise_for(answer.error_code, "transactions cannot be listed")
                found.extend(one.transactional_id for one in answer.transaction_states)
            return True

        self._until(attempt, "Transactions cannot be listed")
        return found

    # -- offsets of groups

    def committed(self, group: str) -> dict[str, CommittedOffset]:
        """Returns the offsets that a group has committed for partition 0 of each topic."""
        found: dict[str, CommittedOffset] = {}

        def attempt() -> bool:
            answer = self.send(_OffsetFetch(group), self._coordinator(_GROUP, group))
            of_group = answer.groups[0] if answer.groups else answer
            if self._passes(of_group.error_code, _GROUP, group):
                return False
            for topic in of_group.topics:
                for one in topic.partitions:
                    raise_for(one.error_code, f"the offsets of group {group} cannot be read")
                    if one.partition_index == 0 and one.committed_offset >= 0:
                        found[topic.name] = CommittedOffset(one.committed_offset, one.metadata or "")
            return True

        self._until(attempt, f"The offsets of group {group} cannot be read")
        return found

    def commit_offset(self, group: str, topic: str, offset: CommittedOffset) -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset.offset, committed_metadata=offset.metadata
        )
        named = OffsetCommitRequestTopic(name=topic, partitions=[partition])
        request = _UpTo(OffsetCommitRequest(group_id=group, topics=[named]), ApiKey.OFFSET_COMMIT, _LAST_BY_NAME)

        def attempt() -> bool:
            answer = self.send(request, self._coordinator(_GROUP, group))
            return not self._passes(answer.topics[0].partitions[0].error_code, _GROUP, group)

        self._until(attempt, f"An offset of group {group} cannot be committed")

    # -- coordinators and retries

    def _by_coordinator(self, kind: int, keys: Sequence[str]) -> dict[Node, list[str]]:
        self._find(kind, [key for key in keys if (kind, key) not in self._coordinators])
        by_node: dict[Node, list[str]] = {}
        for key in keys:
            by_node.setdefault(self._coordinators[kind, key], []).append(key)
        return by_node

    def _coordinator(self, kind: int, key: str) -> Node:
        return next(iter(self._by_coordinator(kind, [key])))

    def _find(self, kind: int, keys: Sequence[str]) -> None:
        if not keys:
            return
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
        versions = VersionRange(_FIRST_FIND_OF_SEVERAL, ApiKey.FIND_COORDINATOR.stable_versions.highest)
        answer = self.send(_Within(request, ApiKey.FIND_COORDINATOR, versions), self._connect())
        for one in answer.coordinators:
            if one.error_code in _PASSING:
                raise _NotYetError(Errors.for_code(one.error_code).message)
            raise_for(one.error_code, f"{one.key} has no coordinator")
            self._coordinators[kind, one.key] = Node(one.node_id, one.host, one.port)

    def _passes(self, code: int, kind: int, key: str) -> bool:
        """Returns whether an error is transient; raises any other error."""
        if code in _PASSING:
            if code != Errors.CONCURRENT_TRANSACTIONS:
                self._coordinators.pop((kind, key), None)
            self._last_error = Errors.for_code(code)
            return True
        if code:
            error = Errors.for_code(code)
            raise _RefusedError(f"{key}: {error.message} ({error.name})")
        return False

    def _until(self, attempt: Callable[[], bool], what: str) -> None:
        """Retries until the attempt succeeds, also after a lost response: all requests are idempotent."""
        deadline = self._clock.hi_res_milliseconds() + self._max_block_ms
        pause_ms = self.settings.retry_backoff_ms
        while True:
            self._last_error = Errors.NONE
            try:
                if attempt():
                    return
                reason = self._last_error.message
            except _RefusedError as refused:
                raise ClientError(f"{what}: {refused}") from refused
            except ClientError as error:
                reason = str(error)
                self._coordinators.clear()
            if self._clock.hi_res_milliseconds() >= deadline:
                raise ClientError(f"{what} within {self._max_block_ms} ms: {reason}")
            log.info("%s yet: %s", what, reason)
            self._clock.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, self.settings.retry_backoff_max_ms)

    _last_error = Errors.NONE


class _NotYetError(ClientError):
    """No coordinator is available at present."""


class _RefusedError(BarnabasError):
    """An error that is not transient."""


class _Within:
    """A request that is limited to a range of versions."""

    def __init__(self, body: Request, api_key: ApiKey, versions: VersionRange) -> None:
        self._body = body
        self.api_key = api_key
        self.allowed_versions = versions

    def build(self, version: int) -> Request:  # noqa: ARG002 - the same in all allowed versions
        return self._body


class _UpTo(_Within):
    def __init__(self, body: Request, api_key: ApiKey, highest: int) -> None:
        super().__init__(body, api_key, VersionRange(api_key.stable_versions.lowest, highest))


class _OffsetFetch:
    """Fetches all offsets that a group has committed, without those of open transactions."""

    api_key = ApiKey.OFFSET_FETCH
    allowed_versions = VersionRange(2, _LAST_BY_NAME)

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, version: int) -> Request:
        if version < _FIRST_OF_SEVERAL:
            return OffsetFetchRequest(group_id=self._group, topics=None)
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group, topics=None)])


def _end_txn(name: str, transaction: TaskTransaction, *, commit: bool) -> _Within:
    body = EndTxnRequest(
        transactional_id=name,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
    )
    highest = ApiKey.END_TXN.stable_versions.highest if transaction.is_v2 else _LAST_END_TXN_BEFORE_V2
    return _UpTo(body, ApiKey.END_TXN, highest)
