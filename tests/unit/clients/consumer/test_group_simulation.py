"""Groups under fire: whatever happens, nobody has what another has, listeners are called in order, and in the end all
partitions are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from unit.clients.consumer.group_simulation import Faults, Simulation

KINDS: dict[str, dict[str, Any]] = {
    "consumer": {"group.protocol": "consumer"},
    "eager": {"group.protocol": "classic", "partition.assignment.strategy": "range", "session.timeout.ms": 10_000},
    "cooperative": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 10_000,
    },
}


@pytest.fixture(autouse=True)
def _no_errors_in_callbacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An exception in the callback of a future is logged, and would otherwise go unnoticed."""
    yield
    assert not [row for row in caplog.get_records("call") if row.name == "concurrent.futures"]


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go(kind: str) -> None:
    simulation = Simulation(1)
    first = simulation.member(**KINDS[kind])
    simulation.settle()
    second = simulation.member(**KINDS[kind])
    simulation.settle()
    third = simulation.member(**KINDS[kind])
    simulation.settle()
    simulation.close(second)
    simulation.settle()
    simulation.close(first)
    simulation.settle()
    simulation.run(3_000)
    simulation.close(third)
    assert not simulation.cluster.overlaps
    assert simulation.delivered_all()
    assert not [member.errors for member in simulation.members if member.errors]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 10))])
def test_nothing_but_time_goes_by(kind: str, seed: int) -> None:
    """Delays and slow listeners, but no fault: there is no reason to lose anything."""
    simulation = Simulation(seed)
    simulation.cluster.faults = Faults(slow_listener=0.3, max_delay_ms=200)
    for _ in range(3):
        simulation.member(**KINDS[kind])
        simulation.run(simulation.dice.randint(0, 2_000))
    simulation.settle()
    simulation.close(simulation.dice.choice(simulation.members))
    simulation.settle()
    assert not simulation.cluster.overlaps
    assert not [call for member in simulation.members for call in member.listener.calls if call[0] == "lost"]
    for member in simulation.living:
        simulation.close(member)
    assert simulation.delivered_all()


MIXES = {
    "consumer": ["consumer"],
    "eager": ["eager"],
    "cooperative": ["cooperative"],
    "consumer and eager": ["consumer", "eager"],
    "consumer and cooperative": ["consumer", "cooperative"],
}


@pytest.mark.parametrize(
    ("mix", "seed"),
    [
        ("consumer and eager", 0),
        ("consumer and cooperative", 0),
        *(pytest.param(mix, seed, marks=pytest.mark.nightly) for mix in MIXES for seed in range(1, 25)),
    ],
)
def test_faults(mix: str, seed: int) -> None:
    """Coordinators move, connections break, members crash, freeze, change their minds, and commit meanwhile."""
    simulation = Simulation(seed, {"t": 5, "u": 3})
    dice, kinds = simulation.dice, MIXES[mix]
    cluster = simulation.cluster
    cluster.faults = Faults(
        lost_request=0.02 * dice.randint(0, 2),
        lost_answer=0.02 * dice.randint(0, 2),
        slow_listener=0.2 * dice.randint(0, 2),
        max_delay_ms=dice.choice([5, 50, 500]),
    )

    def member() -> None:
        topics = dice.choice([("t",), ("t", "u"), ("t", "u")])
        simulation.member(topics=topics, **KINDS[dice.choice(kinds)])

    member()
    for _ in range(12):
        simulation.run(dice.randint(0, 3_000))
        living = simulation.living
        action = dice.randint(0, 9)
        if action <= 2 and len(living) < 4:
            member()
        elif action == 3 and len(living) > 1:
            dice.choice(living).crash()
        elif action == 4 and len(living) > 1:
            simulation.close(dice.choice(living))
        elif action == 5:
            cluster.move_coordinator()
        elif action == 6 and living:
            dice.choice(living).disconnect_all()
        elif action == 7 and living:
            # Longer than its session: it comes back as one who has been given up.
            frozen = dice.choice(living)
            frozen.frozen = True
            simulation.run(dice.choice([5_000, 15_000, 50_000]))
            frozen.frozen = False
        elif action == 8 and living:
            dice.choice(living).subscribe(dice.choice([("t",), ("t", "u")]))
        elif action == 9 and living:
            dice.choice(living).group.commit(None, cluster.now + 5_000)
    cluster.faults = Faults()
    for one in simulation.living:
        one.subscribe(("t", "u"))
    if not simulation.living:
        member()
        simulation.living[0].subscribe(("t", "u"))
    simulation.settle(200_000)
    simulation.run(5_000)
    assert not any(one.zombie_of for one in simulation.living)
    for one in simulation.living:
        simulation.close(one)
    assert simulation.delivered_all()
