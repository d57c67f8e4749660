"""A controller's registration: sent when the cluster knows such records, until the log has it."""

from __future__ import annotations

import pytest

from barnabas.broker.to_controller.controller_registration_manager import RETRY_MS, ControllerRegistrationManager
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.metadata_version import LATEST_VERSION, MetadataVersion
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import SnapshotManifest
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import ConfigRecord, FeatureLevelRecord, RegisterControllerRecord
from barnabas.protocol.messages.broker_registration import Feature, Listener
from barnabas.protocol.messages.controller_registration import ControllerRegistrationResponse
from barnabas.protocol.versions import VersionRange
from controller_channel_fixtures import FakeControllerChannel

ME = 3
MINE, ANOTHER = Uuid(b"m" * 16), Uuid(b"a" * 16)


def version(level: MetadataVersion) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=level.value)


def registration(incarnation: Uuid, controller_id: int = ME) -> RegisterControllerRecord:
    return RegisterControllerRecord(controller_id=controller_id, incarnation_id=incarnation)


class Bench:
    def __init__(self) -> None:
        self.clock = MockClock()
        self.channel = FakeControllerChannel(self.clock)
        self.image: MetadataImage = EMPTY_IMAGE
        self.manager = ControllerRegistrationManager(
            ME,
            [Endpoint("CONTROLLER", SecurityProtocol.SSL, "somewhere", 9093)],
            {"metadata.version": VersionRange(7, 30)},
            self.channel,
            incarnation_id=MINE,
            clock=self.clock,
            threaded=False,
        )
        self.manager.start()

    def publish(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        provenance = MetadataProvenance(1, 1, 0, True)
        self.image = delta.apply(provenance)
        self.manager.on_metadata_update(delta, self.image, SnapshotManifest(provenance, 0))
        self.manager.queue.run_until_idle()

    def is_registered(self) -> bool:
        return self.manager.registered

    def answer(self, error: Errors = Errors.NONE) -> None:
        self.channel.take().answer(ControllerRegistrationResponse(error_code=error))
        self.manager.queue.run_until_idle()

    def wait(self, milliseconds: float) -> None:
        self.clock.advance(milliseconds)
        self.manager.queue.run_until_idle()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_registers_with_its_listeners_and_features(bench: Bench) -> None:
    assert bench.channel.started == 1
    bench.publish(version(LATEST_VERSION))
    body = bench.channel.sent[0].body
    assert (body.controller_id, body.incarnation_id) == (ME, MINE)
    assert body.listeners == [Listener(name="CONTROLLER", host="somewhere", port=9093, security_protocol=1)]
    assert body.features == [Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)]
    assert body.zk_migration_ready is False


def test_it_waits_for_a_metadata_version_that_knows_such_records(bench: Bench) -> None:
    bench.publish(version(MetadataVersion.for_release("3.6-IV2")))
    assert not bench.channel.sent
    bench.publish(version(MetadataVersion.for_release("3.7-IV0")))
    assert len(bench.channel.sent) == 1


def test_only_the_log_makes_it_registered(bench: Bench) -> None:
    bench.publish(version(LATEST_VERSION))
    bench.answer()
    assert not bench.is_registered()
    bench.publish(registration(MINE))
    assert bench.is_registered()
    bench.wait(1_000_000)
    assert not bench.channel.sent


def test_one_request_at_a_time(bench: Bench) -> None:
    bench.publish(version(LATEST_VERSION))
    bench.publish(version(LATEST_VERSION))
    assert len(bench.channel.sent) == 1


@pytest.mark.parametrize("outcome", ["error", "refused", "mismatch", "timeout"])
def test_a_failure_is_tried_again_later(bench: Bench, outcome: str) -> None:
    bench.publish(version(LATEST_VERSION))
    if outcome == "error":
        bench.answer(Errors.UNKNOWN_SERVER_ERROR)
    else:
        sent = bench.channel.take()
        {"refused": sent.refuse, "mismatch": sent.mismatch, "timeout": sent.time_out}[outcome]()
        bench.manager.queue.run_until_idle()
    bench.wait(RETRY_MS * 0.9)
    assert not bench.channel.sent
    bench.wait(RETRY_MS * 0.2)
    assert len(bench.channel.sent) == 1
    bench.answer(Errors.UNKNOWN_SERVER_ERROR)
    bench.wait(RETRY_MS * 1.5)
    assert not bench.channel.sent, "the second failure waits longer"
    bench.wait(RETRY_MS * 0.6)
    assert len(bench.channel.sent) == 1


def test_the_registration_of_an_earlier_incarnation_does_not_count(bench: Bench) -> None:
    bench.publish(version(LATEST_VERSION), registration(ANOTHER))
    assert not bench.is_registered()
    assert len(bench.channel.sent) == 1


def test_who_is_pushed_aside_registers_again(bench: Bench) -> None:
    bench.publish(version(LATEST_VERSION), registration(MINE))
    assert not bench.channel.sent
    bench.publish(registration(ANOTHER))
    assert not bench.is_registered()
    assert len(bench.channel.sent) == 1


def test_the_rest_of_the_metadata_is_none_of_its_business(bench: Bench) -> None:
    bench.publish(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"))
    bench.publish(registration(ANOTHER, ME + 1))
    assert len(bench.manager.queue) == 0
    assert not bench.channel.sent


def test_closing(bench: Bench) -> None:
    bench.manager.close()
    assert bench.channel.shutdowns == 1
    bench.publish(version(LATEST_VERSION))
    assert not bench.channel.sent
