"""A controller that a test steps by hand, with brokers that exist on paper only."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from barnabas.common.clock import MockClock
from barnabas.common.errors import ApiError
from barnabas.common.identifiers import Uuid
from barnabas.controller.config import ControllerConfig, ControllerPlugins
from barnabas.controller.managers import ControllerManagers
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.quorum_features import default_supported_features
from barnabas.controller.replica_placer import StripedReplicaPlacer
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import ControllerResult
from barnabas.metadata.broker_registration import BrokerRegistration
from barnabas.metadata.partition_registration import PartitionRegistration
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.topics import CLUSTER_METADATA
from barnabas.protocol.messages import broker_heartbeat, broker_registration, create_topics
from barnabas.raft.client import ApiMessageAndVersion
from local_raft_client import LocalRaftClient, MemoryLog

T = TypeVar("T")

CLUSTER_ID = "ezBUH3bTQrGbT7hFBsgH6g"
NODE = 1
CONTEXT = ControllerRequestContext(request_version=4)


class UuidSource:
    """Uuids that count up, so that a test run is like any other."""

    def __init__(self, prefix: int = 7) -> None:
        self._prefix = prefix
        self._count = 0

    def __call__(self) -> Uuid:
        self._count += 1
        return Uuid(self._prefix.to_bytes(8, "big") + self._count.to_bytes(8, "big"))


def directory(broker_id: int, number: int = 0) -> Uuid:
    return Uuid((0xD1 << 8 | number).to_bytes(8, "big") + broker_id.to_bytes(8, "big"))


def incarnation(broker_id: int, number: int = 0) -> Uuid:
    return Uuid((0x1C << 8 | number).to_bytes(8, "big") + broker_id.to_bytes(8, "big"))


class Harness:
    """A controller over a log in memory, active and with no brokers unless told otherwise."""

    def __init__(
        self,
        *,
        node_id: int = NODE,
        auto_commit: bool = True,
        start: bool = True,
        log: MemoryLog | None = None,
        clock: MockClock | None = None,
        plugins: ControllerPlugins | None = None,
        **settings: Any,
    ) -> None:
        self.clock = MockClock() if clock is None else clock
        self.raft = LocalRaftClient(node_id, clock=self.clock, log=log, auto_commit=auto_commit)
        self.new_uuid = UuidSource()
        if plugins is None:
            plugins = ControllerPlugins()
        plugins = replace(plugins, new_uuid=self.new_uuid, replica_placer=StripedReplicaPlacer(random.Random(5)))
        settings.setdefault("max_idle_interval_ms", 0)
        settings.setdefault("default_replication_factor", 1)
        self.config = ControllerConfig(node_id, CLUSTER_ID, **settings)
        self.metrics = MetricsRegistry(self.clock)
        self.controller = QuorumController(self.config, self.raft, plugins, clock=self.clock, metrics=self.metrics)
        self._mark = 0
        if start:
            self.raft.start()
            self.step()
            if not auto_commit:
                self.commit()
        self.mark()

    # -- running

    @property
    def managers(self) -> ControllerManagers:
        return self.controller.managers

    def active(self) -> bool:
        return self.controller.is_active

    def step(self) -> None:
        self.controller.queue.run_until_idle()

    def commit(self) -> None:
        """Runs what is queued, commits what that has written, and lets the controller hear of it."""
        self.step()
        self.raft.commit()
        self.step()

    def result(self, future: Future[T]) -> T:
        """Runs the queue and returns what a call came to."""
        self.step()
        return future.result(0)

    def error(self, future: Future[Any]) -> ApiError:
        self.step()
        error = future.exception(0)
        assert isinstance(error, ApiError), error
        return error

    def advance(self, milliseconds: float) -> None:
        self.clock.advance(milliseconds)
        self.step()

    def apply(self, result: ControllerResult[T]) -> T:
        """Replays the records of a manager's result without any log, and returns the response."""
        for message, _ in result.records:
            self.managers.replay(message, 0)
        return result.response

    # -- what was written

    def mark(self) -> None:
        """From here on :meth:`written` counts."""
        self._mark = self.raft.log_end_offset

    def written(self) -> list[MetadataRecord]:
        """The records written since the mark, read back from their bytes."""
        return [record for record, _ in self.written_with_versions()]

    def written_with_versions(self) -> list[ApiMessageAndVersion]:
        return [
            ApiMessageAndVersion(*CLUSTER_METADATA.decode(value))
            for batch in self.raft.log.batches
            if batch.base_offset >= self._mark
            for value in batch.values
        ]

    # -- brokers

    def register(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        directories: Sequence[Uuid] | None = None,
        life: int = 0,
        previous_epoch: int = -1,
        version: int = 4,
        **fields: Any,
    ) -> Future[broker_registration.BrokerRegistrationResponse]:
        request = broker_registration.BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=fields.pop("cluster_id", CLUSTER_ID),
            incarnation_id=incarnation(broker_id, life),
            listeners=[broker_registration.Listener(name="PLAINTEXT", host=f"host{broker_id}", port=9092)],
            features=fields.pop("features", supported_features()),
            rack=rack,
            log_dirs=[directory(broker_id)] if directories is None else list(directories),
            previous_broker_epoch=previous_epoch,
            **fields,
        )
        context = ControllerRequestContext(request_version=version)
        return self.controller.register_broker(context, request)

    def heartbeat(
        self, broker_id: int, *, epoch: int | None = None, offset: int | None = None, **fields: Any
    ) -> Future[broker_heartbeat.BrokerHeartbeatResponse]:
        request = broker_heartbeat.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id) if epoch is None else epoch,
            current_metadata_offset=self.raft.log_end_offset if offset is None else offset,
            **fields,
        )
        return self.controller.process_broker_heartbeat(CONTEXT, request)

    def add_brokers(self, *broker_ids: int, racks: Mapping[int, str] | None = None) -> None:
        """Registers and unfences brokers."""
        for broker_id in broker_ids:
            self.result(self.register(broker_id, rack=(racks or {}).get(broker_id)))
            assert not self.result(self.heartbeat(broker_id)).is_fenced
        self.mark()

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            assert self.result(self.heartbeat(broker_id, want_fence=True)).is_fenced

    def unfence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            assert not self.result(self.heartbeat(broker_id)).is_fenced

    def broker(self, broker_id: int) -> BrokerRegistration:
        found = self.managers.cluster.broker(broker_id)
        assert found is not None
        return found

    def epoch(self, broker_id: int) -> int:
        return self.broker(broker_id).epoch

    # -- topics

    def create(
        self,
        name: str,
        partitions: int = -1,
        factor: int = -1,
        *,
        assignments: Iterable[Sequence[int]] = (),
        configs: Mapping[str, str | None] | None = None,
        context: ControllerRequestContext = CONTEXT,
        **fields: Any,
    ) -> create_topics.CreatableTopicResult:
        request = create_topics.CreateTopicsRequest(
            topics=[topic(name, partitions, factor, assignments=assignments, configs=configs)], **fields
        )
        response = self.result(self.controller.create_topics(context, request))
        return response.topics[0]

    def topic_id(self, name: str) -> Uuid:
        return self.managers.replication.topic_ids[name]

    def partition(self, name: str, number: int = 0) -> PartitionRegistration:
        found = self.managers.replication.partition(self.topic_id(name), number)
        assert found is not None
        return found

    # -- everything

    def state(self) -> dict[str, Any]:
        """All hard state, in a form that can be compared with another controller's."""
        return hard_state(self.managers)


