"""Finds out whether a batch that was rejected as out of order is already in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from barnabas.clients.producer.internals.producer_batch import ProducerBatch, ProducerIdAndEpoch
from barnabas.common.errors import Errors, InvalidMetadataError
from barnabas.network.client.inflight import FOREVER
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from barnabas.records.batch import decrement_sequence

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.kafka_client import KafkaClient
    from barnabas.clients.producer.internals.producer_metadata import ProducerMetadata
    from barnabas.clients.producer.internals.record_accumulator import RecordAccumulator
    from barnabas.clients.producer.internals.sender_config import SenderConfig
    from barnabas.clients.producer.internals.transaction_manager import TransactionManager
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.network.client.client_request import ClientResponse
    from barnabas.network.client.node import Node

log = logging.getLogger(__name__)

MAX_TRIES: Final = 10
"""How often a leader is asked about one batch before the epoch is bumped."""


class Verdict(Enum):
    """What the leader's producer state says about a batch that it has rejected."""

    WRITTEN = "it is in the log, and so is one behind it"
    EXPECTED = "it is what the leader waits for, or has got last: it ought to be taken"
    UNKNOWN = "nothing can be told"


def verdict(base_sequence: int, last_sequence: int, next_sequence: int, known: int | None) -> Verdict:
    """Judges a batch from ``base_sequence`` to ``last_sequence`` by the leader's last sequence, ``known``.

    ``next_sequence`` is the producer's next one. Sequences wrap to 0 after 2^31, so only distances are compared. A
    ``known`` beyond anything ever sent, or before this batch, proves nothing."""
    if known is None or known < 0:
        return Verdict.UNKNOWN
    beyond = decrement_sequence(known, last_sequence)
    if beyond == 0 or known == decrement_sequence(base_sequence, 1):
        return Verdict.EXPECTED
    sent_beyond = decrement_sequence(decrement_sequence(next_sequence, 1), last_sequence)
    return Verdict.WRITTEN if beyond <= sent_beyond else Verdict.UNKNOWN


def covered(in_flight: Sequence[ProducerBatch], batch: ProducerBatch, known: int) -> list[ProducerBatch]:
    """Returns the batches from this one to the one that ends with the leader's last sequence.

    Returns none if there is no such batch, or if one of them cannot have been written: a batch that the leader has
    rejected each time is not in the log, whatever came after."""
    found: list[ProducerBatch] = []
    for other in in_flight[in_flight.index(batch) :] if batch in in_flight else ():
        if not other.may_be_written:
            break
        found.append(other)
        if other.last_sequence == known:
            return found
    return []


class Stage(Enum):
    """The stage of a question."""

    ASK = "the leader is to be asked"
    ASKED = "its response is on the way"
    PROVE = "the witness is to be sent"
    PROVING = "the witness is on the way"
    RESEND = "the batch itself is to be sent once more"


class SequenceQuestion:
    """A question about the first batch in flight of a partition. While it is open, nothing else of the partition is
    sent."""

    __slots__ = ("base_sequence", "batch", "before", "identity", "not_before_ms", "stage", "tries", "witness")

    def __init__(self, batch: ProducerBatch) -> None:
        self.batch = batch
        self.identity = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
        self.base_sequence = batch.base_sequence
        self.stage = Stage.ASK
        self.tries = 0
        self.not_before_ms = 0
        self.witness: ProducerBatch | None = None
        self.before: Sequence[ProducerBatch] = ()
        """The batches that the witness proves."""

    @property
    def holds_back(self) -> bool:
        return self.stage is not Stage.RESEND

    @property
    def is_over(self) -> bool:
        """Whether the batch has ended, or has another sequence."""
        batch = self.batch
        return batch.is_done or (batch.producer_id, batch.producer_epoch, batch.base_sequence) != (
            *self.identity,
            self.base_sequence,
        )


