"""Assignors: they assign partitions to the members of a classic group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.clients.consumer.assignors.partition_assignor import (
    AbstractPartitionAssignor,
    Assignment,
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    Subscription,
    TopicPartitions,
)
from barnabas.clients.consumer.assignors.range_assignor import RangeAssignor
from barnabas.clients.consumer.assignors.round_robin_assignor import RoundRobinAssignor
from barnabas.clients.consumer.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from barnabas.common.config_def import ConfigError

__all__ = [
    "AbstractPartitionAssignor",
    "Assignment",
    "ConsumerPartitionAssignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "TopicPartitions",
    "assignors_of",
    "rebalance_protocol_of",
]

_BUILT_IN: Final[Mapping[str, type[ConsumerPartitionAssignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_SETTING: Final = "partition.assignment.strategy"


def assignors_of(strategies: Iterable[object]) -> list[ConsumerPartitionAssignor]:
    """Returns the assignors of ``partition.assignment.strategy``.

    Each is a short name (``range``), a Java class name (``org.apache.kafka.clients.consumer.RangeAssignor``), a class,
    or an object."""
    classes = {kind.__name__: kind for kind in _BUILT_IN.values()}
    made: list[ConsumerPartitionAssignor] = []
    for strategy in strategies:
        if isinstance(strategy, str):
            kind = _BUILT_IN.get(strategy) or classes.get(strategy.rpartition(".")[2])
            if kind is None:
                raise ConfigError(f"There is no assignor {strategy}; there are {', '.join(_BUILT_IN)}.", name=_SETTING)
            assignor: object = kind()
        else:
            assignor = strategy() if isinstance(strategy, type) else strategy
        if not isinstance(assignor, ConsumerPartitionAssignor):
            raise ConfigError(f"{assignor!r} is not a ConsumerPartitionAssignor.", name=_SETTING)
        if any(assignor.name == other.name for other in made):
            raise ConfigError(f"There are two assignors named {assignor.name}.", name=_SETTING)
        made.append(assignor)
    return made


def rebalance_protocol_of(assignors: Iterable[ConsumerPartitionAssignor]) -> RebalanceProtocol:
    """Returns the best protocol that all of them support: the group chooses the assignor later."""
    common = set(RebalanceProtocol)
    names = []
    for assignor in assignors:
        common &= set(assignor.supported_protocols)
        names.append(assignor.name)
    if not common:
        raise ConfigError(
            f"The assignors {', '.join(names)} do not have a rebalance protocol in common.", name=_SETTING
        )
    return max(common)
