"""Placement of replicas over racks and brokers."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import InvalidReplicationFactorError
from barnabas.controller.replica_placer import StripedReplicaPlacer, UsableBroker


class NoChance(random.Random):
    """Starts everything at zero and shuffles nothing."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0

    def shuffle(self, x: object) -> None:
        pass


def brokers(*ids: int, racks: dict[int, str] | None = None, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(i, (racks or {}).get(i), i in fenced) for i in ids]


def test_partitions_are_striped_over_racks_and_brokers() -> None:
    """The example of the documentation, with brokers 0-2 in rack A, 3-5 in B, 6-8 in C."""
    racks = {i: "ABC"[i // 3] for i in range(9)}
    placed = StripedReplicaPlacer(NoChance()).place(3, 3, brokers(*range(9), racks=racks))
    assert placed == [(0, 3, 6), (4, 7, 1), (8, 2, 5)]


def test_without_racks_each_partition_starts_one_broker_further() -> None:
    placed = StripedReplicaPlacer(NoChance()).place(4, 2, brokers(0, 1, 2))
    assert placed == [(0, 1), (1, 2), (2, 0), (0, 1)]


def test_one_broker_gets_everything() -> None:
    assert StripedReplicaPlacer().place(3, 1, brokers(7)) == [(7,)] * 3


def test_a_fenced_broker_is_the_last_choice_and_never_leads() -> None:
    placed = StripedReplicaPlacer(NoChance()).place(3, 3, brokers(0, 1, 2, 3, fenced=(1,)))
    assert all(1 not in replicas for replicas in placed)
    placed = StripedReplicaPlacer(NoChance()).place(6, 4, brokers(0, 1, 2, 3, fenced=(1,)))
    assert all(replicas[0] != 1 and replicas[-1] == 1 for replicas in placed)


def test_a_rack_of_fenced_brokers_only_is_passed_over_for_the_leader() -> None:
    placed = StripedReplicaPlacer(NoChance()).place(2, 2, brokers(0, 1, racks={0: "A", 1: "B"}, fenced=(0,)))
    assert placed == [(1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("factor", "usable", "text"),
    [
        (0, brokers(1), "must be positive"),
        (-3, brokers(1), "must be positive"),
        (2, brokers(1), "1 brokers are available"),
        (1, brokers(1, 2, fenced=(1, 2)), "fenced"),
        (1, [], "fenced"),
    ],
)
def test_too_few_brokers_are_an_error(factor: int, usable: list[UsableBroker], text: str) -> None:
    with pytest.raises(InvalidReplicationFactorError, match=text):
        StripedReplicaPlacer().place(1, factor, usable)


@given(
    st.dictionaries(st.integers(0, 30), st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1),
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
def test_the_rules_hold_for_any_cluster(
    cluster: dict[int, tuple[str | None, bool]], partitions: int, factor: int, seed: int
) -> None:
    usable = [UsableBroker(i, rack, fenced) for i, (rack, fenced) in cluster.items()]
    placer = StripedReplicaPlacer(random.Random(seed))
    unfenced = [broker.id for broker in usable if not broker.fenced]
    if not unfenced or factor > len(usable):
        with pytest.raises(InvalidReplicationFactorError):
            placer.place(partitions, factor, usable)
        return
    placed = placer.place(partitions, factor, usable)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(cluster)
        assert replicas[0] in unfenced
    racks = {rack for rack, _ in cluster.values()}
    if not any(broker.fenced for broker in usable) and len(racks) == len(usable):
        leads = Counter(replicas[0] for replicas in placed)
        assert max(leads.values()) - min(leads.get(i, 0) for i in cluster) <= 2
    sizes = Counter(rack for rack, _ in cluster.values())
    if factor <= len(sizes):
        for replicas in placed:
            assert len({cluster[i][0] for i in replicas}) == factor
