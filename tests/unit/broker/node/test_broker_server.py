"""The broker of a node: nobody is served before it can be used, and a shutdown hands everything over in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.wire_client import WireClient

from barnabas.broker.node.broker_server import BrokerServer
from barnabas.broker.node.broker_state import BrokerState
from barnabas.broker.node.request_serving import RequestServing
from barnabas.broker.publishers.lifecycle_publisher import LifecyclePublisher
from barnabas.broker.to_controller.broker_lifecycle_manager import BrokerLifecycleManager
from barnabas.clients.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.embedded import EmbeddedBroker
from barnabas.log.dirs.clean_shutdown_file import CleanShutdownFile
from barnabas.log.manager import log_manager
from barnabas.log.manager.job_threads import run_jobs
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import SnapshotManifest
from barnabas.protocol.internal.metadata import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.security.authorizer import AuthorizerServerInfo
from barnabas.security.standard_authorizer import StandardAuthorizer

WAIT_S = 60


def running(broker: EmbeddedBroker) -> BrokerServer:
    found = broker.server.broker
    assert found is not None
    return found


# ---------------------------------------------------------------------------------------------------- announced


class Lifecycle(BrokerLifecycleManager):
    """Knows an epoch, and is told of offsets."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.told: list[int] = []

    @property
    def broker_epoch(self) -> int:
        return self.epoch

    def metadata_applied(self, offset: int) -> None:
        self.told.append(offset)


def publish(publisher: LifecyclePublisher, image: MetadataImage, *records: object) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)  # type: ignore[arg-type]
    provenance = MetadataProvenance(image.offset + 1, 1, 0, True)
    new_image = delta.apply(provenance)
    publisher.on_metadata_update(delta, new_image, SnapshotManifest(provenance, 0))
    return new_image


def registration(epoch: int, *, fenced: bool = True) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=1, broker_epoch=epoch, incarnation_id=Uuid(bytes(15) + bytes([epoch])), fenced=fenced
    )


def test_a_broker_is_announced_when_its_own_registration_is_unfenced() -> None:
    """Not by what is left of a process that was killed, which is in the metadata as unfenced still."""
    lifecycle = Lifecycle(-1)
    publisher = LifecyclePublisher(1, lifecycle)
    image = publish(publisher, EMPTY_IMAGE)
    image = publish(publisher, image, registration(5, fenced=False))
    assert not publisher.unfenced_future.done()
    lifecycle.epoch = 7
    image = publish(publisher, image, registration(7))
    assert not publisher.unfenced_future.done()
    image = publish(publisher, image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    assert publisher.unfenced_future.done()
    publish(publisher, image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1))
    assert lifecycle.told == [0, 1, 2, 3, 4]


