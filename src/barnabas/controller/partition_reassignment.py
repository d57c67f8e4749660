"""Reassigning a partition to other brokers (KIP-455): the arithmetic of its replica lists.

A reassignment from brokers 1, 2, 3 to 3, 4, 5 goes through three states:

    ===========  =============  ==========  ===========
    state        replicas       adding      removing
    ===========  =============  ==========  ===========
    before       1 2 3
    under way    3 4 5 1 2      4 5         1 2
    done         3 4 5
    ===========  =============  ==========  ===========

During the reassignment the target comes first, so that its first replica is already the preferred leader. The new
replicas copy the partition and join the ISR; when all of them are in sync, the removing replicas are dropped. An old
replica that stays need not be in sync, as before the reassignment. Only if the partition ends up with fewer replicas
than it had, all remaining ones must be in sync. If nothing has to be copied, for example if only the order changes, the
middle state is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.common.errors import InvalidReplicaAssignmentError
from barnabas.metadata.partition_registration import PartitionRegistration


class Reassignment(NamedTuple):
    """The replica lists during a reassignment."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def begin_reassignment(partition: PartitionRegistration, target: Sequence[int]) -> Reassignment:
    """Returns the lists for a reassignment to `target`, from a stable state or from another reassignment.

    A replica that the earlier reassignment is still adding counts as added by this one. So repeating the same target
    changes nothing, and a cancellation still knows the original replicas.
    """
    original = set(partition.replicas) - set(partition.adding_replicas)
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = tuple(sorted(set(target) - original))
    return Reassignment((*target, *removing), adding, removing)


def complete_reassignment(
    replicas: Sequence[int], isr: Sequence[int], adding: Sequence[int], removing: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the final replicas and ISR if a reassignment is in progress and can complete; otherwise None."""
    if not adding and not removing:
        return None
    target = tuple(replica for replica in replicas if replica not in removing)
    target_isr = tuple(replica for replica in isr if replica not in removing)
    needed = target if len(adding) < len(removing) else adding
    if not target or not target_isr or not set(needed) <= set(target_isr):
        return None
    return target, target_isr


class RevertedReassignment(NamedTuple):
    """The replica lists after a reassignment is cancelled."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    unclean: bool
    """No old replica is in sync any more: reverting elects one that may lack records."""


def revert_reassignment(partition: PartitionRegistration) -> RevertedReassignment:
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    if not replicas:
        raise InvalidReplicaAssignmentError("The reassignment cannot be reverted: it adds all of the replicas.")
    isr = tuple(replica for replica in partition.isr if replica not in adding)
    return RevertedReassignment(replicas, isr or replicas[:1], not isr)


def replication_factor_after(partition: PartitionRegistration) -> int:
    """Returns the number of replicas after any current reassignment completes."""
    return len({*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas})