class SequenceResolver:
    """Asks partition leaders for their last sequence, and acts on it. Used by the I/O thread.

    **Problem.** A broker recognises the last five batches of a producer as duplicates. Apache Kafka, restarted after a
    crash, recognises one: it recovers a log from a producer snapshot, which holds only the last batch of each producer.
    If several batches of a partition were written and not acknowledged, the first of them is now neither the next one
    nor a known one: ``OUT_OF_ORDER_SEQUENCE_NUMBER``. Kafka's producer then bumps its epoch, and writes them all a
    second time.

    **Question.** DescribeProducers returns the leader's last sequence of a producer. A leader takes no batch before its
    predecessor, so a batch whose last sequence is lower is in the log.

    **Proof.** That is only the leader's log; ``acks=all`` promises more. So the batch which is the leader's last, the
    *witness*, is sent again, out of turn. The leader recognises it, and acknowledges it when the whole ISR has it, and
    with it everything before it. Then all these are complete; their offsets are unknown, except for the witness.

    **In doubt** the epoch is bumped, as in Kafka: if the leader does not know the producer or has another epoch, if the
    leader is behind, if it does not respond (which takes the right to read the topic), after `MAX_TRIES`, or if the
    broker responded to each attempt, so that its response counts.
    """

    def __init__(
        self,
        client: KafkaClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        manager: TransactionManager,
        config: SenderConfig,
        send_alone: Callable[[Node, ProducerBatch, int], None],
        complete: Callable[[ProducerBatch], None],
    ) -> None:
        """``send_alone`` sends a batch in its own request; ``complete`` completes one whose offset is unknown."""
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._manager = manager
        self._config = config
        self._send_alone = send_alone
        self._complete = complete

    def run(self, now: int) -> int:
        """Advances the open questions; returns how long there is nothing to do."""
        delay_ms = FOREVER
        for partition, question in list(self._manager.partitions.sequence_questions.items()):
            delay_ms = min(delay_ms, self._advance(partition, question, now))
        return delay_ms

    def _advance(self, partition: TopicPartition, question: SequenceQuestion, now: int) -> int:
        if question.stage is Stage.PROVING:
            assert question.witness is not None
            if question.witness.in_flight:
                return FOREVER  # even if the batch has expired: there are others between the two
            # It was not confirmed, or `proved` would have been called. Start again.
            self._ask_again(question, now)
        if question.is_over:
            del self._manager.partitions.sequence_questions[partition]
            return FOREVER
        if question.stage is Stage.ASKED or question.stage is Stage.RESEND:
            return FOREVER
        if now < question.not_before_ms:
            return question.not_before_ms - now
        if question.stage is Stage.ASK and question.tries >= MAX_TRIES:
            self._give_up(partition, f"asked {question.tries} times")
            return FOREVER
        node = self._metadata.snapshot.leader_for(partition)
        if node is None:
            self._metadata.request_update()
            return max(self._config.retry_backoff_ms, 1)
        if not self._client.ready(node, now):
            return max(self._client.poll_delay_ms(node, now), 1)
        if question.stage is Stage.ASK:
            self._ask(partition, question, node, now)
        else:
            self._prove(question, node, now)
        return FOREVER

    def _ask(self, partition: TopicPartition, question: SequenceQuestion, node: Node, now: int) -> None:
        question.stage = Stage.ASKED
        question.tries += 1
        topic, index = partition
        self._client.send(
            self._client.new_client_request(
                node.id_string,
                DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])]),
                now,
                request_timeout_ms=self._config.request_timeout_ms,
                callback=lambda response: self._handle_response(partition, question, response),
            ),
            now,
        )

    def _ask_again(self, question: SequenceQuestion, now: int) -> None:
        question.stage = Stage.ASK
        question.witness = None
        question.not_before_ms = now + self._accumulator.retry_backoff.backoff(question.tries - 1)

    def _give_up(self, partition: TopicPartition, why: str) -> None:
        log.info("Whether the leader of %s has a batch that it refused cannot be told: %s", partition, why)
        del self._manager.partitions.sequence_questions[partition]
        self._manager.request_idempotent_epoch_bump_for_partition(partition)

    # -- responses

    def _handle_response(self, partition: TopicPartition, question: SequenceQuestion, response: ClientResponse) -> None:
        if self._manager.partitions.sequence_questions.get(partition) is not question or question.is_over:
            return  # no longer relevant
        now = response.received_ms
        if response.version_mismatch is not None:
            self._give_up(partition, str(response.version_mismatch))
            return
        if response.body is None:
            self._ask_again(question, now)
            return
        assert isinstance(response.body, DescribeProducersResponse)
        row = _row(response.body, partition)
        error = Errors.UNKNOWN_SERVER_ERROR if row is None else Errors.for_code(row.error_code)
        if row is None or error is not Errors.NONE:
            if error.exception is not None and issubclass(error.exception, InvalidMetadataError):
                self._metadata.request_update()
            if error.retriable:
                self._ask_again(question, now)
            else:
                self._give_up(partition, error.name)
            return
        self._decide(partition, question, _last_sequence(row, question.identity), now)

    def _decide(self, partition: TopicPartition, question: SequenceQuestion, known: int | None, now: int) -> None:
        batch = question.batch
        in_flight, next_sequence = self._manager.partitions.window(partition)
        outcome = verdict(batch.base_sequence, batch.last_sequence, next_sequence, known)
        if outcome is Verdict.EXPECTED:
            question.stage = Stage.RESEND
            return
        if outcome is Verdict.WRITTEN:
            assert known is not None
            if any(other.in_flight for other in in_flight):
                # Those are on another connection, perhaps to a former leader. Their responses come first.
                self._ask_again(question, now)
                return
            written = covered(in_flight, batch, known)
            if written:
                question.stage = Stage.PROVE
                question.not_before_ms = 0
                *question.before, question.witness = written
                return
        self._give_up(partition, f"it has {'nothing' if known is None else known}, and got {batch.base_sequence}")

    # -- the proof

    def _prove(self, question: SequenceQuestion, node: Node, now: int) -> None:
        assert question.witness is not None
        if self._accumulator.take(question.witness):
            question.stage = Stage.PROVING
            self._send_alone(node, question.witness, now)
        else:
            self._ask_again(question, now)  # it has expired

    def proved(self, batch: ProducerBatch) -> None:
        """Handles a confirmed batch. If it is a witness, those before it are completed first."""
        partition = batch.topic_partition
        question = self._manager.partitions.sequence_questions.get(partition)
        if question is None or question.witness is not batch:
            return
        del self._manager.partitions.sequence_questions[partition]
        for earlier in question.before:
            if not earlier.is_done:
                self._accumulator.take(earlier)
                log.info("The batch for %s with sequence %d is in the log already", partition, earlier.base_sequence)
                self._complete(earlier)


def _row(response: DescribeProducersResponse, partition: TopicPartition) -> PartitionResponse | None:
    for topic in response.topics:
        if topic.name == partition.topic:
            for row in topic.partitions:
                if row.partition_index == partition.partition:
                    return row
    return None


def _last_sequence(row: PartitionResponse, identity: ProducerIdAndEpoch) -> int | None:
    for state in row.active_producers:
        if (state.producer_id, state.producer_epoch) == identity:
            return state.last_sequence
    return None