def topic(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    *,
    assignments: Iterable[Sequence[int]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(assignments)
        ],
        configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def supported_features(**overrides: tuple[int, int] | None) -> list[broker_registration.Feature]:
    ranges: dict[str, tuple[int, int] | None] = {
        name: (versions.lowest, versions.highest) for name, versions in default_supported_features().items()
    }
    ranges |= {name.replace("_", "."): versions for name, versions in overrides.items()}
    return [
        broker_registration.Feature(name=name, min_supported_version=versions[0], max_supported_version=versions[1])
        for name, versions in ranges.items()
        if versions is not None
    ]


def hard_state(managers: ControllerManagers) -> dict[str, Any]:
    replication, cluster = managers.replication, managers.cluster
    return {
        "topics": {
            info.name: (topic_id, dict(info.partitions.items())) for topic_id, info in replication.topics.items()
        },
        "names": dict(replication.topic_ids),
        "collisions": {key: set(names) for key, names in replication._collisions.items()},
        "leaders": _index(replication.leaders),
        "isr": _index(replication.isr_members),
        "elr": _index(replication.elr_members),
        "directories": _index(replication.directories),
        "reassigning": set(replication.reassigning),
        "imbalanced": set(replication.imbalanced),
        "brokers": dict(cluster.brokers),
        "registration offsets": dict(cluster._registration_offsets.items()),
        "directory owners": dict(cluster._directory_owners.items()),
        "controllers": dict(cluster.controllers),
        "configs": {resource: dict(settings.items()) for resource, settings in managers.configs._configs.items()},
        "quotas": {entity: dict(limits.items()) for entity, limits in managers.client_quotas._quotas.items()},
        "features": dict(managers.features.finalized_features().levels),
        "producer ids": managers.producer_ids.next_producer_id,
        "acls": dict(managers.acls.entries),
        "acl counts": dict(managers.acls._counts.items()),
        "scram": dict(managers.scram.credentials),
        "tokens": dict(managers.delegation_tokens.tokens),
    }


def _index(index: Any) -> dict[Any, set[Any]]:
    return {key: set(partitions) for key, partitions in index.items()}
