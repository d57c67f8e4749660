"""Registrations of brokers and controllers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future

from barnabas.common.clock import Clock
from barnabas.common.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap
from barnabas.controller.broker_heartbeat_manager import BrokerHeartbeatManager, BrokerIdAndEpoch
from barnabas.controller.feature_control_manager import FeatureControlManager
from barnabas.controller.replica_placer import UsableBroker
from barnabas.controller.result import ControllerResult
from barnabas.metadata.broker_registration import BrokerRegistration, expect_registered
from barnabas.metadata.controller_registration import ControllerRegistration
from barnabas.metadata.directory_id import MIGRATING, UNASSIGNED, is_reserved
from barnabas.metadata.endpoint import endpoint_records, feature_records
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.metadata_version import FEATURE_NAME
from barnabas.protocol.internal.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.protocol.versions import VersionRange
from barnabas.raft.client import ApiMessageAndVersion

log = logging.getLogger(__name__)

DEFAULT_SESSION_TIMEOUT_MS = 9_000
"""``broker.session.timeout.ms``"""

FIRST_VERSION_WITH_PREVIOUS_EPOCH = 3
"""First BrokerRegistration version in which a broker reports whether it was shut down cleanly."""

NO_PREVIOUS_EPOCH = -2
"""A previous epoch that no broker sends; after a crash a broker sends -1."""

BrokerShutdownHandler = Callable[[int, bool], list[ApiMessageAndVersion]]
"""Given a broker and whether its shutdown was clean, returns the records for its partitions."""


class ClusterControlManager:
    """Holds the *hard state* of nodes: the part that is in the log and the same on every controller.

    A broker registers each time its process starts and gets an *epoch*, the offset of its RegisterBrokerRecord. The
    incarnation id distinguishes a restarted broker from one that repeats its registration:

    - A new incarnation replaces the old one, unless the old one is still alive. Then either a second broker was started
      with the same id, or the session of the first has not expired yet.
    - The same incarnation updates its registration, for example with a new feature range, and keeps its epoch.

    Liveness is soft state, in the :class:`BrokerHeartbeatManager`, which exists while this controller is active.
    """

    def __init__(
        self,
        registry: SnapshotRegistry,
        features: FeatureControlManager,
        clock: Clock,
        *,
        cluster_id: str,
        node_id: int,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        on_broker_shutdown: BrokerShutdownHandler,
    ) -> None:
        self._features = features
        self._clock = clock
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._session_timeout_ns = session_timeout_ms * 1_000_000
        self._on_broker_shutdown = on_broker_shutdown
        self._brokers: TimelineHashMap[int, BrokerRegistration] = TimelineHashMap(registry)
        self._registration_offsets: TimelineHashMap[int, int] = TimelineHashMap(registry)
        self._controllers: TimelineHashMap[int, ControllerRegistration] = TimelineHashMap(registry)
        self._directory_owners: TimelineHashMap[Uuid, int] = TimelineHashMap(registry)
        self._heartbeats: BrokerHeartbeatManager | None = None
        """None on a standby. The controller's thread replaces the object; other threads read the field only once."""
        self._ready_brokers: list[tuple[int, Future[None]]] = []

    # -- leadership

    def activate(self) -> None:
        heartbeats = BrokerHeartbeatManager(self._clock, self._session_timeout_ns)
        for broker in self._brokers.values():
            heartbeats.register(broker.id, broker.fenced)
            if not broker.fenced:
                heartbeats.tracker.presume(BrokerIdAndEpoch(broker.id, broker.epoch))
        self._heartbeats = heartbeats

    def deactivate(self) -> None:
        self._heartbeats = None

    @property
    def heartbeats(self) -> BrokerHeartbeatManager:
        if self._heartbeats is None:
            raise RuntimeError("heartbeats are tracked by the active controller only")
        return self._heartbeats

    def track_heartbeat(self, broker_id: int, epoch: int) -> bool:
        """Records a heartbeat, from any thread; returns False if this controller is not active."""
        heartbeats = self._heartbeats
        if heartbeats is None:
            return False
        heartbeats.tracker.touch(BrokerIdAndEpoch(broker_id, epoch))
        return True

    # -- registration

    def register_broker(
        self, request: BrokerRegistrationRequest, *, new_epoch: int, request_version: int, kraft_version: int
    ) -> ControllerResult[BrokerRegistrationResponse]:
        if request.cluster_id != self._cluster_id:
            raise InconsistentClusterIdError(
                f"The cluster ID is {self._cluster_id}, but the broker's is {request.cluster_id}."
            )
        broker_id = request.broker_id
        existing = self._brokers.get(broker_id)
        new_incarnation = existing is None or existing.incarnation_id != request.incarnation_id
        if existing is not None and new_incarnation:
            self._check_not_alive(existing)
        if request.is_migrating_zk_broker:
            raise BrokerIdNotRegisteredError("Migration from ZooKeeper is not supported.")
        with_directories = self._features.metadata_version.supports_directories
        if with_directories:
            self._check_directories(broker_id, request.log_dirs)
        record = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=new_epoch,
            rack=request.rack,
            end_points=endpoint_records(BrokerEndpoint, request.listeners),
            features=self._check_features(request.features, kraft_version),
            log_dirs=list(request.log_dirs) if with_directories else [],
        )
        records: list[ApiMessageAndVersion] = []
        if new_incarnation:
            previous_epoch = NO_PREVIOUS_EPOCH if existing is None else existing.epoch
            clean = (
                request_version >= FIRST_VERSION_WITH_PREVIOUS_EPOCH and request.previous_broker_epoch == previous_epoch
            )
            records += self._on_broker_shutdown(broker_id, clean)
            log.info(
                "Registering broker %d, incarnation %s, epoch %d (before: %s); %d record(s) for its partitions",
                broker_id,
                uuid_to_string(request.incarnation_id),
                new_epoch,
                "none" if existing is None else f"{uuid_to_string(existing.incarnation_id)}, clean={clean}",
                len(records),
            )
            record.broker_epoch = new_epoch + len(records)
        else:
            assert existing is not None
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
            record.broker_epoch = existing.epoch
            log.info("Broker %d updates its registration in epoch %d", broker_id, existing.epoch)
        version = self._features.metadata_version.register_broker_record_version
        records.append(ApiMessageAndVersion(record, version))
        return ControllerResult.of(records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch))

    def _check_not_alive(self, existing: BrokerRegistration) -> None:
        session = BrokerIdAndEpoch(existing.id, existing.epoch)
        if not self.heartbeats.has_valid_session(session):
            return
        if existing.id == self._node_id and self.heartbeats.tracker.is_presumed(session):
            # The broker is in this very process, and no heartbeat has confirmed its session since this controller took
            # over: a previous process left the session behind when it was killed. Kafka would wait until the session
            # expires, nine seconds in which a cluster of one node has no broker.
            log.info("Ending the session of broker %d, which belongs to an earlier process of this node", existing.id)
            return
        raise DuplicateBrokerRegistrationError(
            f"Another broker with ID {existing.id} is registered and active. After a restart, the old session "
            f"ends within {self._session_timeout_ns // 1_000_000} ms."
        )

    def _check_directories(self, broker_id: int, directories: list[Uuid]) -> None:
        if not directories:
            raise InvalidRegistrationError("The broker registers no log directories.")
        if any(map(is_reserved, directories)):
            raise InvalidRegistrationError("The broker registers a log directory with a reserved ID.")
        if len(set(directories)) != len(directories):
            raise InvalidRegistrationError("The broker registers the same log directory more than once.")
        for directory in directories:
            owner = self._directory_owners.get(directory)
            if owner is not None and owner != broker_id:
                raise InvalidRegistrationError(
                    f"The log directory {uuid_to_string(directory)} is registered by broker {owner}."
                )

    def _check_features(self, features: Iterable[Feature], kraft_version: int) -> list[BrokerFeature]:
        """Checks that the broker supports every finalized feature level."""
        finalized = dict(self._features.finalized_features().levels)
        finalized["kraft.version"] = kraft_version
        supported = {
            feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
            for feature in features
        }
        if FEATURE_NAME not in supported:
            raise InvalidRegistrationError(f"The broker does not state its supported levels of {FEATURE_NAME}.")
        for name, level in finalized.items():
            supported_range = supported.get(name, VersionRange(0, 0))
            if level not in supported_range:
                raise UnsupportedVersionError(
                    f"The feature {name} has level {level}, but the broker supports only {supported_range}."
                )
        for name, supported_range in supported.items():
            if name not in finalized and 0 not in supported_range:
                raise UnsupportedVersionError(
                    f"The feature {name} is disabled, but the broker supports only {supported_range}."
                )
        return feature_records(BrokerFeature, supported)

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerResult[ControllerRegistrationResponse]:
        if not self._features.metadata_version.supports_controller_registration:
            raise UnsupportedVersionError("The cluster's metadata.version does not support controller registration.")
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=False,
            end_points=endpoint_records(ControllerEndpoint, request.listeners),
            features=[
                ControllerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
        )
        response = ControllerRegistrationResponse(error_message=None)
        return ControllerResult.atomic_of([ApiMessageAndVersion(record, 0)], response)

    # -- queries

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self._brokers.get(broker_id)

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        return self._brokers.present

    @property
    def controllers(self) -> Mapping[int, ControllerRegistration]:
        return self._controllers.present

    def registration_offset(self, broker_id: int) -> int | None:
        """Returns an offset at or after the registration: a broker that has read up to it knows its registration."""
        return self._registration_offsets.get(broker_id)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker may lead and be in an ISR: registered, unfenced, not in controlled shutdown."""
        broker = self._brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def has_online_directory(self, broker_id: int, directory: Uuid) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.has_online_directory(directory)

    def default_directory(self, broker_id: int) -> Uuid:
        """Returns the log directory of a new replica: the broker's only one, or UNASSIGNED to let the broker choose."""
        if not self._features.metadata_version.supports_directories:
            return MIGRATING
        broker = self._brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED
        if not broker.directories:
            return MIGRATING
        return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED

    def check_broker_epoch(self, broker_id: int, epoch: int) -> None:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise StaleBrokerEpochError(f"Broker {broker_id} is not registered.")
        if broker.epoch != epoch:
            raise StaleBrokerEpochError(f"The current epoch of broker {broker_id} is {broker.epoch}, not {epoch}.")

    def usable_brokers(self) -> Iterable[UsableBroker]:
        def rack(broker_id: int) -> str | None:
            broker = self._brokers.get(broker_id)
            return None if broker is None else broker.rack

        def has_room(broker_id: int) -> bool:
            broker = self._brokers.get(broker_id)
            return broker is not None and broker.has_uncordoned_directories

        return self.heartbeats.usable_brokers(rack, has_room)

    def broker_supported(self) -> Iterable[tuple[int, Mapping[str, VersionRange]]]:
        return [(broker.id, broker.supported_features) for broker in self._brokers.values()]

    def controller_supported(self) -> Iterable[tuple[int, Mapping[str, VersionRange]]]:
        return [(controller.id, controller.supported_features) for controller in self._controllers.values()]

    def add_ready_brokers_future(self, future: Future[None], least: int) -> None:
        """Completes the future as soon as at least this many brokers are unfenced."""
        self._ready_brokers.append((least, future))
        self._check_ready_brokers()

    def fail_ready_brokers_futures(self, error: Exception) -> None:
        waiting, self._ready_brokers = self._ready_brokers, []
        for _, future in waiting:
            future.set_exception(error)

    def _check_ready_brokers(self) -> None:
        if not self._ready_brokers:
            return
        ready = sum(not broker.fenced for broker in self._brokers.values())
        waiting, self._ready_brokers = self._ready_brokers, []
        for least, future in waiting:
            if ready >= least:
                future.set_result(None)
            else:
                self._ready_brokers.append((least, future))

    # -- replay

    def replay_register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        broker = BrokerRegistration.from_record(record)
        previous = self._brokers.get(broker.id)
        self._registration_offsets[broker.id] = offset
        self._brokers[broker.id] = broker
        self._update_directories(broker.id, previous.directories if previous else (), broker.directories)
        if self._heartbeats is not None:
            if previous is not None and previous.incarnation_id != broker.incarnation_id:
                self._heartbeats.tracker.forget(BrokerIdAndEpoch(previous.id, previous.epoch))
                self._heartbeats.remove(broker.id)
            self._heartbeats.register(broker.id, broker.fenced)
        log.info("Registered broker %d: %s", broker.id, broker)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, "unregister")
        self._registration_offsets.pop(broker.id)
        self._brokers.pop(broker.id)
        self._update_directories(broker.id, broker.directories, ())
        if self._heartbeats is not None:
            self._heartbeats.tracker.forget(BrokerIdAndEpoch(broker.id, broker.epoch))
            self._heartbeats.remove(broker.id)
        log.info("Unregistered broker %d", broker.id)

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        self._change(self._registered(record.id, record.epoch, "fence").with_fenced(True))

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._change(self._registered(record.id, record.epoch, "unfence").with_fenced(False))

    def replay_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        self._change(self._registered(record.broker_id, record.broker_epoch, "change").merge(record))

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers[record.controller_id] = ControllerRegistration.from_record(record)
        log.info("Registered controller %d", record.controller_id)

    def _registered(self, broker_id: int, epoch: int, verb: str) -> BrokerRegistration:
        return expect_registered(self._brokers.get(broker_id), broker_id, epoch, verb)

    def _change(self, broker: BrokerRegistration) -> None:
        previous = self._brokers[broker.id]
        if broker == previous:
            return
        self._brokers[broker.id] = broker
        self._update_directories(broker.id, previous.directories, broker.directories)
        if self._heartbeats is not None:
            self._heartbeats.register(broker.id, broker.fenced)
        self._check_ready_brokers()
        log.info("Broker %d: fenced=%s, shutting down=%s", broker.id, broker.fenced, broker.in_controlled_shutdown)

    def _update_directories(self, broker_id: int, before: Iterable[Uuid], after: Iterable[Uuid]) -> None:
        for directory in before:
            if self._directory_owners.get(directory) == broker_id:
                self._directory_owners.pop(directory)
        for directory in after:
            owner = self._directory_owners.get(directory)
            if owner is not None and owner != broker_id:
                raise MetadataReplayError(
                    f"log directory {uuid_to_string(directory)} of broker {broker_id} already belongs to broker {owner}"
                )
            self._directory_owners[directory] = broker_id
