"""The loader: order, catching up, publishers that come late, fail and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import CorruptRecordError
from barnabas.metadata.batch_loader import MetadataBatch
from barnabas.metadata.cache import MetadataCache, MetadataCachePublisher
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.event_executor import SteppedExecutor
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.loader_metrics import MetadataLoaderMetrics
from barnabas.metadata.publisher import (
    LoaderManifest,
    LogDeltaManifest,
    MetadataPublisher,
    SnapshotManifest,
)
from barnabas.metrics.yammer.registry import Gauge, MetricsRegistry
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.raft.client import LeaderAndEpoch
from unit.metadata.samples import metadata_version, provenance, topic, uid


def named(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=uid(number))


class Recorder(MetadataPublisher):
    """Writes down what it is told, in a journal it shares with others."""

    def __init__(self, name: str, journal: list[tuple[Any, ...]]) -> None:
        self._name = name
        self.journal = journal
        self.updates: list[tuple[MetadataDelta, MetadataImage, LoaderManifest]] = []
        self.fails = False

    @property
    def name(self) -> str:
        return self._name

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:
        if self.updates and not self.fails:
            assert delta.image is self.updates[-1][1], "a publisher must not miss an image"
        self.updates.append((delta, new_image, manifest))
        self._note("image", new_image.offset, list(new_image.topics.sorted_names))

    def on_controller_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        self._note("controller", leader_and_epoch.leader_id)

    def close(self) -> None:
        self._note("close")

    def _note(self, *what: object) -> None:
        self.journal.append((self._name, *what))
        if self.fails:
            raise RuntimeError(f"{self._name} does not like {what[0]}")


class Harness:
    def __init__(self, high_watermark: int | None = 0, metrics: MetadataLoaderMetrics | None = None) -> None:
        self.executor = SteppedExecutor()
        self.high_watermark = high_watermark
        self.faults: list[str] = []
        self.load_faults: list[str] = []
        self.journal: list[tuple[Any, ...]] = []
        self.loader = MetadataLoader(
            self.executor,
            lambda: self.high_watermark,
            lambda what, error: self.faults.append(f"{what}: {error}"),
            MockClock(),
            metrics,
            on_load_fault=lambda what, error: self.load_faults.append(f"{what}: {error}"),
        )
        self.next_offset = 0

    def publisher(self, name: str) -> Recorder:
        return Recorder(name, self.journal)

    def install(self, *publishers: MetadataPublisher) -> None:
        future = self.loader.install_publishers(publishers)
        self.executor.run_all()
        future.result(timeout=0)

    def commit(self, *batches: Sequence[MetadataRecord], run: bool = True) -> None:
        made = []
        for records in batches:
            made.append(MetadataBatch.of(self.next_offset, 1, records))
            self.next_offset += len(records)
        if self.high_watermark is not None:
            self.high_watermark = max(self.high_watermark, self.next_offset)
        self.loader.handle_commit(made)
        if run:
            self.executor.run_all()

    def take(self) -> list[tuple[Any, ...]]:
        taken = self.journal[:]
        self.journal.clear()
        return taken


def test_nothing_happens_on_the_callers_thread() -> None:
    harness = Harness()
    future = harness.loader.install_publishers([harness.publisher("a")])
    harness.commit([named(1)], run=False)
    harness.loader.handle_leader_change(LeaderAndEpoch(1, 1))
    assert len(harness.executor) == 3
    assert harness.journal == []
    assert not future.done()
    assert harness.loader.image is EMPTY_IMAGE


def test_publishers_are_told_one_after_the_other_in_their_order() -> None:
    harness = Harness()
    harness.install(harness.publisher("a"), harness.publisher("b"))
    harness.install(harness.publisher("c"))
    harness.commit([named(1)])
    harness.take()
    harness.commit([named(2)])
    harness.commit([named(3)])
    harness.loader.handle_leader_change(LeaderAndEpoch(7, 2))
    harness.executor.run_all()
    assert harness.take() == [
        *((name, "image", 1, ["t1", "t2"]) for name in "abc"),
        *((name, "image", 2, ["t1", "t2", "t3"]) for name in "abc"),
        *((name, "controller", 7) for name in "abc"),
    ]
    assert harness.faults == []


def test_the_first_update_is_everything_from_nothing() -> None:
    harness = Harness()
    harness.commit([metadata_version(), named(1)])
    harness.loader.handle_leader_change(LeaderAndEpoch(3, 1))
    publisher = harness.publisher("late")
    harness.install(publisher)
    assert harness.take() == [("late", "image", 1, ["t1"]), ("late", "controller", 3)]
    ((delta, image, manifest),) = publisher.updates
    assert delta.image is EMPTY_IMAGE
    assert delta.apply(image.provenance) == image
    assert image is harness.loader.image
    assert isinstance(manifest, SnapshotManifest)
    assert manifest.provenance == image.provenance
    harness.commit([named(2)])
    assert harness.take() == [("late", "image", 2, ["t1", "t2"])]
    assert isinstance(publisher.updates[1][2], LogDeltaManifest)


def test_a_commit_of_many_batches_is_one_update() -> None:
    harness = Harness()
    harness.install(harness.publisher("a"))
    harness.commit([named(1)], [named(2), named(3)], [named(4)])
    assert harness.take() == [("a", "image", 3, ["t1", "t2", "t3", "t4"]), ("a", "controller", None)]


# -- catching up


def test_nobody_hears_anything_before_the_high_watermark_is_reached() -> None:
    harness = Harness(high_watermark=5)
    harness.install(harness.publisher("a"))
    harness.commit([named(1), named(2)])
    harness.commit([RemoveTopicRecord(topic_id=uid(1)), named(3)])
    assert harness.take() == []
    assert harness.loader.image.offset == 3
    assert harness.loader.last_applied.last_contained_offset == -1
    harness.commit([named(4)])
    assert harness.take() == [("a", "image", 4, ["t2", "t3", "t4"]), ("a", "controller", None)]
    assert harness.loader.last_applied.last_contained_offset == 4


def test_an_unknown_high_watermark_is_waited_for() -> None:
    harness = Harness(high_watermark=None)
    harness.install(harness.publisher("a"))
    harness.commit([named(1)])
    assert harness.take() == []
    harness.high_watermark = 1
    harness.executor.run_all()
    assert harness.take() == []
    harness.loader.high_watermark_advanced()
    harness.executor.run_all()
    assert harness.take() == [("a", "image", 0, ["t1"]), ("a", "controller", None)]


def test_a_log_without_records_is_not_caught_up_with() -> None:
    harness = Harness(high_watermark=1)
    harness.install(harness.publisher("a"))
    harness.loader.handle_commit([MetadataBatch(0, 0, 1, 0, [])])  # a leader change, and nothing else
    harness.executor.run_all()
    assert harness.take() == []
    harness.next_offset = 1
    harness.commit([metadata_version()])
    assert harness.take() == [("a", "image", 1, []), ("a", "controller", None)]


def test_once_caught_up_the_high_watermark_is_not_asked_for_again() -> None:
    harness = Harness()
    harness.install(harness.publisher("a"))
    harness.commit([named(1)])
    harness.take()
    harness.high_watermark = 1000
    harness.loader.handle_commit([MetadataBatch.of(1, 1, [named(2)])])
    harness.executor.run_all()
    assert harness.take() == [("a", "image", 1, ["t1", "t2"])]


# -- snapshots


def test_a_snapshot_is_published_as_a_difference() -> None:
    harness = Harness()
    publisher = harness.publisher("a")
    harness.install(publisher)
    harness.commit([metadata_version(), *topic("t1", uid(1)), *topic("t2", uid(2))])
    harness.take()
    harness.loader.handle_load_snapshot(
        provenance(90, epoch=4), [metadata_version(), *topic("t2", uid(2)), *topic("t3", uid(3))]
    )
    harness.executor.run_all()
    assert harness.take() == [("a", "image", 90, ["t2", "t3"])]
    delta, image, manifest = publisher.updates[-1]
    assert isinstance(manifest, SnapshotManifest)
    assert image.provenance == provenance(90, epoch=4)
    assert delta.topics is not None
    assert delta.topics.deleted_topic_ids == {uid(1)}
    assert delta.topics.created_topic_ids == {uid(3)}
    assert delta.features is None
    assert harness.loader.metrics.snapshots_loaded == 1
    harness.next_offset = 91
    harness.commit([named(4)])
    assert harness.take() == [("a", "image", 91, ["t2", "t3", "t4"])]


def test_a_node_that_starts_from_a_snapshot() -> None:
    harness = Harness(high_watermark=12)
    harness.install(harness.publisher("a"))
    harness.loader.handle_load_snapshot(provenance(9), [metadata_version(), named(1)])
    harness.executor.run_all()
    assert harness.take() == []
    harness.next_offset = 10
    harness.commit([named(2)], [named(3)])
    assert harness.take() == [("a", "image", 11, ["t1", "t2", "t3"]), ("a", "controller", None)]


def test_a_snapshot_up_to_the_high_watermark_is_enough() -> None:
    harness = Harness(high_watermark=10)
    harness.install(harness.publisher("a"))
    harness.loader.handle_load_snapshot(provenance(9), [metadata_version(), named(1)])
    harness.executor.run_all()
    assert harness.take() == [("a", "image", 9, ["t1"]), ("a", "controller", None)]


def test_a_bad_record_in_a_snapshot_ends_the_loader() -> None:
    harness = Harness(high_watermark=10)
    harness.install(harness.publisher("a"))
    harness.loader.handle_load_snapshot(
        provenance(9, epoch=2), [metadata_version(), RemoveTopicRecord(topic_id=uid(5)), named(1)]
    )
    harness.executor.run_all()
    (fault,) = harness.load_faults
    assert fault.startswith("cannot replay record 1 of snapshot 00000000000000000010-0000000002: ")
    assert harness.loader.image is EMPTY_IMAGE
    assert harness.take() == []


def test_nobody_is_told_anything_after_a_snapshot_that_cannot_be_read() -> None:
    """A broker that was told of an image without topics would put the logs of all of them aside."""

    def broken() -> Iterator[MetadataRecord]:
        yield metadata_version()
        raise CorruptRecordError("it is cut off")

    harness = Harness(high_watermark=95)
    harness.install(harness.publisher("a"))
    harness.loader.handle_load_snapshot(provenance(90), broken())
    harness.executor.run_all()
    assert harness.load_faults == ["cannot load snapshot 00000000000000000091-0000000001: it is cut off"]
    harness.next_offset = 91
    harness.commit([named(2), named(3), named(4), named(5)])
    harness.loader.handle_leader_change(LeaderAndEpoch(1, 1))
    harness.install(harness.publisher("b"))
    assert harness.loader.image is EMPTY_IMAGE
    assert harness.take() == []
    assert len(harness.load_faults) == 1
    harness.loader.close()
    harness.executor.run_all()
    assert harness.take() == [("a", "close"), ("b", "close")]


def test_a_snapshot_that_cannot_be_read_later_leaves_everything_as_it_was() -> None:
    def broken() -> Iterator[MetadataRecord]:
        yield metadata_version()
        raise OSError("the disk is gone")

    harness = Harness()
    harness.install(harness.publisher("a"))
    harness.commit([named(1)])
    before = harness.loader.image
    harness.loader.handle_load_snapshot(provenance(90), broken())
    harness.executor.run_all()
    assert harness.loader.image is before
    assert harness.load_faults == ["cannot load snapshot 00000000000000000091-0000000001: the disk is gone"]


@pytest.mark.parametrize("offset", [0, 2, 90])
def test_a_gap_between_batches_ends_the_loader(offset: int) -> None:
    harness = Harness()
    harness.install(harness.publisher("a"))
    harness.commit([named(1)])
    harness.take()
    harness.next_offset = offset
    harness.commit([named(2)])
    assert harness.load_faults == [
        f"cannot load a commit on top of offset 0: a batch at offset {offset} does not follow offset 0"
    ]
    assert harness.take() == []


def test_a_bad_record_in_a_batch_ends_the_loader() -> None:
    harness = Harness()
    harness.install(harness.publisher("a"))
    harness.commit([named(1)])
    harness.take()
    harness.commit([RemoveTopicRecord(topic_id=uid(5)), named(2)], [RemoveTopicRecord(topic_id=uid(6))])
    harness.commit([named(3)])
    (fault,) = harness.load_faults
    assert fault.startswith("cannot replay the metadata record at offset 1: ")
    assert harness.loader.image.topics.sorted_names == ("t1",)
    assert harness.take() == []


# -- transactions, as publishers see them


def test_a_transaction_is_published_when_it_ends() -> None:
    harness = Harness()
    harness.install(harness.publisher("a"))
    harness.commit([named(1)])
    harness.take()
    harness.commit([BeginTransactionRecord(), named(2)])
    harness.commit([named(3)])
    assert harness.take() == []
    assert harness.loader.image.offset == 0
    harness.commit([EndTransactionRecord()])
    assert harness.take() == [("a", "image", 4, ["t1", "t2", "t3"])]


def test_a_publisher_that_is_installed_during_a_transaction() -> None:
    harness = Harness()
    harness.commit([named(1)])
    harness.install(harness.publisher("early"))
    harness.take()
    harness.commit([BeginTransactionRecord(), named(2)])
    harness.install(harness.publisher("late"))
    assert harness.take() == [("late", "image", 0, ["t1"]), ("late", "controller", None)]
    harness.commit([EndTransactionRecord()])
    assert harness.take() == [("early", "image", 3, ["t1", "t2"]), ("late", "image", 3, ["t1", "t2"])]


# -- faults


def test_a_publisher_that_fails_does_not_keep_others_from_hearing() -> None:
    harness = Harness()
    bad, good = harness.publisher("bad"), harness.publisher("good")
    harness.install(bad, good)
    harness.commit([named(1)])
    harness.take()
    bad.fails = True
    harness.commit([named(2)])
    harness.loader.handle_leader_change(LeaderAndEpoch(5, 1))
    harness.executor.run_all()
    assert [entry[0] for entry in harness.take()] == ["bad", "good", "bad", "good"]
    first, second = harness.faults
    assert first == "publisher bad failed on the image up to offset 1: bad does not like image"
    assert second.startswith("publisher bad failed on the controller change LeaderAndEpoch(leader_id=5, epoch=1): ")
    assert harness.loader.metrics.faults == 2
    bad.fails = False
    harness.commit([named(3)])
    assert harness.take() == [("bad", "image", 2, ["t1", "t2", "t3"]), ("good", "image", 2, ["t1", "t2", "t3"])]


def test_a_publisher_that_fails_at_first_gets_nothing_more_but_is_closed() -> None:
    harness = Harness()
    bad, good = harness.publisher("bad"), harness.publisher("good")
    bad.fails = True
    harness.install(bad, good)
    harness.commit([named(1)])
    assert harness.take() == [("bad", "image", 0, ["t1"]), ("good", "image", 0, ["t1"]), ("good", "controller", None)]
    assert harness.faults == ["publisher bad failed on its first image, up to offset 0: bad does not like image"]
    bad.fails = False
    harness.commit([named(2)])
    assert harness.take() == [("good", "image", 1, ["t1", "t2"])]
    harness.loader.close()
    harness.executor.run_all()
    assert harness.take() == [("good", "close"), ("bad", "close")]


def test_batches_that_cannot_be_read() -> None:
    closed = []

    def broken() -> Iterator[MetadataBatch]:
        try:
            yield MetadataBatch.of(0, 1, [named(1)])
            raise OSError("the disk is gone")
        finally:
            closed.append(True)

    harness = Harness()
    harness.loader.handle_commit(broken())
    harness.executor.run_all()
    assert harness.load_faults == ["cannot load a commit on top of offset -1: the disk is gone"]
    assert closed == [True]


def test_a_source_is_closed_when_it_has_been_read() -> None:
    class Source(list[MetadataBatch]):
        closed = False

        def close(self) -> None:
            self.closed = True

    harness = Harness()
    source, late = Source([MetadataBatch.of(0, 1, [named(1)])]), Source()
    harness.loader.handle_commit(source)
    harness.executor.run_all()
    assert source.closed
    harness.loader.close()
    harness.loader.handle_commit(late)
    harness.executor.run_all()
    assert late.closed


# -- installing and removing


def test_a_name_is_taken() -> None:
    harness = Harness()
    first = harness.publisher("a")
    harness.install(first)
    for publishers in ([first], [harness.publisher("a")], [harness.publisher("b"), harness.publisher("b")]):
        future = harness.loader.install_publishers(publishers)
        harness.executor.run_all()
        with pytest.raises(ValueError, match="is already installed"):
            future.result(timeout=0)
    harness.commit([named(1)])
    assert [entry[0] for entry in harness.take()] == ["a", "a"]


def test_a_publisher_is_removed() -> None:
    harness = Harness()
    stays, goes = harness.publisher("stays"), harness.publisher("goes")
    harness.install(stays, goes)
    harness.commit([named(1)])
    harness.take()
    future = harness.loader.remove_and_close_publisher(goes)
    harness.executor.run_all()
    future.result(timeout=0)
    harness.commit([named(2)])
    assert harness.take() == [("goes", "close"), ("stays", "image", 1, ["t1", "t2"])]
    again = harness.loader.remove_and_close_publisher(goes)
    harness.executor.run_all()
    with pytest.raises(ValueError, match="goes is not installed"):
        again.result(timeout=0)


def test_a_publisher_is_removed_before_it_heard_anything() -> None:
    harness = Harness(high_watermark=None)
    publisher = harness.publisher("a")
    harness.install(publisher)
    harness.loader.remove_and_close_publisher(publisher)
    harness.executor.run_all()
    assert harness.take() == [("a", "close")]


def test_closing() -> None:
    harness = Harness()
    bad = harness.publisher("bad")
    harness.install(harness.publisher("a"), bad)
    harness.commit([named(1)])
    harness.take()
    harness.commit([named(2)], run=False)
    bad.fails = True
    closed = harness.loader.close()
    harness.commit([named(3)], run=False)
    late = harness.loader.install_publishers([harness.publisher("late")])
    harness.executor.run_all()
    closed.result(timeout=0)
    assert harness.take() == [
        ("a", "image", 1, ["t1", "t2"]),  # what was queued before is done
        ("bad", "image", 1, ["t1", "t2"]),
        ("a", "close"),
        ("bad", "close"),
    ]
    assert harness.faults[-1] == "cannot close publisher bad: bad does not like close"
    with pytest.raises(RuntimeError, match="closed"):
        late.result(timeout=0)


def test_a_publisher_may_queue_events_from_inside() -> None:
    class Curious(Recorder):
        def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:
            super().on_metadata_update(delta, new_image, manifest)
            if len(self.updates) == 1:
                harness.commit([named(9)], run=False)

    harness = Harness()
    harness.install(Curious("a", harness.journal), harness.publisher("b"))
    harness.commit([named(1)])
    images = [entry for entry in harness.take() if entry[1] == "image"]
    assert images == [
        ("a", "image", 0, ["t1"]),
        ("b", "image", 0, ["t1"]),
        ("a", "image", 1, ["t1", "t9"]),
        ("b", "image", 1, ["t1", "t9"]),
    ]


# -- what comes with it


def test_the_cache_is_kept_up_to_date() -> None:
    harness = Harness()
    cache = MetadataCache()
    harness.install(MetadataCachePublisher(cache))
    harness.commit([metadata_version(), named(1)])
    assert cache.image is harness.loader.image
    harness.commit([named(2)])
    assert cache.all_topics == ("t1", "t2")


def test_metrics() -> None:
    registry = MetricsRegistry()

    def shown() -> dict[str, object]:
        return {str(name): metric.value() for name, metric in registry.metrics.items() if isinstance(metric, Gauge)}

    prefix = "kafka.server:type=MetadataLoader,name="
    harness = Harness(metrics=MetadataLoaderMetrics(registry))
    harness.install(harness.publisher("a"))
    harness.commit([metadata_version(), FeatureLevelRecord(name="group.version", feature_level=1)])
    harness.loader.handle_leader_change(LeaderAndEpoch(3000, 1))
    harness.executor.run_all()
    assert shown() == {
        f"{prefix}CurrentMetadataVersion": 30,
        f"{prefix}HandleLoadSnapshotCount": 0,
        f"{prefix}CurrentControllerId": 3000,
        f"{prefix}FinalizedLevel,featureName=metadataVersion": 30,
        f"{prefix}FinalizedLevel,featureName=groupVersion": 1,
    }
    harness.commit([FeatureLevelRecord(name="group.version", feature_level=0)])
    harness.loader.handle_leader_change(LeaderAndEpoch(None, 2))
    harness.loader.handle_load_snapshot(provenance(9), [metadata_version()])
    harness.executor.run_all()
    assert shown() == {
        f"{prefix}CurrentMetadataVersion": 30,
        f"{prefix}HandleLoadSnapshotCount": 1,
        f"{prefix}CurrentControllerId": -1,
        f"{prefix}FinalizedLevel,featureName=metadataVersion": 30,
    }
    harness.loader.close()
    harness.executor.run_all()
    assert shown() == {}
