"""The registration of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.common.dataclass import dataclass, field, replace
from barnabas.common.identifiers import Uuid
from barnabas.metadata.directory_id import is_online
from barnabas.metadata.endpoint import (
    Endpoint,
    Node,
    endpoint_records,
    endpoints_by_name,
    feature_records,
    features_by_name,
)
from barnabas.metadata.errors import MetadataReplayError
from barnabas.protocol.internal.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from barnabas.protocol.versions import VersionRange

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriterOptions


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The state of a broker in the metadata.

    A broker that has registered is *fenced*: known but inactive. It is unfenced when its heartbeats show that it has
    caught up with the metadata log, and fenced again when they stop, or when it requests to be fenced before it shuts
    down. Clients see unfenced brokers only.

    The incarnation ID is new at each start of the process, the epoch at each registration. The epoch lets the
    controller recognize requests of an earlier registration.
    """

    id: int
    epoch: int
    incarnation_id: Uuid
    listeners: Mapping[str, Endpoint]
    """By listener name. A client gets the address of the listener that it uses."""
    supported_features: Mapping[str, VersionRange] = field(default_factory=dict)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[Uuid, ...] = ()
    """The online log directories, sorted; empty if the broker has never reported them."""
    cordoned_directories: tuple[Uuid, ...] | None = None
    """Directories that get no new replicas (KIP-1066); None if the broker has never reported them."""
    is_migrating_zk_broker: bool = False

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        cordoned = record.cordoned_log_dirs
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners=endpoints_by_name(record.end_points),
            supported_features=features_by_name(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(sorted(record.log_dirs)),
            cordoned_directories=None if cordoned is None else tuple(sorted(cordoned)),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def merge(self, record: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        """Returns the registration after a change; the same object if nothing changes."""
        changed = replace(
            self,
            fenced=self._flag(record, "fenced", self.fenced),
            in_controlled_shutdown=self._flag(record, "in_controlled_shutdown", self.in_controlled_shutdown),
            directories=tuple(sorted(record.log_dirs)) or self.directories,
            cordoned_directories=(
                self.cordoned_directories
                if record.cordoned_log_dirs is None
                else tuple(sorted(record.cordoned_log_dirs))
            ),
        )
        return self if changed == self else changed

    @staticmethod
    def _flag(record: BrokerRegistrationChangeRecord, name: str, before: bool) -> bool:
        value: int = getattr(record, name)
        if value == 0:
            return before
        # Controlled shutdown can only be left by a new registration, so it has no -1.
        if value == 1 or (value == -1 and name == "fenced"):
            return value == 1
        raise MetadataReplayError(f"invalid value {value} of {name} in {record!r}")

    def with_fenced(self, fenced: bool) -> BrokerRegistration:
        return self if fenced == self.fenced else replace(self, fenced=fenced)

    def to_record(self, options: ImageWriterOptions) -> RegisterBrokerRecord:
        record = RegisterBrokerRecord(
            broker_id=self.id,
            broker_epoch=self.epoch,
            incarnation_id=self.incarnation_id,
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            end_points=endpoint_records(BrokerEndpoint, self.listeners.values()),
            features=feature_records(BrokerFeature, self.supported_features),
        )
        version = options.metadata_version
        if version.supports_migration:
            record.is_migrating_zk_broker = self.is_migrating_zk_broker
        elif self.is_migrating_zk_broker:
            options.handle_loss("brokers that migrate from ZooKeeper")
        if version.supports_directories:
            record.log_dirs = list(self.directories)
        elif self.directories:
            options.handle_loss("the log directories of brokers")
        if version.supports_cordoned_directories:
            record.cordoned_log_dirs = None if self.cordoned_directories is None else list(self.cordoned_directories)
        elif self.cordoned_directories is not None:
            options.handle_loss("the cordoned log directories of brokers")
        return record

    def node(self, listener_name: str) -> Node | None:
        """Returns the broker with its address on this listener; None if it has no such listener."""
        endpoint = self.listeners.get(listener_name)
        return None if endpoint is None else Node(self.id, endpoint.host, endpoint.port, self.rack, self.fenced)

    def has_online_directory(self, directory: Uuid) -> bool:
        return is_online(directory, self.directories)

    @property
    def has_uncordoned_directories(self) -> bool:
        """Whether a new replica can be placed here."""
        if not self.directories or self.cordoned_directories is None:
            return True
        return not set(self.directories) <= set(self.cordoned_directories)


def expect_registered(broker: BrokerRegistration | None, broker_id: int, epoch: int, verb: str) -> BrokerRegistration:
    """Returns the registration that a record changes; raises if there is none, or one of another epoch."""
    if broker is None:
        raise MetadataReplayError(f"cannot {verb} broker {broker_id}: it is not registered")
    if broker.epoch != epoch:
        raise MetadataReplayError(
            f"cannot {verb} broker {broker_id}: the record has epoch {epoch}, the registration {broker.epoch}"
        )
    return broker
