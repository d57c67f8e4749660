"""The state of a transactional ID, and its transitions."""

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
"""The highest epoch of a producer. One more is reserved, so that a producer can always be fenced."""
NO_TIMESTAMP: Final = -1
TWO_PHASE_COMMIT_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction that an external system decides: it has none (KIP-939)."""

_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int

    def successor(self, new_producer_id: int) -> ProducerIdAndEpoch:
        """Returns the next epoch, or the first one of a new ID, which is required after the last epoch."""
        if new_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(new_producer_id, 0)
        if is_epoch_exhausted(self.epoch):
            raise IllegalTransitionError(f"the epochs of producer {self.producer_id} are exhausted")
        return ProducerIdAndEpoch(self.producer_id, self.epoch + 1)


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class IllegalTransitionError(Exception):
    """A transition that the state table does not allow, or an invalid change: a bug of the coordinator."""


def is_epoch_exhausted(epoch: int) -> bool:
    """Returns whether a producer needs a new ID, because no epoch is left after this one."""
    return epoch >= LAST_USABLE_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """A transactional ID: its producer, and its transaction.

    It is immutable. Each transition, a method here, creates the next state, which is written to the log and replaces
    this one when it is replayed. Kafka keeps a *pending state* beside the current one during a write; here the latest
    and the committed state are two versions of the same entry in a timeline.

    **Epochs.** Producer ID and epoch identify a producer, and distinguish it from the one it has replaced. With
    transaction version 2 the epoch also increases at the end of each transaction, so that a late record of one cannot
    get into the next::

        EMPTY (id 7, epoch 3) -> ONGOING (7, 3) -> PREPARE_COMMIT (7, 4) -> COMPLETE_COMMIT (7, 4) -> ONGOING (7, 4) ...

    When the epochs are exhausted, the producer gets a new ID. Markers still need the old one, so the new one waits in
    `next_producer_id` until they are written::

        ONGOING (7, 32766) -> PREPARE_COMMIT (7, 32767; next 9) -> COMPLETE_COMMIT (9, 0; previous 7)

    **Kept transactions** (KIP-939). If an external system decides about a transaction, a new producer must not abort
    what its predecessor has prepared. It gets a new epoch nevertheless, which fences the predecessor. But the
    transaction must keep its producer, because records contain it, and so does the external system's decision. So there
    are two, and that of the new producer waits in `next_producer_id` and `next_producer_epoch`. It ends the transaction
    with it::

        ONGOING (7, 3) -> ONGOING (7, 3; next 7, 4) -> ONGOING (7, 3; next 7, 5)        at each new producer
        -> PREPARE_COMMIT (7, 4; next 7, 6) -> COMPLETE_COMMIT (7, 6)                   7, 5 commits: markers have 7, 4

    `previous_producer_id` and `last_producer_epoch` are for producers that repeat a request because the response was
    lost: they still have the old ID and epoch, and must not be fenced.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    """-1 if there is no next ID, and if the next one is new: then its epoch is 0."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """Not in the log: a producer that repeats a request after the coordinator has moved is fenced."""
    txn_timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    topic_partitions: frozenset[TopicPartition] = _NO_PARTITIONS
    txn_start_timestamp: int = NO_TIMESTAMP
    txn_last_update_timestamp: int
    client_transaction_version: TransactionVersion = TransactionVersion.TV_0

    # -- properties

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Whether its transaction belongs to a previous producer."""
        return self.state is TransactionState.ONGOING and self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def client(self) -> ProducerIdAndEpoch:
        """The producer that the client knows, which differs from that of a kept transaction."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_producer_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.client.epoch)

    def is_retry(self, producer: ProducerIdAndEpoch) -> bool:
        """Returns whether a request to end a transaction refers to this one, which has already ended.

        Such a producer has the ID and epoch before those in the lost response.
        """
        now = self.client
        return now == (producer.producer_id, producer.epoch + 1) or (
            self.previous_producer_id == producer.producer_id and producer.epoch == LAST_USABLE_EPOCH and now.epoch == 0
        )

    @property
    def is_distributed_two_phase_commit_txn(self) -> bool:
        return self.txn_timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS

    def is_timed_out(self, now_ms: int) -> bool:
        """Returns whether its transaction has exceeded its timeout."""
        return (
            self.state is TransactionState.ONGOING
            and not self.is_distributed_two_phase_commit_txn
            and self.txn_start_timestamp + self.txn_timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Returns whether it was unused for so long that it can be removed."""
        return self.state.is_expiration_allowed and self.txn_last_update_timestamp <= now_ms - expiration_ms

    # -- transitions

    def increment_producer_epoch(
        self, new_txn_timeout_ms: int, expected_epoch: int | None, update_timestamp: int
    ) -> TransactionMetadata:
        """Initializes a producer, or continues it after an error: the next epoch fences the previous producer.

        A producer that continues sends its epoch. If that is the previous one, it repeats a request whose response was
        lost, and gets the same epoch again. Any other epoch belongs to a replaced producer: `ProducerFencedError`.
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
        """Does the same with a new ID, when no epoch is left."""
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
        """Initializes a producer and keeps the open transaction.

        `new_producer_id` is the next ID if no epoch is left, else -1. For `expected_epoch`, see
        `increment_producer_epoch`. A transaction without a timeout never gets one.
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
        """Adds partitions to the transaction. The first ones begin it."""
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
        """Fences the producer, because another replaces it or because it timed out, and aborts its transaction.

        Both increase the epoch. With transaction version 2 every end of a transaction does, and once is enough.
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
        """Decides the transaction.

        `next_producer_id` is the next ID of the producer if its epochs are exhausted, else -1.
        """
        client, next_epoch = self.client, NO_PRODUCER_EPOCH
        if self.next_producer_epoch != NO_PRODUCER_EPOCH:  # a kept transaction, or one that results from it
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
            # An abort without a beginning: it begins now.
            txn_start_timestamp=update_timestamp if self.state.is_at_rest else self.txn_start_timestamp,
            txn_last_update_timestamp=update_timestamp,
            client_transaction_version=client_version,
        )

    def complete(self, update_timestamp: int) -> TransactionMetadata:
        """Completes the transaction after all markers are written."""
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
        """Marks it for removal."""
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
