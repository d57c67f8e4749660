"""The controller, the metadata loader and the snapshots over a log in files, from one start to the next."""

from __future__ import annotations

import random
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest

from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.config import ControllerConfig, ControllerPlugins
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.replica_placer import StripedReplicaPlacer
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.event_executor import SteppedExecutor
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.metadata_version import LATEST_VERSION
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher, SnapshotManifest
from barnabas.metadata.raft_listener import MetadataRaftListener
from barnabas.metadata.snapshot_generator import SnapshotEmitter, SnapshotGenerator
from barnabas.protocol.messages import broker_heartbeat, broker_registration, create_topics, update_features
from barnabas.raft.bootstrap_file import BOOTSTRAP_FILE, read_bootstrap_file, write_bootstrap_file, write_initial_voters
from barnabas.raft.kraft_client import KRaftClient
from barnabas.raft.voter_set import ReplicaKey, VoterNode, VoterSet
from unit.controller.harness import (
    CLUSTER_ID,
    CONTEXT,
    UuidSource,
    directory,
    hard_state,
    incarnation,
    supported_features,
    topic,
)
from unit.raft.raft_box import DIRECTORY, ENDPOINTS, NODE, RaftBox

T = TypeVar("T")


class Publisher(MetadataPublisher):
    def __init__(self) -> None:
        self.images: list[MetadataImage] = []
        self.manifests: list[LoaderManifest] = []

    @property
    def name(self) -> str:
        return "test"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:
        self.images.append(new_image)
        self.manifests.append(manifest)


class Node:
    """A controller and a metadata loader over one Raft client, all stepped by hand."""

    def __init__(self, box: RaftBox, *, max_bytes: int = 1 << 30, **settings: Any) -> None:
        self.box = box
        config = box.config(**settings)
        self.raft: KRaftClient = box.client(config, start=False)
        plugins = ControllerPlugins(
            new_uuid=UuidSource(self.raft.log_end_offset + 7), replica_placer=StripedReplicaPlacer(random.Random(5))
        )
        self.controller = QuorumController(
            ControllerConfig(NODE, CLUSTER_ID, max_idle_interval_ms=0), self.raft, plugins, clock=box.clock
        )
        self.executor = SteppedExecutor()
        self.faults: list[str] = []
        self.loader = MetadataLoader(
            self.executor, lambda: self.raft.high_watermark, self._fault, box.clock, on_load_fault=self._fault
        )
        self.snapshots = SteppedExecutor()
        self.publisher = Publisher()
        generator = SnapshotGenerator(
            SnapshotEmitter(self.raft, box.clock), self.snapshots, self._fault, max_bytes=max_bytes, clock=box.clock
        )
        self.loader.install_publishers([self.publisher, generator])
        self.raft.register(MetadataRaftListener(self.loader))
        self.raft.initialize()
        self.step()

    def _fault(self, what: str, error: BaseException) -> None:
        self.faults.append(f"{what}: {error!r}")

    def step(self) -> None:
        """Until nothing happens any more."""
        for _ in range(100):
            high_watermark = self.raft.high_watermark
            events = self.controller.queue.run_until_idle()
            self.raft.poll_once()
            events += self.executor.run_all() + self.snapshots.run_all()
            if not events and self.raft.high_watermark == high_watermark:
                return
        raise AssertionError("it never comes to rest")

    def result(self, future: Future[T]) -> T:
        self.controller.queue.run_until_idle()
        assert not future.done(), "the answer waits for the commit"
        self.step()
        return future.result(0)

    def kill(self) -> None:
        self.box.kill(self.raft)

    @property
    def image(self) -> MetadataImage:
        assert self.faults == []
        return self.publisher.images[-1]

    def register_broker(self) -> int:
        request = broker_registration.BrokerRegistrationRequest(
            broker_id=NODE,
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation(NODE),
            listeners=[broker_registration.Listener(name="PLAINTEXT", host="localhost", port=9092)],
            features=supported_features(),
            log_dirs=[directory(NODE)],
        )
        epoch = self.result(self.controller.register_broker(CONTEXT, request)).broker_epoch
        heartbeat = broker_heartbeat.BrokerHeartbeatRequest(
            broker_id=NODE, broker_epoch=epoch, current_metadata_offset=self.raft.log_end_offset
        )
        assert not self.result(self.controller.process_broker_heartbeat(CONTEXT, heartbeat)).is_fenced
        return epoch

    def create(self, *names: str, partitions: int = 3) -> None:
        request = create_topics.CreateTopicsRequest(topics=[topic(name, partitions, 1) for name in names])
        response = self.result(self.controller.create_topics(CONTEXT, request))
        assert {result.error_code for result in response.topics} == {0}, response


