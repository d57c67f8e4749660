"""The loader's ear at Raft, and the snapshots that the loader's images become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.identifiers import Uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.event_executor import SteppedExecutor
from barnabas.metadata.features import FeaturesImage
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.metadata_version import LATEST_VERSION
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import LoaderManifest, LogDeltaManifest, MetadataPublisher, SnapshotManifest
from barnabas.metadata.raft_listener import MetadataRaftListener
from barnabas.metadata.snapshot_generator import SnapshotEmitter, SnapshotGenerator
from barnabas.protocol.internal.metadata import FeatureLevelRecord, TopicRecord
from barnabas.raft.client import ApiMessageAndVersion, Batch, LeaderAndEpoch, OffsetAndEpoch
from local_raft_client import LocalRaftClient


def level(value: int = LATEST_VERSION.value) -> ApiMessageAndVersion:
    return ApiMessageAndVersion(FeatureLevelRecord(name="metadata.version", feature_level=value), 0)


def topic(name: str, number: int = 1) -> ApiMessageAndVersion:
    return ApiMessageAndVersion(TopicRecord(name=name, topic_id=Uuid(bytes([7] * 15 + [number]))), 0)


class Reader:
    """A reader as Raft hands it out."""

    def __init__(self, batches: Sequence[Batch[ApiMessageAndVersion]], snapshot_id: OffsetAndEpoch) -> None:
        self._batches = batches
        self.base_offset = batches[0].base_offset if batches else 0
        self.last_offset = None
        self.snapshot_id = snapshot_id
        self.last_contained_log_offset = snapshot_id.offset - 1
        self.last_contained_log_timestamp = 77
        self.read = 0
        self.closed = 0

    def __iter__(self) -> Iterator[Batch[ApiMessageAndVersion]]:
        for batch in self._batches:
            self.read += 1
            yield batch

    def close(self) -> None:
        self.closed += 1


def batch(
    base_offset: int, *records: ApiMessageAndVersion, epoch: int = 1, size: int = 100
) -> Batch[ApiMessageAndVersion]:
    return Batch(base_offset, base_offset + max(len(records), 1) - 1, epoch, 50, size, records)


class Publisher(MetadataPublisher):
    def __init__(self) -> None:
        self.images: list[MetadataImage] = []
        self.manifests: list[LoaderManifest] = []
        self.leaders: list[LeaderAndEpoch] = []

    @property
    def name(self) -> str:
        return "test"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:
        self.images.append(new_image)
        self.manifests.append(manifest)

    def on_controller_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        self.leaders.append(leader_and_epoch)


class Harness:
    def __init__(self) -> None:
        self.executor = SteppedExecutor()
        self.high_watermark: int | None = None
        self.faults: list[str] = []
        self.loader = MetadataLoader(
            self.executor, lambda: self.high_watermark, self._fault, MockClock(), on_load_fault=self._fault
        )
        self.publisher = Publisher()
        self.loader.install_publishers([self.publisher])
        self.listener = MetadataRaftListener(self.loader)

    def _fault(self, what: str, _error: BaseException) -> None:
        self.faults.append(what)


def test_batches_are_decoded_by_the_loader_and_closed_after() -> None:
    harness = Harness()
    reader = Reader([batch(0), batch(1, level(), topic("a"))], OffsetAndEpoch(0, 0))
    harness.high_watermark = 3
    harness.listener.handle_commit(reader)
    harness.listener.handle_leader_change(LeaderAndEpoch(1, 1))
    assert (reader.read, reader.closed) == (0, 0), "nothing is read on Raft's thread"
    harness.executor.run_all()
    assert (reader.read, reader.closed) == (2, 1)
    image = harness.publisher.images[-1]
    assert image.provenance == MetadataProvenance(2, 1, 50, is_batch_aligned=True)
    assert "a" in image.topics.by_name
    assert harness.publisher.leaders[-1] == LeaderAndEpoch(1, 1)
    assert harness.faults == []


def test_a_snapshot_replaces_everything() -> None:
    harness = Harness()
    harness.high_watermark = 3
    harness.listener.handle_commit(Reader([batch(0), batch(1, level(), topic("a"))], OffsetAndEpoch(0, 0)))
    harness.executor.run_all()
    reader = Reader([batch(0, level()), batch(1, topic("b", 2))], OffsetAndEpoch(40, 6))
    harness.high_watermark = 40
    harness.listener.handle_load_snapshot(reader)
    assert reader.read == 0
    harness.executor.run_all()
    assert (reader.read, reader.closed) == (2, 1)
    image = harness.publisher.images[-1]
    assert image.provenance == MetadataProvenance(39, 6, 77, is_batch_aligned=True)
    assert set(image.topics.by_name) == {"b"}
    assert isinstance(harness.publisher.manifests[-1], SnapshotManifest)


def test_the_empty_snapshot_before_the_first_record_is_not_a_cluster() -> None:
    harness = Harness()
    reader = Reader([], OffsetAndEpoch(0, 0))
    harness.listener.handle_load_snapshot(reader)
    harness.high_watermark = 1
    harness.listener.handle_commit(Reader([batch(0)], OffsetAndEpoch(0, 0)))
    harness.executor.run_all()
    assert reader.closed == 1
    assert harness.publisher.images == [], "there is no metadata.version yet"
    harness.high_watermark = 2
    harness.listener.handle_commit(Reader([batch(1, level())], OffsetAndEpoch(0, 0)))
    harness.executor.run_all()
    assert [image.offset for image in harness.publisher.images] == [1]


def test_a_snapshot_before_the_first_record_that_has_some_is_loaded() -> None:
    harness = Harness()
    harness.high_watermark = 0
    harness.listener.handle_load_snapshot(Reader([batch(0, level())], OffsetAndEpoch(0, 0)))
    harness.executor.run_all()
    assert harness.loader.image.features.metadata_version == LATEST_VERSION


def test_readers_are_closed_by_a_loader_that_is_closed() -> None:
    harness = Harness()
    harness.loader.close()
    commit = Reader([batch(0, level())], OffsetAndEpoch(0, 0))
    snapshot = Reader([batch(0, level())], OffsetAndEpoch(4, 1))
    harness.listener.handle_commit(commit)
    harness.listener.handle_load_snapshot(snapshot)
    harness.listener.begin_shutdown()
    harness.executor.run_all()
    assert (commit.closed, snapshot.closed) == (1, 1)


# -- snapshots


class Emitter:
    def __init__(self) -> None:
        self.emitted: list[int] = []
        self.error: Exception | None = None

    def maybe_emit(self, image: MetadataImage) -> bool:
        if self.error is not None:
            raise self.error
        self.emitted.append(image.offset)
        return True


class GeneratorHarness:
    def __init__(self, **options: Any) -> None:
        self.clock = MockClock()
        self.emitter = Emitter()
        self.executor = SteppedExecutor()
        self.faults: list[str] = []
        self.generator = SnapshotGenerator(
            self.emitter,
            self.executor,
            lambda what, error: self.faults.append(f"{what}: {error}"),
            clock=self.clock,
            **options,
        )

    def update(self, offset: int, size: int, *, is_batch_aligned: bool = True, run: bool = True) -> None:
        provenance = MetadataProvenance(offset, 1, 0, is_batch_aligned)
        image = MetadataImage(provenance=provenance)
        manifest = LogDeltaManifest(provenance, LeaderAndEpoch(1, 1), 1, size, 0)
        self.generator.on_metadata_update(MetadataDelta(EMPTY_IMAGE), image, manifest)
        if run:
            self.executor.run_all()


def test_a_snapshot_after_so_many_bytes() -> None:
    harness = GeneratorHarness(max_bytes=1000)
    assert harness.generator.name == "SnapshotGenerator"
    for offset, size in ((1, 600), (2, 300), (3, 100), (4, 999), (5, 1)):
        harness.update(offset, size)
    assert harness.emitter.emitted == [3, 5]


def test_a_snapshot_after_so_much_time_in_which_anything_came() -> None:
    harness = GeneratorHarness(max_interval_ms=1000)
    harness.clock.advance(999)
    harness.update(1, 1)
    harness.clock.advance(1)
    harness.update(2, 1)
    harness.clock.advance(5000)
    assert harness.emitter.emitted == [2]
    never = GeneratorHarness(max_interval_ms=0)
    never.clock.advance(10**9)
    never.update(1, 1)
    assert never.emitter.emitted == []


def test_a_loaded_snapshot_counts_as_one() -> None:
    harness = GeneratorHarness(max_bytes=1000, max_interval_ms=1000)
    harness.update(1, 999)
    harness.clock.advance(999)
    image = MetadataImage()
    harness.generator.on_metadata_update(MetadataDelta(EMPTY_IMAGE), image, SnapshotManifest(image.provenance, 0))
    harness.clock.advance(1)
    harness.update(2, 1)
    assert harness.emitter.emitted == []


def test_none_in_the_middle_of_a_batch() -> None:
    harness = GeneratorHarness(max_bytes=1000)
    harness.update(1, 1000, is_batch_aligned=False)
    assert harness.emitter.emitted == []
    harness.update(2, 1)
    assert harness.emitter.emitted == [2]


def test_one_at_a_time() -> None:
    harness = GeneratorHarness(max_bytes=1000)
    harness.update(1, 1000, run=False)
    harness.update(2, 1000, run=False)
    assert len(harness.executor) == 1
    harness.executor.run_all()
    harness.update(3, 1)
    assert harness.emitter.emitted == [1, 3]


def test_a_failure_is_reported_and_the_next_is_tried() -> None:
    harness = GeneratorHarness(max_bytes=1000)
    harness.emitter.error = OSError("disk full")
    harness.update(1, 1000)
    assert harness.faults == ["cannot write snapshot 00000000000000000002-0000000001: disk full"]
    harness.emitter.error = None
    harness.update(2, 1000)
    assert harness.emitter.emitted == [2]


def test_a_closed_generator_makes_none() -> None:
    harness = GeneratorHarness(max_bytes=1000)
    harness.update(1, 1000, run=False)
    harness.generator.close()
    harness.executor.run_all()
    harness.update(2, 1000)
    assert harness.emitter.emitted == []


def test_an_image_becomes_a_snapshot_of_the_log() -> None:
    raft = LocalRaftClient(1, clock=MockClock())
    raft.start()
    raft.prepare_append(1, [level(), topic("a")])
    raft.schedule_prepared_append()
    image = MetadataImage(
        provenance=MetadataProvenance(2, 1, 77, is_batch_aligned=True), features=FeaturesImage(LATEST_VERSION)
    )
    emitter = SnapshotEmitter(raft, MockClock(5))
    assert emitter.maybe_emit(image)
    assert emitter.latest_snapshot_generated_ms == 5
    assert raft.latest_snapshot_id == OffsetAndEpoch(3, 1)
    assert not emitter.maybe_emit(image)
    snapshot = raft.log.snapshot
    assert snapshot is not None
    assert snapshot.last_contained_log_timestamp == 77
    with pytest.raises(Exception, match="beyond the high watermark"):
        emitter.maybe_emit(MetadataImage(provenance=MetadataProvenance(9, 1, 0, True)))


def test_an_image_that_cannot_be_written_leaves_no_snapshot() -> None:
    raft = LocalRaftClient(1, clock=MockClock())
    raft.start()
    with pytest.raises(Exception, match=r"metadata\.version"):
        SnapshotEmitter(raft).maybe_emit(MetadataImage(provenance=MetadataProvenance(0, 1, 0, True)))
    assert raft.latest_snapshot_id is None
