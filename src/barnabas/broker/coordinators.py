"""The coordinators of groups and of transactions, made when there is something to coordinate.

They are a fifth of a broker's code, with threads of their own, and a broker that has just been started for the first
time has neither groups nor transactions. So this stands for them until the first of

* this broker leads a partition of ``__consumer_offsets`` or ``__transaction_state``: there is something to load;
* a client asks for one of the two;
* the broker has been running for a moment, and has nothing better to do.

Both are made together, because offsets are committed in transactions and each knows the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.common.errors import CoordinatorNotAvailableError
from barnabas.common.named_tuple import NamedTuple
from barnabas.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage

if TYPE_CHECKING:
    from barnabas.broker.broker_metadata_publisher import CoordinatorHooks
    from barnabas.broker.transaction_parts import TransactionParts
    from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService

_GROUPS: Final = 0
_TRANSACTIONS: Final = 1


class CoordinatorPair(NamedTuple):
    groups: GroupCoordinatorService
    transactions: TransactionParts

    @property
    def hooks(self) -> tuple[CoordinatorHooks, CoordinatorHooks]:
        return self.groups, self.transactions.coordinator


class Coordinators:
    """The two, or what they have to be told when they are made."""

    def __init__(self, make: Callable[[], CoordinatorPair]) -> None:
        self._make = make
        self._lock = threading.Lock()
        """Guards everything below, until they are made; then only closing. They are made inside of it, which takes the
        locks of modules that are imported and those of metrics."""
        self._made: CoordinatorPair | None = None
        self._started = [False, False]
        self._images: list[tuple[MetadataImage, MetadataDelta] | None] = [None, None]
        self._closed = False
        self.hooks: tuple[CoordinatorHooks, CoordinatorHooks] = (
            _Hooks(self, _GROUPS, GROUP_METADATA_TOPIC),
            _Hooks(self, _TRANSACTIONS, TRANSACTION_STATE_TOPIC),
        )
        """For the publisher of metadata."""

    def get(self) -> CoordinatorPair:
        """Both, made if they are not there yet, and up to date with what the hooks were told."""
        made = self._made
        if made is not None:
            return made
        with self._lock:
            if self._made is None:
                if self._closed:
                    raise CoordinatorNotAvailableError
                made = self._make()
                for hooks, started, image in zip(made.hooks, self._started, self._images, strict=True):
                    if started:
                        hooks.startup()
                    if image is not None:
                        hooks.on_new_metadata_image(*image)
                self._made = made
                self._images = [None, None]
            return self._made

    @property
    def is_made(self) -> bool:
        return self._made is not None

    @property
    def groups(self) -> GroupCoordinatorService:
        return self.get().groups

    @property
    def transactions(self) -> TransactionParts:
        return self.get().transactions

    # -- what the hooks are told

    def made_hooks(self, which: int) -> CoordinatorHooks | None:
        made = self._made
        return None if made is None else made.hooks[which]

    def startup(self, which: int) -> None:
        with self._lock:
            if self._made is not None:
                self._made.hooks[which].startup()
            self._started[which] = True

    def on_new_metadata_image(self, which: int, image: MetadataImage, delta: MetadataDelta) -> None:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._images[which] = image, delta
                    return
        self._made.hooks[which].on_new_metadata_image(image, delta)

    # -- stop

    def shutdown_groups(self) -> None:
        """From here on neither is made any more."""
        with self._lock:
            self._closed = True
        if self._made is not None:
            self._made.groups.shutdown()

    def shutdown_transactions(self) -> None:
        if self._made is not None:
            self._made.transactions.shutdown()


class _Hooks:
    """What the publisher of metadata talks to. A coordinator that is not there has nothing to resign from."""

    def __init__(self, coordinators: Coordinators, which: int, topic: str) -> None:
        self._coordinators = coordinators
        self._which = which
        self.topic = topic

    def startup(self) -> None:
        self._coordinators.startup(self._which)

    def on_election(self, partition: int, leader_epoch: int) -> None:
        self._coordinators.get().hooks[self._which].on_election(partition, leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        made = self._coordinators.made_hooks(self._which)
        if made is not None:
            made.on_resignation(partition, leader_epoch)

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        made = self._coordinators.made_hooks(self._which)
        if made is not None:
            made.on_partitions_deleted(partitions)

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._coordinators.on_new_metadata_image(self._which, image, delta)
