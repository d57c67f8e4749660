"""The PartitionChangeBuilder: elections, eligible leaders, reassignments, and when nothing is to be written."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest

from barnabas.common.errors import InvalidReplicaAssignmentError
from barnabas.common.identifiers import Uuid
from barnabas.controller.partition_change_builder import Election, PartitionChangeBuilder
from barnabas.controller.partition_reassignment import (
    Reassignment,
    begin_reassignment,
    complete_reassignment,
    replication_factor_after,
    revert_reassignment,
)
from barnabas.metadata.directory_id import UNASSIGNED
from barnabas.metadata.metadata_version import LATEST_VERSION, MetadataVersion
from barnabas.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from barnabas.protocol.internal.metadata import PartitionChangeRecord
from unit.controller.harness import directory

TOPIC = Uuid(bytes(15) + b"\x09")
RECOVERED, RECOVERING = LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING


def partition(**fields: Any) -> PartitionRegistration:
    replicas = fields.pop("replicas", (1, 2, 3))
    defaults: dict[str, Any] = {
        "replicas": replicas,
        "directories": tuple(directory(replica) for replica in replicas),
        "isr": replicas,
        "removing_replicas": (),
        "adding_replicas": (),
        "elr": (),
        "last_known_elr": (),
        "leader": replicas[0],
        "leader_recovery_state": RECOVERED,
        "leader_epoch": 5,
        "partition_epoch": 9,
    }
    return PartitionRegistration(**{**defaults, **fields})


def builder(
    registration: PartitionRegistration,
    *,
    alive: Container[int] = (1, 2, 3, 4, 5, 6),
    version: MetadataVersion = LATEST_VERSION,
    min_isr: int = 1,
    elr: bool = False,
    **targets: Any,
) -> PartitionChangeBuilder:
    made = PartitionChangeBuilder(
        registration,
        TOPIC,
        0,
        is_acceptable_leader=lambda broker_id: broker_id in alive,
        metadata_version=version,
        min_isr=min_isr,
        elr_enabled=elr,
        default_directory=lambda _: UNASSIGNED,
    )
    for name, value in targets.items():
        setattr(made, name, value)
    return made


def change(registration: PartitionRegistration, **options: Any) -> PartitionChangeRecord | None:
    built = builder(registration, **options).build()
    if built is None:
        return None
    assert isinstance(built.message, PartitionChangeRecord)
    return built.message


def record(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **fields)


# -- elections


def test_nothing_to_do_is_no_record() -> None:
    assert change(partition()) is None
    assert change(partition(leader=2)) is None


def test_the_first_replica_in_sync_leads_when_the_leader_is_gone() -> None:
    assert change(partition(), alive=(2, 3), target_isr=(2, 3)) == record(leader=2, isr=[2, 3])
    assert change(partition(isr=(3, 1)), alive=(2, 3), target_isr=(3,)) == record(leader=3, isr=[3])


def test_a_leader_that_will_do_stays() -> None:
    assert change(partition(leader=2), target_isr=(2, 3)) == record(isr=[2, 3])


def test_a_preferred_election_brings_the_first_replica_back() -> None:
    assert change(partition(leader=2), election=Election.PREFERRED) == record(leader=1)
    assert change(partition(leader=2), election=Election.PREFERRED, alive=(2, 3)) is None
    assert change(partition(leader=2, isr=(2, 3)), election=Election.PREFERRED) is None
    assert change(partition(leader=-1, isr=(2, 3)), election=Election.PREFERRED) == record(leader=2)


def test_without_anyone_in_sync_nobody_leads_and_the_isr_stays_as_a_note() -> None:
    assert change(partition(isr=(1,)), alive=(2, 3), target_isr=()) == record(leader=-1)


def test_an_unclean_election_takes_whoever_lives_and_marks_it() -> None:
    changed = change(partition(isr=(1,)), alive=(2, 3), target_isr=(), election=Election.UNCLEAN)
    assert changed == record(leader=2, isr=[2], leader_recovery_state=1)
    recovering = partition(isr=(1,), leader_recovery_state=RECOVERING)
    assert change(recovering, alive=(3,), target_isr=(), election=Election.UNCLEAN) == record(leader=3, isr=[3])


def test_an_unclean_election_prefers_a_clean_one() -> None:
    assert change(partition(), alive=(3,), target_isr=(2, 3), election=Election.UNCLEAN) == record(leader=3, isr=[2, 3])


def test_old_clusters_raise_the_leader_epoch_when_the_isr_shrinks() -> None:
    old = MetadataVersion.IBP_3_5_IV2
    assert change(partition(), version=old, target_isr=(1, 2)) == record(isr=[1, 2], leader=1)
    assert change(partition(isr=(1,)), version=old, target_isr=(1, 2)) == record(isr=[1, 2])
    built = builder(partition(), version=old, target_isr=(1,)).build()
    assert built is not None
    assert built.version == 0


def test_a_leader_that_has_recovered_says_so() -> None:
    recovering = partition(isr=(1,), leader_recovery_state=RECOVERING)
    assert change(recovering, target_leader_recovery_state=RECOVERED) == record(leader_recovery_state=0)


# -- eligible leader replicas


def test_the_worked_example_of_the_documentation() -> None:
    """Replicas 1, 2, 3, two have to be in sync; 1, 3 and 2 fail in this order, then 1 and 2 come back."""
    state = partition()
    alive = {1, 2, 3}
    table = []

    def happen(*, fails: int | None = None, back: int | None = None) -> None:
        nonlocal state
        if fails is not None:
            alive.discard(fails)
        if back is not None:
            alive.add(back)
        isr = tuple(replica for replica in state.isr if replica != fails)
        changed = change(state, alive=alive, elr=True, min_isr=2, target_isr=isr)
        if changed is not None:
            state = state.merge(changed)
        table.append((state.leader, state.isr, state.elr, state.last_known_elr))

    happen(fails=1)
    happen(fails=3)
    happen(fails=2)
    happen(back=1)
    happen(back=2)
    assert table == [
        (2, (2, 3), (), ()),
        (2, (2,), (3,), ()),
        (-1, (), (2, 3), (2,)),
        (-1, (), (2, 3), (2,)),
        (2, (2,), (3,), ()),
    ]


def test_an_isr_that_is_large_enough_clears_the_eligible() -> None:
    before = partition(isr=(1,), elr=(2,))
    assert change(before, elr=True, min_isr=2, target_isr=(1, 2)) == record(isr=[1, 2], eligible_leader_replicas=[])


def test_a_crashed_broker_is_not_eligible() -> None:
    before = partition(isr=(1, 2))
    crashed = change(before, elr=True, min_isr=2, alive=(1, 3), target_isr=(1,), unclean_shutdown_replicas=(2,))
    assert crashed == record(isr=[1])
    eligible = partition(isr=(1,), elr=(2,))
    assert change(eligible, elr=True, min_isr=2, alive=(1,), unclean_shutdown_replicas=(2,)) == record(
        eligible_leader_replicas=[]
    )


def test_the_last_leader_leads_if_nobody_is_eligible() -> None:
    lost = partition(isr=(), leader=-1, last_known_elr=(3,))
    assert change(lost, elr=True) == record(leader=3, isr=[3], leader_recovery_state=1, last_known_elr=[])
    assert change(lost, elr=True, alive=(1, 2)) is None
    assert change(lost._replace(last_known_elr=(2, 3)), elr=True) is None
    assert change(lost._replace(elr=(1,)), elr=True, alive=(3,), min_isr=2) is None


def test_elr_that_is_switched_off_is_forgotten() -> None:
    before = partition(isr=(1,), elr=(2,))
    assert change(before, elr=False) == record(eligible_leader_replicas=[])


# -- reassignment


def test_the_lists_of_a_reassignment() -> None:
    begun = begin_reassignment(partition(), (3, 4, 5))
    assert begun == Reassignment((3, 4, 5, 1, 2), (4, 5), (1, 2))
    under_way = partition(replicas=begun.replicas, adding_replicas=begun.adding, removing_replicas=begun.removing)
    assert begin_reassignment(under_way, (3, 4, 5)) == begun
    assert begin_reassignment(under_way, (3, 6)) == ((3, 6, 1, 2, 4, 5), (6,), (1, 2, 4, 5))
    assert begin_reassignment(under_way, (1, 2, 3)) == ((1, 2, 3, 4, 5), (), (4, 5))
    assert replication_factor_after(under_way) == 3
    assert replication_factor_after(partition()) == 3


def test_a_reassignment_completes_when_all_that_it_adds_is_in_sync() -> None:
    assert complete_reassignment((3, 4, 1), (1, 3), (4,), (1,)) is None
    assert complete_reassignment((3, 4, 1), (1, 4, 3), (4,), (1,)) == ((3, 4), (4, 3))
    assert complete_reassignment((3, 4, 1), (1, 4), (4,), (1,)) == ((3, 4), (4,))  # 3 was out of sync before, too
    assert complete_reassignment((1, 2, 3), (1, 3), (), (3,)) is None  # but fewer replicas must all be in sync
    assert complete_reassignment((1, 2, 3), (2, 1), (), (3,)) == ((1, 2), (2, 1))
    assert complete_reassignment((1, 2), (1, 2), (), ()) is None
    assert complete_reassignment((1, 2), (1,), (), (1, 2)) is None


def test_new_replicas_get_a_directory_and_a_leader_that_goes_gets_an_epoch() -> None:
    begun = begin_reassignment(partition(), (3, 4))
    started = change(
        partition(), target_replicas=begun.replicas, target_adding=begun.adding, target_removing=begun.removing
    )
    assert started == record(
        replicas=[3, 4, 1, 2],
        adding_replicas=[4],
        removing_replicas=[1, 2],
        directories=[directory(3), UNASSIGNED, directory(1), directory(2)],
    )
    assert started is not None
    under_way = partition().merge(started)
    done = change(under_way, target_isr=(1, 2, 3, 4))
    assert done == record(
        replicas=[3, 4],
        isr=[3, 4],
        leader=3,
        adding_replicas=[],
        removing_replicas=[],
        directories=[directory(3), UNASSIGNED],
    )


def test_a_leader_that_stays_gets_a_new_epoch_when_a_replica_goes() -> None:
    under_way = partition(adding_replicas=(), removing_replicas=(3,))
    assert change(under_way, target_isr=(1, 2)) == record(
        leader=1, replicas=[1, 2], isr=[1, 2], removing_replicas=[], directories=[directory(1), directory(2)]
    )


def test_a_change_of_order_needs_no_copying() -> None:
    begun = begin_reassignment(partition(), (2, 1, 3))
    assert change(
        partition(), target_replicas=begun.replicas, target_adding=begun.adding, target_removing=begun.removing
    ) == record(replicas=[2, 1, 3], directories=[directory(2), directory(1), directory(3)])


def test_going_back() -> None:
    under_way = partition(replicas=(4, 5, 1, 2), isr=(1, 4), adding_replicas=(4, 5), removing_replicas=(1, 2))
    assert revert_reassignment(under_way) == ((1, 2), (1,), False)
    assert revert_reassignment(under_way._replace(isr=(4, 5))) == ((1, 2), (1,), True)
    with pytest.raises(InvalidReplicaAssignmentError):
        revert_reassignment(under_way._replace(adding_replicas=(1, 2, 4, 5)))


# -- directories


def test_a_directory_is_noted_if_it_is_another() -> None:
    made = builder(partition())
    made.set_directory(2, directory(2, 1))
    built = made.build()
    assert built is not None
    assert built.message == record(directories=[directory(1), directory(2, 1), directory(3)])
    same = builder(partition())
    same.set_directory(2, directory(2))
    assert same.build() is None
