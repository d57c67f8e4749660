"""Changed settings in the metadata find those whom they concern."""

from __future__ import annotations

import pytest

from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig, FunctionReconfigurable
from barnabas.broker.config.dynamic_config_publisher import DynamicConfigPublisher
from barnabas.metadata.configs import ConfigResourceType
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import SnapshotManifest
from barnabas.protocol.internal.metadata import ConfigRecord
from unit.broker.config.configs import node

PROVENANCE = MetadataProvenance(5, 1, 0, True)
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
CLIENT_METRICS, GROUP = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP


def record(kind: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


class World:
    def __init__(self) -> None:
        self.dynamic = DynamicBrokerConfig(node())
        self.told: list[tuple[str, str, dict[str, str]]] = []
        self.faults: list[tuple[str, BaseException]] = []
        self.after = 0
        self.image = EMPTY_IMAGE
        self.publisher = DynamicConfigPublisher(
            1,
            self.dynamic,
            on_fault=lambda what, error: self.faults.append((what, error)),
            topic=lambda name, settings: self._tell("topic", name, dict(settings)),
            client_metrics=lambda name, settings: self._tell("metrics", name, dict(settings)),
            group=lambda name, settings: self._tell("group", name, dict(settings)),
            after_broker=self._after,
        )

    def _tell(self, kind: str, name: str, settings: dict[str, str]) -> None:
        if name == "broken":
            raise ValueError("no")
        self.told.append((kind, name, settings))

    def _after(self) -> None:
        self.after += 1

    def publish(self, *records: ConfigRecord) -> MetadataImage:
        delta = MetadataDelta(self.image)
        for message in records:
            delta.replay(message)
        self.image = delta.apply(PROVENANCE)
        self.publisher.on_metadata_update(delta, self.image, SnapshotManifest(PROVENANCE, 0))
        return self.image


@pytest.fixture
def world() -> World:
    return World()


def test_name(world: World) -> None:
    assert world.publisher.name == "DynamicConfigPublisher broker id=1"


def test_all_settings_of_a_resource_are_told(world: World) -> None:
    world.publish(record(TOPIC, "t", "a", "1"), record(GROUP, "g", "b", "2"), record(CLIENT_METRICS, "m", "c", "3"))
    assert sorted(world.told) == [("group", "g", {"b": "2"}), ("metrics", "m", {"c": "3"}), ("topic", "t", {"a": "1"})]
    world.told.clear()
    world.publish(record(TOPIC, "t", "d", "4"))
    assert world.told == [("topic", "t", {"a": "1", "d": "4"})]
    world.told.clear()
    world.publish(record(TOPIC, "t", "a", None), record(TOPIC, "t", "d", None))
    assert world.told == [("topic", "t", {})]
    world.told.clear()
    world.publish()
    assert world.told == []


def test_broker_settings(world: World) -> None:
    world.publish(
        record(BROKER, "1", "num.io.threads", "9"),
        record(BROKER, "", "num.io.threads", "7"),
        record(BROKER, "", "background.threads", "11"),
        record(BROKER, "2", "num.io.threads", "5"),
    )
    assert world.dynamic.current.num_io_threads == 9
    assert world.dynamic.current.background_threads == 11
    assert world.after == 1
    world.publish(record(BROKER, "1", "num.io.threads", None))
    assert world.dynamic.current.num_io_threads == 7


def test_no_value_is_in_force_in_between(world: World) -> None:
    seen: list[int] = []
    world.dynamic.add_reconfigurable(
        FunctionReconfigurable({"num.io.threads"}, lambda _old, new: seen.append(new.num_io_threads))
    )
    world.publish(record(BROKER, "1", "num.io.threads", "9"), record(BROKER, "", "num.io.threads", "7"))
    world.publish(record(BROKER, "1", "num.io.threads", None), record(BROKER, "", "num.io.threads", "6"))
    assert seen == [9, 6]


def test_a_fault_does_not_stop_the_others(world: World) -> None:
    world.publish(record(TOPIC, "broken", "a", "1"), record(TOPIC, "t", "a", "1"))
    assert [what for what, _ in world.faults] == ["applying the settings of topic broken"]
    assert world.told == [("topic", "t", {"a": "1"})]


def test_passwords_are_not_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world.publish(
        record(BROKER, "1", "listener.name.a.ssl.key.password", "secret"),
        record(BROKER, "1", "my.password", "secret"),
        record(BROKER, "1", "num.io.threads", "9"),
    )
    assert "secret" not in caplog.text
    assert "num.io.threads=9" in caplog.text
    assert "Updated the settings of broker 1" in caplog.text


def test_nobody_need_care() -> None:
    publisher = DynamicConfigPublisher(1, on_fault=lambda *_: pytest.fail("a fault"))
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(record(TOPIC, "t", "a", "1"))
    delta.replay(record(BROKER, "1", "a", "1"))
    publisher.on_metadata_update(delta, delta.apply(PROVENANCE), SnapshotManifest(PROVENANCE, 0))
