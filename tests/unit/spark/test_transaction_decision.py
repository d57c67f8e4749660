"""The driver's decision as offsets of groups (S04)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.sink_messages import TaskTransaction
from barnabas.spark.transaction_decision import (
    MAX_METADATA_BYTES,
    CommittedOffset,
    Decision,
    DecisionError,
    DecisionLog,
)
from barnabas.spark.transaction_names import is_of_job, transactional_id

pytestmark = pytest.mark.mechanism("S04")

TRANSACTIONS = st.one_of(
    st.none(),
    st.builds(TaskTransaction, st.integers(0, 2**63 - 2), st.integers(0, 2**15 - 1), st.booleans()),
)


class _Groups:
    """Offsets in memory; writing fails when there are no writes left."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, CommittedOffset]] = {}
        self.writes_left = 1_000_000

    def committed(self, group: str) -> Mapping[str, CommittedOffset]:
        return self.groups.get(group, {})

    def commit_offset(self, group: str, topic: str, offset: CommittedOffset) -> None:
        if not self.writes_left:
            raise ConnectionError
        self.writes_left -= 1
        self.groups.setdefault(group, {})[topic] = offset


@given(
    st.integers(0, 2**62),
    st.lists(TRANSACTIONS, max_size=40),
    st.sampled_from([MAX_METADATA_BYTES, 64]),
    st.integers(0, 2**40),
)
def test_what_is_written_is_read(
    batch: int, transactions: list[TaskTransaction | None], limit: int, generation: int
) -> None:
    groups = _Groups()
    decision = Decision(batch, tuple(transactions), "0a1b2c3d", generation)
    log = DecisionLog("job", groups, limit=limit)
    assert log.read() is None
    log.write(decision, "topic")
    assert log.read() == decision
    assert all(len(one.metadata) <= limit for group in groups.groups.values() for one in group.values())


def test_a_thousand_tasks_take_two_pieces() -> None:
    decision = Decision(7, tuple(TaskTransaction(100_000 + one, 3, True) for one in range(1000)), "0a1b2c3d", 7)
    assert [len(piece) for piece in decision.pieces()] == [4090, 1278]


def test_a_decision_that_is_cut_off_is_none() -> None:
    """Whatever of it is written, what is read is the one before; also if both are about the same batch."""
    first = Decision(4, tuple(TaskTransaction(2**40 + one, 1, True) for one in range(12)), "run1", 1)
    groups = _Groups()
    log = DecisionLog("job", groups, limit=64)
    for batch in (4, 5):
        second = Decision(batch, tuple(TaskTransaction(one, 2, True) for one in range(40)), "run2", 2)
        assert len(second.pieces(64)) > 2
        for writes in range(len(second.pieces(64))):
            groups = _Groups()
            log = DecisionLog("job", groups, limit=64)
            log.write(first, "topic")
            groups.writes_left = writes
            with pytest.raises(ConnectionError):
                log.write(second, "topic")
            assert log.read() == first
        groups.writes_left = 1_000_000
        log.write(second, "topic")
        assert log.read() == second


def test_batches_may_go_to_different_topics() -> None:
    groups = _Groups()
    log = DecisionLog("job", groups)
    for batch, topic in enumerate(["b", "a", "b", "c", "a"]):
        log.write(Decision(batch, (None,), generation=batch), topic)
        found = log.read()
        assert found is not None
        assert found.batch == batch
    # A decision about the same batch that replaces one before it.
    log.write(Decision(4, (TaskTransaction(1, 1, True),), generation=5), "d")
    assert log.read() == Decision(4, (TaskTransaction(1, 1, True),), generation=5)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ("", "is not a decision"),
        ("offsets of somebody else", "is not a decision"),
        ("2 0 0 1 run AA", "is not a decision"),
        ("1 0 0 1 run gA", "in the middle of a number"),
        ("1 0 0 1 run AQ", "in the middle of a transaction"),
        ("1 0 0 1 run A", "damaged"),
        ("1 0 0 2 run AA", "Piece 1 of the decision about batch 3 is missing"),
    ],
)
def test_what_is_no_decision_is_told(metadata: str, reason: str) -> None:
    groups = _Groups()
    groups.commit_offset("job-decision", "topic", CommittedOffset(3, metadata))
    with pytest.raises(DecisionError, match=reason):
        DecisionLog("job", groups).read()


def test_names() -> None:
    assert transactional_id("prefix-query", 12) == "prefix-query-12"
    assert is_of_job("prefix-query", "prefix-query-12")
    assert not is_of_job("prefix-query", "prefix-query-decision")
    assert not is_of_job("prefix-query", "prefix-query2-12")
