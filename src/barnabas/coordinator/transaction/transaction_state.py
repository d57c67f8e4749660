"""The states of a transactional ID and their transitions."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final


class TransactionState(IntEnum):
    """The state of a producer's transaction. The numbers are those in the log, the names those in the protocol::

                          AddPartitionsToTxn                    EndTxn(commit)
            +--> EMPTY ------------------------> ONGOING ------------------------> PREPARE_COMMIT
            |      ^                              ^   |                                  |
            |      | InitProducerId               |   | EndTxn(abort), timeout,          | all markers are written
            |      |                              |   | InitProducerId of another        v
            |      +---- COMPLETE_COMMIT ---------+   | (by way of             COMPLETE_COMMIT
            |      +---- COMPLETE_ABORT ----------+   |  PREPARE_EPOCH_FENCE)
            |                  ^                      v
            |                  +----------------- PREPARE_ABORT
            |                 all markers are written
            +-- InitProducerId

    The two PREPARE states are the point of no return: a transaction is committed when PREPARE_COMMIT is in the log of
    the coordinator, whatever happens to producer, coordinator and partitions afterwards. All that is left is to write
    the markers, however long that takes.

    PREPARE_EPOCH_FENCE is never in the log: an ongoing transaction passes through it when its producer is fenced, on
    the way to PREPARE_ABORT. Neither is DEAD: an expired ID leaves a tombstone.
    """

    EMPTY = 0
    """There is a producer, but no transaction."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """It is committed, and the markers are being written."""
    PREPARE_ABORT = 3
    """It is aborted, and the markers are being written."""
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The ID has expired and is about to be removed."""
    PREPARE_EPOCH_FENCE = 7
    """The epoch of its producer is being increased, which fences the producer."""

    @property
    def state_name(self) -> str:
        """The name in DescribeTransactions and ListTransactions: ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def for_name(cls, state_name: str) -> TransactionState | None:
        return _BY_NAME.get(state_name)

    @property
    def valid_previous_states(self) -> frozenset[TransactionState]:
        return VALID_PREVIOUS_STATES[self]

    @property
    def is_expiration_allowed(self) -> bool:
        """Whether an ID may be removed in this state: only if nothing is in progress."""
        return self in _AT_REST

    @property
    def is_prepared(self) -> bool:
        """Whether markers have to be written."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no transaction, so that a new one can begin."""
        return self in _AT_REST


_AT_REST: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

VALID_PREVIOUS_STATES: Final = MappingProxyType(
    {
        TransactionState.EMPTY: _AT_REST,
        TransactionState.ONGOING: _AT_REST | {TransactionState.ONGOING},
        TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
        # Also without a transaction: a producer of transaction version 2 may not know whether its records have begun
        # one, and may abort to be safe.
        TransactionState.PREPARE_ABORT: _AT_REST | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
        TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
        TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
        TransactionState.DEAD: _AT_REST,
        TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
    }
)
"""The states from which each state can be reached. Any other transition is a bug."""

_BY_NAME: Final = {state.state_name: state for state in TransactionState}
