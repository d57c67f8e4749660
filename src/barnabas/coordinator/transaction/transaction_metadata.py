"""What a coordinator knows of a transactional id, and how each step changes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from barnabas.common.dataclass import dataclass, replace
from barnabas.common.errors import ProducerFencedError
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

MAX_EPOCH: Final = 2**15 - 1
LAST_USABLE_EPOCH: Final = MAX_EPOCH - 1
"""The highest epoch that a producer is given. One more is kept back, so that a producer can always be fenced."""
NO_TIMESTAMP: Final = -1
TWO_PHASE_COMMIT_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction that somebody else decides about: it has none (KIP-939)."""

_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int

    def successor(self, new_producer_id: int) -> ProducerIdAndEpoch:
        """The next epoch; the first one of a new id if one is given, as it must be if this is the last epoch."""
        if new_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(new_producer_id, 0)
        if is_epoch_exhausted(self.epoch):
            raise IllegalTransitionError(f"the epochs of producer {self.producer_id} are exhausted")
        return ProducerIdAndEpoch(self.producer_id, self.epoch + 1)


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class IllegalTransitionError(Exception):
    """A step that the table of states does not have, or that changes what it must not: a bug of the coordinator."""


def is_epoch_exhausted(epoch: int) -> bool:
    """Whether a producer needs a new id, as there is no epoch left after this one."""
    return epoch >= LAST_USABLE_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """A transactional id: its producer, and its transaction.

    It never changes. Each step, a method here, makes the next one, which is written to the log and takes the place of
    this one when it is replayed. Where Kafka keeps a *pending state* beside the present one while a write is under way,
    here the newest state and the committed one are two versions of the same entry in a timeline.

    **Epochs.** The pair of producer id and epoch is the identity by which brokers tell a producer from the one it has
    replaced. With transaction version 2 the epoch is raised at the end of each transaction as well, so that a late
    record of one cannot get into the next::

        EMPTY (id 7, epoch 3) -> ONGOING (7, 3) -> PREPARE_COMMIT (7, 4) -> COMPLETE_COMMIT (7, 4) -> ONGOING (7, 4) ...

    When there are no more epochs, the producer gets a new id. Markers still have to bear the old one, so the new one
    waits in `next_producer_id` until they are written::

        ONGOING (7, 32766) -> PREPARE_COMMIT (7, 32767; next 9) -> COMPLETE_COMMIT (9, 0; previous 7)

    **Kept transactions** (KIP-939). If somebody else decides about a transaction, a producer that begins anew must not
    abort what its predecessor has prepared. It gets a new identity nevertheless, so that the predecessor is fenced; but
    the transaction has to stay what it is, for records bear its identity, and so does the other system's note of what
    it has decided. So there are two, and the producer's own waits in `next_producer_id` and `next_producer_epoch`. It
    is the one to end the transaction with::

        ONGOING (7, 3) -> ONGOING (7, 3; next 7, 4) -> ONGOING (7, 3; next 7, 5)        each time a producer begins
        -> PREPARE_COMMIT (7, 4; next 7, 6) -> COMPLETE_COMMIT (7, 6)                   7, 5 commits: markers bear 7, 4

    `previous_producer_id` and `last_producer_epoch` are for producers that send a request again because the answer was
    lost: they still have the old identity, and must not be taken for fenced ones.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    """-1 if there is no next id, and if the next one has just been made: its epoch is 0 then."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """Not in the log: a producer that sends a request again after the coordinator has moved is fenced."""
    txn_timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    topic_partitions: frozenset[TopicPartition] = _NO_PARTITIONS
    txn_start_timestamp: int = NO_TIMESTAMP
    txn_last_update_timestamp: int
    client_transaction_version: TransactionVersion = TransactionVersion.TV_0

    # -- what it is like

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Whether its transaction is not of the present producer, but of one before."""
        return self.state is TransactionState.ONGOING and self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def client(self) -> ProducerIdAndEpoch:
        """The identity that the producer was told last, which is not that of a transaction that was kept."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_producer_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.client.epoch)

    def is_retry(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether somebody who ends a transaction has this one in mind, which has ended already.

        Such a producer has the identity before the one that it would have been told.
        """
        now = self.client
        return now == (producer.producer_id, producer.epoch + 1) or (
            self.previous_producer_id == producer.producer_id and producer.epoch == LAST_USABLE_EPOCH and now.epoch == 0
        )

    @property
    def is_distributed_two_phase_commit_txn(self) -> bool:
        return self.txn_timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether its transaction has gone on for longer than it may."""
        return (
            self.state is TransactionState.ONGOING
            and not self.is_distributed_two_phase_commit_txn
            and self.txn_start_timestamp + self.txn_timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether it has been idle for so long that it can be forgotten."""
        return self.state.is_expiration_allowed and self.txn_last_update_timestamp <= now_ms - expiration_ms

    # -- steps

    def increment_producer_epoch(
        self, new_txn_timeout_ms: int, expected_epoch: int | None, update_timestamp: int
    ) -> TransactionMetadata:
        """A producer begins, or goes on after an error: it gets the next epoch, which fences whoever had the last.

        A producer that goes on says which epoch it thinks it has. If that is the one before the present one, it has
        been here already and did not hear the answer, so it gets the same one again. Any other is of a producer that
        has been replaced: `ProducerFencedError`.
        """
        if self.is_producer_epoch_exhausted:
            raise IllegalTransitionError(f"the epochs of producer {self.producer_id} are exhausted")
        bumped = self.producer_epoch + 1
        if expected_epoch is None:
            epoch, last_epoch = bumped, NO_PRODUCER_EPOCH
        elif self.producer_epoch in {expected_epoch, NO_PRODUCER_EPOCH}:
            epoch, last_epoch = bumped, self.producer_epoch
        elif expected_epoch == self.last_producer_epoch:
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        else:
            raise ProducerFencedError(
                f"Epoch {expected_epoch} is neither the current epoch {self.producer_epoch} of producer "
                f"{self.producer_id} nor the previous one, {self.last_producer_epoch}"
            )
        return self._to(
            TransactionState.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            txn_timeout_ms=new_txn_timeout_ms,
            topic_partitions=_NO_PARTITIONS,
            txn_start_timestamp=NO_TIMESTAMP,
            txn_last_update_timestamp=update_timestamp,
        )

    def rotate_producer_id(
        self, new_producer_id: int, new_txn_timeout_ms: int, update_timestamp: int, *, record_last_epoch: bool
    ) -> TransactionMetadata:
        """The same, when there is no epoch left: it gets a new id."""
        return self._to(
            TransactionState.EMPTY,
            producer_id=new_producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if record_last_epoch else NO_PRODUCER_EPOCH,
            txn_timeout_ms=new_txn_timeout_ms,
            topic_partitions=_NO_PARTITIONS,
            txn_start_timestamp=NO_TIMESTAMP,
            txn_last_update_timestamp=update_timestamp,
        )

    def keep(
        self, new_producer_id: int, new_txn_timeout_ms: int, expected_epoch: int | None, update_timestamp: int
    ) -> TransactionMetadata:
        """A producer begins and leaves the open transaction as it is: it gets the next identity.

        `new_producer_id` is the next id if there is no epoch left, -1 if there is. For `expected_epoch`, see
        `increment_producer_epoch`. A transaction that was promised to have no timeout never gets one.
        """
        client = self.client
        if expected_epoch is not None and expected_epoch != client.epoch:
            if expected_epoch != self.last_producer_epoch:
                raise ProducerFencedError(
                    f"Epoch {expected_epoch} is not the current epoch of producer {client.producer_id}, which is "
                    f"{client.epoch}"
                )
            after, last_epoch = client, self.last_producer_epoch
        else:
            after = client.successor(new_producer_id)
            last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else client.epoch
        return self._to(
            TransactionState.ONGOING,
            next_producer_id=after.producer_id,
            next_producer_epoch=after.epoch,
            previous_producer_id=client.producer_id,
            last_producer_epoch=last_epoch,
            txn_timeout_ms=self.txn_timeout_ms if self.is_distributed_two_phase_commit_txn else new_txn_timeout_ms,
            txn_last_update_timestamp=update_timestamp,
        )

    def add_partitions(
        self, added: Iterable[TopicPartition], update_timestamp: int, client_version: TransactionVersion
    ) -> TransactionMetadata:
        """Partitions become part of the transaction. The first ones begin it."""
        return self._to(
            TransactionState.ONGOING,
            topic_partitions=self.topic_partitions.union(added),
            txn_start_timestamp=update_timestamp if self.state.is_at_rest else self.txn_start_timestamp,
            txn_last_update_timestamp=update_timestamp,
            client_transaction_version=client_version,
        )

    def fence_and_abort(
        self, version: TransactionVersion, next_producer_id: int, update_timestamp: int
    ) -> TransactionMetadata:
        """The producer is shut out, because another takes its place or because it was too slow, and its transaction is
        aborted.

        Both take a higher epoch. With transaction version 2 every end of a transaction does, and once is enough.
        """
        if version.supports_epoch_bump:
            fenced = self._to(TransactionState.PREPARE_EPOCH_FENCE)
        else:
            fenced = self._to(
                TransactionState.PREPARE_EPOCH_FENCE,
                producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
                last_producer_epoch=NO_PRODUCER_EPOCH,
            )
        return fenced.prepare_abort_or_commit(
            TransactionState.PREPARE_ABORT, version, next_producer_id, update_timestamp
        )

    def prepare_abort_or_commit(
        self,
        new_state: TransactionState,
        client_version: TransactionVersion,
        next_producer_id: int,
        update_timestamp: int,
    ) -> TransactionMetadata:
        """The transaction is decided upon.

        `next_producer_id` is what the producer goes on with if its epochs are used up, -1 if not.
        """
        client, next_epoch = self.client, NO_PRODUCER_EPOCH
        if self.next_producer_epoch != NO_PRODUCER_EPOCH:  # a kept one, or one that is on the way from there
            next_producer_id, next_epoch = client.successor(next_producer_id)
        if client_version.supports_epoch_bump:
            epoch, last_epoch = min(self.producer_epoch + 1, MAX_EPOCH), client.epoch
        else:
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        return self._to(
            new_state,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            previous_producer_id=client.producer_id,
            next_producer_id=next_producer_id,
            next_producer_epoch=next_epoch,
            # Aborting without having begun: there is no beginning but this.
            txn_start_timestamp=update_timestamp if self.state.is_at_rest else self.txn_start_timestamp,
            txn_last_update_timestamp=update_timestamp,
            client_transaction_version=client_version,
        )

    def complete(self, update_timestamp: int) -> TransactionMetadata:
        """All partitions have been told."""
        producer_id, epoch = self.client if self.client_transaction_version.supports_epoch_bump else self.producer
        return self._to(
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.previous_producer_id if self.next_producer_epoch >= 0 else self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            topic_partitions=_NO_PARTITIONS,
            txn_last_update_timestamp=update_timestamp,
        )

    def expire(self) -> TransactionMetadata:
        """It is about to be forgotten."""
        return self._to(TransactionState.DEAD, topic_partitions=_NO_PARTITIONS)

    def _to(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        if self.state not in state.valid_previous_states:
            raise IllegalTransitionError(
                f"{self.transactional_id} cannot change from {self.state.name} to {state.name}"
            )
        after = replace(self, state=state, **{"previous_producer_id": self.producer_id, **changes})
        if after.producer_id < 0 or (after.producer_epoch < 0 and state is not TransactionState.DEAD):
            raise IllegalTransitionError(
                f"{self.transactional_id} cannot become {state.name} with producer ID {after.producer_id} and epoch "
                f"{after.producer_epoch}"
            )
        return after
