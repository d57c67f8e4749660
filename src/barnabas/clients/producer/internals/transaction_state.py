"""How far a producer has come with its transaction, and where it can go from there."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """How far a producer has come with its identity and its transaction."""

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
"""Where each state can be reached from."""