def test_whoever_is_served_finds_brokers_and_leaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is told of a cluster without brokers may take seconds until it asks again."""
    with EmbeddedBroker(tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders", 3)
    seen: list[tuple[bool, BrokerState, list[int]]] = []
    real = RequestServing.enable

    def enable(serving: RequestServing, futures: object = None) -> object:
        server = next((one for one in servers if one.serving is serving), None)
        if server is not None:
            topic = server.cache.image.topics.by_name["orders"]
            leaders = [partition.leader for partition in topic.partitions.values()]
            seen.append((server.cache.has_alive_broker(1), server.state, leaders))
        return real(serving, futures)  # type: ignore[arg-type]

    servers: list[BrokerServer] = []
    started = BrokerServer.startup

    def startup(server: BrokerServer) -> None:
        servers.append(server)
        started(server)

    monkeypatch.setattr(RequestServing, "enable", enable)
    monkeypatch.setattr(BrokerServer, "startup", startup)
    with EmbeddedBroker(tmp_path):
        assert seen == [(True, BrokerState.RUNNING, [1, 1, 1])]


def test_nobody_is_served_before_this_broker_has_heard_that_it_is_unfenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response of the controller may be there before the metadata are."""
    enabled = threading.Event()
    too_early: list[bool] = []
    real_enable, real_update = RequestServing.enable, LifecyclePublisher.on_metadata_update

    def enable(serving: RequestServing, futures: object = None) -> object:
        if serving._role == "broker":
            enabled.set()
        return real_enable(serving, futures)  # type: ignore[arg-type]

    def update(publisher: LifecyclePublisher, delta: object, image: MetadataImage, manifest: object) -> None:
        broker = image.cluster.brokers.get(1)
        if broker is not None and not broker.fenced and not too_early:
            publisher._lifecycle.initial_unfence_future.result(WAIT_S)
            too_early.append(enabled.wait(0.2))
        real_update(publisher, delta, image, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(RequestServing, "enable", enable)
    monkeypatch.setattr(LifecyclePublisher, "on_metadata_update", update)
    with EmbeddedBroker(tmp_path):
        assert enabled.is_set()
    assert too_early == [False]


# ---------------------------------------------------------------------------------------------------- stop


def test_a_clean_stop_leaves_its_epoch_for_the_next_start(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        lifecycle = running(broker).lifecycle
        assert lifecycle is not None
        epoch = lifecycle.broker_epoch
    assert CleanShutdownFile(tmp_path).read() == epoch
    with EmbeddedBroker(tmp_path) as broker:
        assert not (tmp_path / ".kafka_cleanshutdown").exists(), "while it runs, a crash is a crash"
        again = running(broker).lifecycle
        assert again is not None
        assert again.broker_epoch > epoch


def test_a_stop_without_asking_the_controller(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, overrides={"controlled.shutdown.enable": False}) as broker:
        states: list[BrokerState] = []
        server = running(broker)
    states.append(server.state)
    assert states == [BrokerState.SHUTTING_DOWN]
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_client_that_waits_for_records_does_not_hold_up_a_stop() -> None:
    broker = EmbeddedBroker().start()
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=600_000, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[asked])]
        )

        def wait() -> None:
            with pytest.raises(OSError):  # noqa: PT011 - in whatever way a connection ends
                client.ask(request, 12, FetchResponse)

        waiting = threading.Thread(target=wait)
        waiting.start()
        started = time.monotonic()
        broker.stop()
        assert time.monotonic() - started < 300, "half of the time that the client would wait"
        waiting.join(WAIT_S)
        assert not waiting.is_alive()


# ---------------------------------------------------------------------------------------------------- authorizer


class Slow(StandardAuthorizer):
    """Says when it has been started."""

    started: Iterator[AuthorizerServerInfo]
    infos: list[AuthorizerServerInfo] = []  # noqa: RUF012 - one list for broker and controller

    def start(self, info: AuthorizerServerInfo) -> dict[str, object]:  # type: ignore[override]
        self.infos.append(info)
        return dict(super().start(info))


def test_an_authorizer_is_told_where_it_is_and_keeps_out_who_may_not() -> None:
    Slow.infos.clear()
    overrides = {"authorizer.class.name": f"{__name__}.Slow", "super.users": "User:ANONYMOUS"}
    with EmbeddedBroker(overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        assert client.produce("orders", 0, b"value") == (Errors.NONE, 0)
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        assert {info.cluster_id for info in Slow.infos} == {broker.cluster_id}
        assert port in {one.port for info in Slow.infos for one in info.endpoints}


# ---------------------------------------------------------------------------------------------------- resized


def test_thread_pools_are_resized_while_the_broker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka does it. Only what fetches from other brokers has no pool here: there are none."""
    closing: list[int] = []

    def run(jobs: object, threads: int, name: str, *rest: object) -> list[Exception]:
        if name.startswith("log-closing"):
            closing.append(threads)
        return run_jobs(jobs, threads, name, *rest)  # type: ignore[arg-type]

    with EmbeddedBroker() as broker, KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        server = running(broker)
        recovery = [("num.recovery.threads.per.data.dir", size) for size in ("4", "8", "12")]
        for name, size in (("background.threads", "7"), *recovery):
            resource = ConfigResource(ConfigResourceType.BROKER, "1")
            admin.incremental_alter_configs({resource: [AlterConfigOp(name, size)]})
        assert "of 7 threads" in repr(server.scheduler)
        monkeypatch.setattr(log_manager, "run_jobs", run)
    assert set(closing) == {12}
