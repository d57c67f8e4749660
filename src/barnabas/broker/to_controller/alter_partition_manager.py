"""Sends ISR proposals to the controller in AlterPartition requests (KIP-497)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.errors import ApiError, Errors, OperationNotAttemptedError, UnknownServerError
from barnabas.common.identifiers import Uuid
from barnabas.common.scheduler import Scheduler
from barnabas.metadata.partition_registration import LeaderRecoveryState
from barnabas.network.client.client_request import ClientResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.versions import VersionRange
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.alter_partition import IsrMember, LeaderAndIsr

if TYPE_CHECKING:
    from barnabas.protocol.messages.alter_partition import (
        AlterPartitionRequest,
        RequestPartitionData,
        RequestTopicData,
        ResponsePartitionData,
    )
    from barnabas.server.controller_channel import ControllerChannel

log = logging.getLogger(__name__)

RETRY_DELAY_MS = 50
FIRST_VERSION_WITH_EPOCHS = 3

_Key = tuple[Uuid, int]


class _Proposal(NamedTuple):
    partition: TopicIdPartition
    leader_and_isr: LeaderAndIsr
    future: Future[LeaderAndIsr]

    @property
    def key(self) -> _Key:
        return self.partition.topic_id, self.partition.partition


class _AlterPartitionBuilder:
    """Builds the request: ISR members are plain ids up to version 2, and have broker epochs since version 3."""

    api_key = ApiKey.ALTER_PARTITION
    allowed_versions: VersionRange = ApiKey.ALTER_PARTITION.stable_versions

    def __init__(self, broker_id: int, broker_epoch: int, proposals: Sequence[_Proposal]) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._proposals = proposals

    def build(self, version: int) -> AlterPartitionRequest:
        from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, RequestTopicData

        topics: dict[Uuid, RequestTopicData] = {}
        for proposal in self._proposals:
            topic_id, _, index = proposal.partition
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = RequestTopicData(topic_id=topic_id)
            topic.partitions.append(_partition_data(index, proposal.leader_and_isr, version))
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch, topics=list(topics.values())
        )


def _partition_data(index: int, proposed: LeaderAndIsr, version: int) -> RequestPartitionData:
    from barnabas.protocol.messages.alter_partition import BrokerState, RequestPartitionData

    data = RequestPartitionData(
        partition_index=index,
        leader_epoch=proposed.leader_epoch,
        leader_recovery_state=proposed.leader_recovery_state,
        partition_epoch=proposed.partition_epoch,
    )
    if version >= FIRST_VERSION_WITH_EPOCHS:
        data.new_isr_with_epochs = [
            BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
            for member in proposed.isr_with_broker_epochs
        ]
    else:
        data.new_isr = list(proposed.isr)
    return data


class DefaultAlterPartitionManager:
    """Collects proposals while a request is in flight, and sends them together in the next one.

    When a broker falls behind, a thousand leaders remove it from their ISR within a second. With one request at a time,
    which carries all proposals collected meanwhile, that takes a handful of requests, however slow the controller is.

    A partition has at most one pending proposal, from :meth:`submit` to the controller's response about it. A second
    one would be based on a state that the first is about to change; its future fails with OPERATION_NOT_ATTEMPTED.

    ============================================ =====================================================
    response                                     effect on the proposals
    ============================================ =====================================================
    result or error of the partition             completes its future; the partition handles it
    nothing about a partition                    the proposal stays, and goes into the next request
    an error for all (STALE_BROKER_EPOCH, ...)   all stay, and are sent again after 50 ms
    ============================================ =====================================================

    There is no timeout: until the controller has decided, the leader uses the larger of both ISRs. It cannot give up,
    and waiting is safe. A change of the partition in the metadata makes the response irrelevant.

    Futures are completed on the channel's thread. Their callbacks may submit again.
    """

    def __init__(
        self, channel: ControllerChannel, scheduler: Scheduler, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._channel = channel
        self._scheduler = scheduler
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._lock = threading.Lock()
        """Guards the fields below. Not held while futures are completed or requests are sent."""
        self._pending: dict[_Key, _Proposal] = {}
        self._in_flight = False
        self._closed = False

    def start(self) -> None:
        self._channel.start()

    def shutdown(self) -> None:
        """Stops sending. Pending futures are never completed: their partitions are about to be closed."""
        with self._lock:
            self._closed = True
        self._channel.shutdown()

    def submit(self, partition: TopicIdPartition, leader_and_isr: LeaderAndIsr) -> Future[LeaderAndIsr]:
        future: Future[LeaderAndIsr] = Future()
        proposal = _Proposal(partition, leader_and_isr, future)
        with self._lock:
            accepted = not self._closed and self._pending.setdefault(proposal.key, proposal) is proposal
        if accepted:
            self._maybe_send()
        else:
            future.set_exception(
                OperationNotAttemptedError(f"The proposal {leader_and_isr} for {partition} was not sent.")
            )
        return future

    @property
    def pending(self) -> int:
        """Returns the number of proposals without a response."""
        return len(self._pending)

    def _maybe_send(self) -> None:
        with self._lock:
            if self._in_flight or self._closed or not self._pending:
                return
            self._in_flight = True
            proposals = list(self._pending.values())
        epoch = self._broker_epoch()
        log.debug("Proposing the ISR of %d partitions", len(proposals))
        self._channel.send_request(
            _AlterPartitionBuilder(self._broker_id, epoch, proposals), _Exchange(self, proposals)
        )

    def handle_response(self, proposals: Sequence[_Proposal], response: ClientResponse) -> None:
        """Handles the controller's response, or the failure to get one."""
        error = Errors.NETWORK_EXCEPTION  # retriable: the operator may fix the cause
        try:
            error = self._deliver(proposals, response)
        finally:
            with self._lock:
                self._in_flight = False
        if error is Errors.NONE:
            self._maybe_send()
        else:
            self._scheduler.schedule("send-alter-partition", self._maybe_send, RETRY_DELAY_MS)

    def _deliver(self, proposals: Sequence[_Proposal], response: ClientResponse) -> Errors:
        """Completes the futures of the proposals in the response; returns the top-level error, if there is one."""
        from barnabas.protocol.messages.alter_partition import AlterPartitionResponse

        failure = response.authentication_error or response.version_mismatch
        if failure is not None:
            log.error("No ISR can be changed, the controller cannot be asked: %s", failure)
            return Errors.for_exception(failure)
        body = response.body
        assert isinstance(body, AlterPartitionResponse)
        error = Errors.for_code(body.error_code)
        if error is not Errors.NONE:
            log.warning("The controller refused a proposal for ISRs with %s", error.name)
            return error
        partitions = {
            (topic.topic_id, partition.partition_index): partition
            for topic in body.topics
            for partition in topic.partitions
        }
        for proposal in proposals:
            data = partitions.get(proposal.key)
            if data is None:
                log.warning("%s was sent but is not in the response: it will be sent again", proposal.partition)
                continue
            with self._lock:  # before completing the future: its callbacks may submit the next proposal
                self._pending.pop(proposal.key, None)
            outcome = _outcome(data)
            if isinstance(outcome, LeaderAndIsr):
                proposal.future.set_result(outcome)
            else:
                proposal.future.set_exception(outcome)
        return Errors.NONE

    def abandoned(self) -> None:
        """Handles the shutdown of the channel."""
        with self._lock:
            self._closed = True
            self._in_flight = False


def _outcome(data: ResponsePartitionData) -> LeaderAndIsr | ApiError:
    error = Errors.for_code(data.error_code).to_exception()
    if error is not None:
        return error
    try:
        recovery_state = LeaderRecoveryState(data.leader_recovery_state)
    except ValueError:
        return UnknownServerError(f"the controller sent the recovery state {data.leader_recovery_state}")
    return LeaderAndIsr(
        data.leader_id,
        data.leader_epoch,
        recovery_state,
        tuple([IsrMember(broker_id) for broker_id in data.isr]),
        data.partition_epoch,
    )


class _Exchange:
    """One request in flight."""

    __slots__ = ("_manager", "_proposals")

    def __init__(self, manager: DefaultAlterPartitionManager, proposals: Sequence[_Proposal]) -> None:
        self._manager = manager
        self._proposals = proposals

    def on_complete(self, response: ClientResponse) -> None:
        self._manager.handle_response(self._proposals, response)

    def on_timeout(self) -> None:
        self._manager.abandoned()
