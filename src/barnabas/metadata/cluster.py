"""The cluster part of an image: brokers and controllers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata.broker_registration import BrokerRegistration, expect_registered
from barnabas.metadata.controller_registration import ControllerRegistration
from barnabas.metadata.map_delta import MapDelta
from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.internal.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Brokers and controllers by ID."""

    brokers: PersistentMap[int, BrokerRegistration] = field(default_factory=PersistentMap)
    controllers: PersistentMap[int, ControllerRegistration] = field(default_factory=PersistentMap)
    derived: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Data that readers have computed from this image and keep with it, as for a topic's image."""

    def __bool__(self) -> bool:
        return bool(self.brokers) or bool(self.controllers)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.brokers.get(broker_id)

    def broker_epoch(self, broker_id: int) -> int:
        """Returns the epoch of a broker's registration, -1 without one."""
        broker = self.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def write(self, writer: ImageWriter, options: ImageWriterOptions) -> None:
        version = options.metadata_version
        for _, broker in sorted(self.brokers.items()):
            writer.write(broker.to_record(options), version.register_broker_record_version)
        if version.supports_controller_registration:
            for _, controller in sorted(self.controllers.items()):
                writer.write(controller.to_record())
        elif self.controllers:
            options.handle_loss("the registrations of controllers")


class ClusterDelta:
    """Changed registrations."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._brokers = MapDelta(image.brokers)
        self._controllers = MapDelta(image.controllers)

    @classmethod
    def of_everything(cls, image: ClusterImage) -> ClusterDelta:
        delta = cls(ClusterImage())
        delta._brokers = MapDelta.of_everything(image.brokers)
        delta._controllers = MapDelta.of_everything(image.controllers)
        return delta

    @property
    def changed_brokers(self) -> Mapping[int, BrokerRegistration | None]:
        """The new registration by ID, None for a removed broker."""
        return self._brokers.changes

    @property
    def changed_controllers(self) -> Mapping[int, ControllerRegistration | None]:
        return self._controllers.changes

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self._brokers.get(broker_id)

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self._brokers.put(record.broker_id, BrokerRegistration.from_record(record))

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._brokers.remove(record.broker_id)

    def fence_broker(self, record: FenceBrokerRecord) -> None:
        self._put(record.id, self._registered(record.id, record.epoch, "fence").with_fenced(True))

    def unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._put(record.id, self._registered(record.id, record.epoch, "unfence").with_fenced(False))

    def change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, "change")
        self._put(record.broker_id, broker.merge(record))

    def register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers.put(record.controller_id, ControllerRegistration.from_record(record))

    def finish_snapshot(self) -> None:
        self._brokers.finish_snapshot()
        self._controllers.finish_snapshot()

    def __bool__(self) -> bool:
        return bool(self._brokers or self._controllers)

    def apply(self) -> ClusterImage:
        if not self:
            return self.image
        return ClusterImage(self._brokers.apply(), self._controllers.apply())

    def _put(self, broker_id: int, broker: BrokerRegistration) -> None:
        """Stores a registration, unless it is unchanged."""
        if broker is not self._brokers.get(broker_id):
            self._brokers.put(broker_id, broker)

    def _registered(self, broker_id: int, epoch: int, verb: str) -> BrokerRegistration:
        return expect_registered(self._brokers.get(broker_id), broker_id, epoch, verb)
