"""The states of a transaction."""

from __future__ import annotations

import pytest

from barnabas.coordinator.transaction.transaction_metadata import IllegalTransitionError, TransactionMetadata
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import TransactionVersion

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
DEAD, FENCE = TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE

LEGAL = {
    (EMPTY, EMPTY),
    (COMPLETE_COMMIT, EMPTY),
    (COMPLETE_ABORT, EMPTY),
    (ONGOING, ONGOING),
    (EMPTY, ONGOING),
    (COMPLETE_COMMIT, ONGOING),
    (COMPLETE_ABORT, ONGOING),
    (ONGOING, PREPARE_COMMIT),
    (ONGOING, PREPARE_ABORT),
    (FENCE, PREPARE_ABORT),
    (EMPTY, PREPARE_ABORT),
    (COMPLETE_COMMIT, PREPARE_ABORT),
    (COMPLETE_ABORT, PREPARE_ABORT),
    (PREPARE_COMMIT, COMPLETE_COMMIT),
    (PREPARE_ABORT, COMPLETE_ABORT),
    (EMPTY, DEAD),
    (COMPLETE_COMMIT, DEAD),
    (COMPLETE_ABORT, DEAD),
    (ONGOING, FENCE),
}
"""Kafka's table."""


def metadata_in(state: TransactionState) -> TransactionMetadata:
    return TransactionMetadata(
        transactional_id="tx",
        producer_id=7,
        producer_epoch=3,
        txn_timeout_ms=1000,
        state=state,
        txn_start_timestamp=5,
        txn_last_update_timestamp=5,
    )


def step_to(metadata: TransactionMetadata, target: TransactionState) -> TransactionMetadata:
    """The step that leads to a state."""
    version = TransactionVersion.TV_2
    if target is EMPTY:
        return metadata.increment_producer_epoch(1000, None, 6)
    if target is ONGOING:
        return metadata.add_partitions((), 6, version)
    if target in {PREPARE_COMMIT, PREPARE_ABORT}:
        return metadata.prepare_abort_or_commit(target, version, -1, 6)
    if target in {COMPLETE_COMMIT, COMPLETE_ABORT}:
        return metadata.complete(6)
    if target is DEAD:
        return metadata.expire()
    return metadata.fence_and_abort(version, -1, 6)


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("before", TransactionState)
@pytest.mark.parametrize("after", TransactionState)
def test_every_transition_is_in_the_table_or_refused(before: TransactionState, after: TransactionState) -> None:
    assert (before in after.valid_previous_states) == ((before, after) in LEGAL)
    metadata = metadata_in(before)
    reached = after
    if after in {COMPLETE_COMMIT, COMPLETE_ABORT}:
        # One step for both: how it ends has been decided before.
        reached = COMPLETE_COMMIT if before is PREPARE_COMMIT else COMPLETE_ABORT
    if (before, reached) in LEGAL:
        made = step_to(metadata, after)
        assert made.state is (PREPARE_ABORT if after is FENCE else reached)
    else:
        with pytest.raises(IllegalTransitionError):
            step_to(metadata, after)


def test_names_are_those_that_tools_know() -> None:
    assert [state.state_name for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert all(TransactionState.for_name(state.state_name) is state for state in TransactionState)
    assert TransactionState.for_name("ongoing") is None


def test_only_what_is_at_rest_may_be_forgotten() -> None:
    assert {state for state in TransactionState if state.is_expiration_allowed} == {
        EMPTY,
        COMPLETE_COMMIT,
        COMPLETE_ABORT,
    }
