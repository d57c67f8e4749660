"""The states of a transactional id, and which can follow which: the whole table is here."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final


class TransactionState(IntEnum):
    """What a producer's transaction is doing. The numbers are those in the log, the names those that tools show::

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

    The two PREPARE states are the point of no return: a transaction is committed at the moment PREPARE_COMMIT is in the
    log of the coordinator, whatever becomes of producer, coordinator and partitions from then on. All that is left to
    do is to tell the partitions, for as long as that takes.

    PREPARE_EPOCH_FENCE is never in the log: it is what an ongoing transaction passes through when its producer is
    fenced by another, on the way to PREPARE_ABORT. DEAD is not either: an id that has expired leaves a tombstone.
    """

    EMPTY = 0
    """There is a producer, and no transaction."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """It is committed, and the partitions are being told."""
    PREPARE_ABORT = 3
    """It is aborted, and the partitions are being told."""
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id has not been used for so long that it is about to be forgotten."""
    PREPARE_EPOCH_FENCE = 7
    """The epoch of its producer is being raised, which shuts the producer out."""

    @property
    def state_name(self) -> str:
        """As DescribeTransactions and ListTransactions have it: ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def for_name(cls, state_name: str) -> TransactionState | None:
        return _BY_NAME.get(state_name)

    @property
    def valid_previous_states(self) -> frozenset[TransactionState]:
        return VALID_PREVIOUS_STATES[self]

    @property
    def is_expiration_allowed(self) -> bool:
        """Whether an id may be forgotten in this state: only if nothing is under way."""
        return self in _AT_REST

    @property
    def is_prepared(self) -> bool:
        """Whether markers are to be written."""
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
        # From a state of rest as well: a producer of transaction version 2 need not know whether any of its records got
        # as far as opening a transaction, and may abort to be on the safe side.
        TransactionState.PREPARE_ABORT: _AT_REST | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
        TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
        TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
        TransactionState.DEAD: _AT_REST,
        TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
    }
)
"""From which states each state can be reached. Anything else is a bug."""

_BY_NAME: Final = {state.state_name: state for state in TransactionState}
