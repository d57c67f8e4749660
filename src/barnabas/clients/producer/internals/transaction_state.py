"""The state machine of a producer's transaction."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final

from barnabas.clients.producer.errors import IllegalStateError, TransactionError
from barnabas.clients.producer.internals.producer_batch import ProducerIdAndEpoch
from barnabas.common.errors import InvalidProducerEpochError, ProducerFencedError

log = logging.getLogger(__name__)


class State(Enum):
    """The states of a producer's identity and transaction."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    PREPARED_TRANSACTION = "with a prepared transaction"
    COMMITTING_TRANSACTION = "committing the transaction"
    ABORTING_TRANSACTION = "aborting the transaction"
    ABORTABLE_ERROR = "after an error that aborting the transaction cures"
    FATAL_ERROR = "after a fatal error"


_S = State
SOURCES: dict[State, frozenset[State]] = {
    _S.UNINITIALIZED: frozenset({_S.READY, _S.ABORTABLE_ERROR}),
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.PREPARED_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.INITIALIZING}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION}),
    _S.ABORTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.ABORTABLE_ERROR, _S.INITIALIZING}),
    _S.FATAL_ERROR: frozenset(State),
}
"""The states from which each state can be reached."""

# Read in every iteration of the I/O thread: looking up an enum member takes longer than the comparison.
_COMMITTING: Final = State.COMMITTING_TRANSACTION
_ABORTING: Final = State.ABORTING_TRANSACTION
_ABORTABLE_ERROR: Final = State.ABORTABLE_ERROR
_FATAL_ERROR: Final = State.FATAL_ERROR


class TransactionStateMachine:
    """The state of a producer's transaction, the error that led to it, and the legal transitions.

    The transaction manager's lock guards transitions. Reading needs none: each property reads one field.
    """

    __slots__ = ("_transactional_id", "failed", "last_error", "state")

    def __init__(self, transactional_id: str | None = None) -> None:
        self._transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.last_error: Exception | None = None
        self.failed = False
        """Whether it is in an error state. `KafkaProducer.send` reads it for every record."""

    def transition_to(self, target: State, error: Exception | None = None) -> None:
        """Moves to another state; raises `IllegalStateError` if the transition is illegal."""
        if self.state not in SOURCES[target]:
            who = "" if self._transactional_id is None else f"TransactionalId {self._transactional_id}: "
            raise IllegalStateError(
                f"{who}Invalid transition attempted from state {self.state.name} to state {target.name}"
            )
        log.debug("From state %s to %s (%r)", self.state.name, target.name, error)
        self.last_error = error
        self.state = target
        self.failed = target is _ABORTABLE_ERROR or target is _FATAL_ERROR

    def raise_error(self, identity: ProducerIdAndEpoch) -> None:
        """Raises the producer's error, if it is in an error state."""
        if not self.failed:
            return
        error = self.last_error
        who = f"Producer with transactionalId '{self._transactional_id}' and {identity}"
        if isinstance(error, ProducerFencedError):
            raise ProducerFencedError(
                f"{who} has been fenced by another producer with the same transactionalId"
            ) from error
        if isinstance(error, InvalidProducerEpochError):
            raise InvalidProducerEpochError(f"{who} attempted to produce with an old epoch") from error
        if isinstance(error, IllegalStateError):
            raise IllegalStateError(
                f"{who} cannot execute transactional method because of previous invalid state transition attempt"
            ) from error
        raise TransactionError(
            f"Cannot execute transactional method because we are in an error state: {error}"
        ) from error

    @property
    def has_fatal_error(self) -> bool:
        return self.state is _FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self.state is _ABORTABLE_ERROR

    @property
    def is_completing(self) -> bool:
        return self.state is _COMMITTING or self.state is _ABORTING

    @property
    def has_ongoing_transaction(self) -> bool:
        """Whether a transaction must be ended before the producer is closed. The application decides about a prepared
        one."""
        return self.state is State.IN_TRANSACTION or self.is_completing or self.has_abortable_error

    def __repr__(self) -> str:
        return f"TransactionStateMachine({self.state.name}, {self.last_error!r})"
