"""The coordinators of a broker: one table entry for each kind, made on demand.

The coordinators are a fifth of a broker's code and have threads of their own, but a new broker has neither groups nor
transactions. So `Coordinators` makes them at the first of these events:

* this broker becomes leader of a partition of a coordinator topic, whose state must be loaded;
* a client request needs a coordinator;
* the broker has started, and loads its deferred parts in the background.

All are made together, because they depend on each other: offsets are committed in transactions.

To add a coordinator, define a `CoordinatorType` and add its maker to :func:`coordinator_makers`. Elections, metadata
images, FindCoordinator and the shutdown follow from the entry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.shared_server import SharedServer
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import CoordinatorNotAvailableError, Errors
from barnabas.common.scheduler import Scheduler
from barnabas.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.coordinator.transaction.transaction_config import TransactionConfig
from barnabas.log.producers.producer_states import ProducerStateManagerConfig
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.replica.replica_manager import ReplicaManager
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper

if TYPE_CHECKING:
    from barnabas.broker.node.transaction_parts import TransactionParts
    from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService


class CoordinatorService(Protocol):
    """Interface of all coordinators. The leader of a topic partition coordinates the keys in that partition."""

    def startup(self) -> None: ...

    def on_election(self, partition: int, leader_epoch: int) -> None: ...

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None: ...

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None: ...

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None: ...

    def partition_for(self, key: str, /) -> int: ...

    def is_loading(self, partition: int) -> bool: ...


P = TypeVar("P")


class CoordinatorType(Generic[P]):
    """Describes one kind of coordinator. ``P`` is the type that its maker returns; it has a `shutdown` method."""

    __slots__ = (
        "denied",
        "key_type",
        "operation",
        "resource_type",
        "responds_at_shutdown",
        "service",
        "since_version",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        service: Callable[[P], CoordinatorService],
        *,
        key_type: int,
        resource_type: ResourceType,
        denied: Errors,
        operation: AclOperation = AclOperation.DESCRIBE,
        since_version: int = 0,
        responds_at_shutdown: bool = False,
    ) -> None:
        """`topic` stores its state; `service` gets the coordinator from the value that the maker returned.

        FindCoordinator accepts `key_type` from `since_version` on. It requires `operation` on `resource_type`;
        otherwise it responds with `denied`.
        With `responds_at_shutdown`, it is shut down while connections are open, and pending requests get a response.
        """
        self.topic = topic
        self.service = service
        self.key_type = key_type
        self.resource_type = resource_type
        self.denied = denied
        self.operation = operation
        self.since_version = since_version
        self.responds_at_shutdown = responds_at_shutdown


GROUP: CoordinatorType[GroupCoordinatorService] = CoordinatorType(
    GROUP_METADATA_TOPIC,
    lambda service: service,
    key_type=0,
    resource_type=ResourceType.GROUP,
    denied=Errors.GROUP_AUTHORIZATION_FAILED,
    responds_at_shutdown=True,
)
TRANSACTION: CoordinatorType[TransactionParts] = CoordinatorType(
    TRANSACTION_STATE_TOPIC,
    lambda parts: parts.coordinator,
    key_type=1,
    resource_type=ResourceType.TRANSACTIONAL_ID,
    denied=Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    since_version=1,
)

Made = Mapping[CoordinatorType[Any], Any]
Makers = Mapping[CoordinatorType[Any], Callable[[Made], Any]]
"""Each maker gets the coordinators that were made before it."""


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """The parts of the broker that coordinators use."""

    config: KafkaConfig
    cache: MetadataCache
    auth: AuthHelper
    replicas: ReplicaManager
    producer_ids: ProducerIdManager
    producer_state: ProducerStateManagerConfig
    scheduler: Scheduler
    shared: SharedServer


def coordinator_makers(context: CoordinatorContext) -> Makers:
    """Returns the table of coordinators. Reads their settings now, so that invalid settings fail the startup."""
    group_settings = GroupCoordinatorConfig.from_values(context.config.values)
    transaction_settings = TransactionConfig.from_values(context.config.values)

    def transactions(_made: Made) -> TransactionParts:
        from barnabas.broker.node.transaction_parts import make_transaction_parts

        return make_transaction_parts(context, transaction_settings)

    def groups(made: Made) -> GroupCoordinatorService:
        from barnabas.broker.node.group_parts import make_group_parts

        return make_group_parts(context, group_settings, made[TRANSACTION])

    return {TRANSACTION: transactions, GROUP: groups}


class Coordinators:
    """Makes the coordinators on demand; until then it keeps the startup and metadata events to replay to them."""

    def __init__(self, makers: Makers) -> None:
        self._makers = makers
        self._lock = threading.Lock()
        """Guards the fields below until the coordinators are made, then only closing. It is held while they are made,
        which takes import locks and the locks of metrics."""
        self._made: Made | None = None
        self._started: set[CoordinatorType[Any]] = set()
        self._images: dict[CoordinatorType[Any], tuple[MetadataImage, MetadataDelta]] = {}
        self._closed = False
        self.hooks = tuple(_Hooks(self, kind) for kind in makers)
        """The hooks for the metadata publisher."""

    def get(self, kind: CoordinatorType[P]) -> P:
        """Returns the coordinator of a kind; makes all coordinators if they do not exist yet."""
        made = self._made
        if made is None:
            made = self._make()
        found: P = made[kind]
        return found

    def existing(self, kind: CoordinatorType[P]) -> P | None:
        """Returns the coordinator of a kind, or None if the coordinators have not been made yet."""
        made = self._made
        return None if made is None else made[kind]

    def service(self, kind: CoordinatorType[Any]) -> CoordinatorService:
        return kind.service(self.get(kind))

    def services(self) -> dict[CoordinatorType[Any], CoordinatorService]:
        return {kind: self.service(kind) for kind in self._makers}

    def _make(self) -> Made:
        with self._lock:
            if self._made is None:
                if self._closed:
                    raise CoordinatorNotAvailableError
                made: dict[CoordinatorType[Any], Any] = {}
                for kind, make in self._makers.items():
                    made[kind] = make(made)
                for kind, parts in made.items():
                    service = kind.service(parts)
                    if kind in self._started:
                        service.startup()
                    if kind in self._images:
                        service.on_new_metadata_image(*self._images[kind])
                self._made = made
                self._images.clear()
            return self._made

    @property
    def is_made(self) -> bool:
        return self._made is not None

    # -- called by the hooks

    def startup(self, kind: CoordinatorType[Any]) -> None:
        with self._lock:
            if self._made is not None:
                kind.service(self._made[kind]).startup()
            self._started.add(kind)

    def on_new_metadata_image(self, kind: CoordinatorType[Any], image: MetadataImage, delta: MetadataDelta) -> None:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._images[kind] = image, delta
                    return
        self.service(kind).on_new_metadata_image(image, delta)

    # -- stop

    def shutdown_responding(self) -> None:
        """Shuts down the coordinators that respond to pending requests. No coordinator is made after this."""
        with self._lock:
            self._closed = True
        self._shutdown(responding=True)

    def shutdown(self) -> None:
        """Shuts down the other coordinators."""
        self._shutdown(responding=False)

    def _shutdown(self, *, responding: bool) -> None:
        for kind, parts in (self._made or {}).items():
            if kind.responds_at_shutdown == responding:
                parts.shutdown()


class _Hooks:
    """Passes metadata events to a coordinator. Resignations and deletions do not make it: it has no state to unload."""

    def __init__(self, coordinators: Coordinators, kind: CoordinatorType[Any]) -> None:
        self._coordinators = coordinators
        self._kind = kind
        self.topic = kind.topic

    def startup(self) -> None:
        self._coordinators.startup(self._kind)

    def on_election(self, partition: int, leader_epoch: int) -> None:
        self._coordinators.service(self._kind).on_election(partition, leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        if self._coordinators.is_made:
            self._coordinators.service(self._kind).on_resignation(partition, leader_epoch)

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        if self._coordinators.is_made:
            self._coordinators.service(self._kind).on_partitions_deleted(partitions)

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._coordinators.on_new_metadata_image(self._kind, image, delta)