@pytest.fixture
def box(tmp_path: Path) -> RaftBox:
    return RaftBox(tmp_path)


def names(image: MetadataImage) -> set[str]:
    return {one.name for one in image.topics.by_id.values()}


def test_a_cluster_goes_on_where_it_was_killed(box: RaftBox) -> None:
    node = Node(box)
    assert node.controller.is_active
    node.register_broker()
    node.create("orders", "payments")
    before, image = hard_state(node.controller.managers), node.image
    assert names(image) == {"orders", "payments"}
    node.kill()

    node = Node(box)
    assert node.controller.claim_epoch == 2
    assert hard_state(node.controller.managers) == before
    assert node.image.same_content(image)
    assert len(node.publisher.images) == 1, "one delta with everything, and not the way there"
    node.create("third")
    node.kill()

    node = Node(box)
    assert names(node.image) == {"orders", "payments", "third"}
    assert node.controller.claim_epoch == 3


def test_snapshots_are_made_and_begun_from(box: RaftBox) -> None:
    node = Node(box, max_bytes=2000, log_segment_bytes=6000, max_retention_bytes=8000)
    node.register_broker()
    for number in range(30):
        node.create(f"topic-{number}")
    ids = node.raft.log.snapshot_ids
    assert len(ids) > 3
    box.clock.advance(60_000)
    node.step()
    assert node.raft.log.start_offset > 0
    assert len(node.raft.log.snapshot_ids) < len(ids)
    before, image = hard_state(node.controller.managers), node.image
    node.kill()
    node = Node(box)
    assert node.raft.log.start_offset > 0
    assert hard_state(node.controller.managers)["topics"] == before["topics"]
    assert node.image.same_content(image)
    assert node.loader.metrics.snapshots_loaded == 1
    node.register_broker()  # a minute without a heartbeat has fenced it
    node.create("more")
    assert "more" in names(node.image)


def test_a_controller_that_resigns_comes_back(box: RaftBox) -> None:
    node = Node(box)
    node.register_broker()
    node.create("kept")
    request = create_topics.CreateTopicsRequest(topics=[topic("lost", 1, 1)])
    future = node.controller.create_topics(CONTEXT, request)
    node.controller.queue.run_until_idle()
    node.controller._leadership.renounce()
    node.step()
    assert "No controller is active" in str(future.exception(0))
    assert node.controller.claim_epoch == 2
    node.create("next")
    assert names(node.image) == {"kept", "next"}
    state = hard_state(node.controller.managers)
    node.kill()
    assert hard_state(Node(box).controller.managers)["topics"] == state["topics"]


def test_voters_in_the_log_from_format_on(box: RaftBox) -> None:
    write_initial_voters(box.directory, VoterSet.of([VoterNode(ReplicaKey(NODE, DIRECTORY), ENDPOINTS)]), box.clock)
    node = Node(box, voters=())
    assert node.faults == []
    assert node.image.features.metadata_version == LATEST_VERSION, "nobody was shown an image without one"
    assert len({image.features.metadata_version for image in node.publisher.images}) == 1
    assert all(isinstance(manifest, SnapshotManifest) for manifest in node.publisher.manifests[:1])
    assert node.raft.kraft_version == 1
    node.register_broker()
    node.create("a")
    node.kill()
    node = Node(box, voters=())
    assert names(node.image) == {"a"}


def test_kraft_version_is_raised_through_the_controller(box: RaftBox) -> None:
    node = Node(box)
    node.register_broker()
    request = update_features.UpdateFeaturesRequest(
        feature_updates=[update_features.FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)]
    )
    future = node.controller.update_features(CONTEXT, request)
    node.controller.queue.run_until_idle()
    node.step()
    assert future.result(0).error_code == 0
    assert node.raft.kraft_version == 1
    node.create("a")
    node.kill()
    node = Node(box, voters=())
    assert node.raft.kraft_version == 1
    assert names(node.image) == {"a"}


def test_the_bootstrap_file(tmp_path: Path) -> None:
    chosen = BootstrapMetadata.for_version(levels={"group.version": 0}, source="a test")
    path = tmp_path / BOOTSTRAP_FILE
    write_bootstrap_file(path, chosen.records)
    assert tuple(read_bootstrap_file(path)) == chosen.records
