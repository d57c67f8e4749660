"""Batches in, images out; transactions."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.metadata.batch_loader import MetadataBatch, MetadataBatchLoader
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import LogDeltaManifest
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.raft.client import LeaderAndEpoch
from unit.metadata.samples import image_of, metadata_version, uid

CONTROLLER = LeaderAndEpoch(3, 1)


def named(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=uid(number))


BEGIN, END, ABORT = BeginTransactionRecord(name="x"), EndTransactionRecord(), AbortTransactionRecord()


class Harness:
    """A batch loader, and what it published."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.published: list[tuple[MetadataDelta, MetadataImage, LogDeltaManifest]] = []
        self.faults: list[tuple[str, BaseException]] = []
        self.loader = MetadataBatchLoader(
            lambda *update: self.published.append(update),
            lambda what, error: self.faults.append((what, error)),
            self.clock,
        )
        self.next_offset = 0

    def load(self, *records: MetadataRecord, epoch: int = 1) -> None:
        batch = MetadataBatch(
            base_offset=self.next_offset,
            last_offset=self.next_offset + len(records) - 1,
            epoch=epoch,
            append_time_ms=1000 + self.next_offset,
            records=records,
            size_in_bytes=10 * len(records),
        )
        self.next_offset += len(records)
        self.loader.load_batch(batch, CONTROLLER)

    def flush(self) -> None:
        self.loader.maybe_flush(CONTROLLER)

    @property
    def images(self) -> list[tuple[list[str], int, bool]]:
        """Topics, offset and alignment of each published image."""
        return [
            (list(image.topics.sorted_names), image.offset, image.provenance.is_batch_aligned)
            for _, image, _ in self.published
        ]


def test_several_batches_are_one_update() -> None:
    harness = Harness()
    harness.load(metadata_version(), named(1))
    harness.load(named(2), epoch=2)
    assert harness.published == []
    harness.flush()
    ((delta, image, manifest),) = harness.published
    assert image.topics.sorted_names == ("t1", "t2")
    assert image.provenance == MetadataProvenance(2, 2, 1002, is_batch_aligned=True)
    assert delta.topics is not None
    assert delta.topics.created_topic_ids == {uid(1), uid(2)}
    assert manifest == LogDeltaManifest(image.provenance, CONTROLLER, num_batches=2, num_bytes=30, elapsed_ns=0)
    assert harness.loader.image is image


def test_the_next_update_starts_from_the_last_image() -> None:
    harness = Harness()
    harness.load(named(1))
    harness.flush()
    harness.load(named(2))
    harness.flush()
    assert harness.images == [(["t1"], 0, True), (["t1", "t2"], 1, True)]
    assert harness.published[1][0].image is harness.published[0][1]
    assert harness.published[1][2].num_batches == 1


def test_nothing_to_flush() -> None:
    harness = Harness()
    harness.flush()
    assert harness.published == []


def test_a_control_batch_moves_the_offset() -> None:
    harness = Harness()
    harness.loader.load_batch(MetadataBatch(0, 0, 1, 5, []), CONTROLLER)
    harness.flush()
    assert harness.images == [([], 0, True)]
    assert not harness.loader.has_seen_record
    harness.next_offset = 1
    harness.load(NoOpRecord())
    assert harness.loader.has_seen_record


def test_time_is_measured() -> None:
    class Slow(list[MetadataRecord]):
        def __iter__(self) -> object:  # type: ignore[override]
            harness.clock.advance(3)
            return super().__iter__()

    harness = Harness()
    harness.loader.load_batch(MetadataBatch(0, 0, 1, 5, Slow([named(1)])), CONTROLLER)
    harness.flush()
    assert harness.published[0][2].elapsed_ns == 3_000_000


# -- transactions


def test_a_transaction_takes_effect_at_its_end() -> None:
    harness = Harness()
    harness.load(BEGIN, named(1))
    harness.flush()
    harness.load(named(2))
    harness.flush()
    assert harness.published == []
    assert harness.loader.in_transaction
    harness.load(END)
    harness.flush()
    assert harness.images == [(["t1", "t2"], 3, True)]
    assert harness.published[0][2].num_batches == 3
    assert not harness.loader.in_transaction


def test_what_precedes_a_transaction_in_its_batch_is_published_before() -> None:
    harness = Harness()
    harness.load(named(1), named(2), BEGIN, named(3))
    assert harness.images == [(["t1", "t2"], 1, False)]
    assert harness.published[0][2].num_batches == 0
    harness.flush()
    assert len(harness.published) == 1
    harness.load(END, named(4))
    harness.flush()
    assert harness.images[1:] == [(["t1", "t2", "t3", "t4"], 5, True)]


def test_what_precedes_a_transaction_in_earlier_batches_is_published_before() -> None:
    harness = Harness()
    harness.load(named(1))
    harness.load(BEGIN, named(2))
    assert harness.images == [(["t1"], 0, True)]
    assert harness.published[0][2].num_batches == 1


def test_earlier_batches_and_the_same_batch() -> None:
    harness = Harness()
    harness.load(named(1), epoch=1)
    harness.load(named(2), BEGIN, epoch=2)
    assert harness.images == [(["t1", "t2"], 1, False)]
    assert harness.published[0][1].provenance == MetadataProvenance(1, 2, 1001, is_batch_aligned=False)


def test_a_transaction_inside_one_batch() -> None:
    harness = Harness()
    harness.load(BEGIN, named(1), END)
    harness.flush()
    assert harness.images == [(["t1"], 2, True)]


def test_an_aborted_transaction_has_no_effect() -> None:
    harness = Harness()
    harness.load(named(1))
    harness.load(BEGIN, named(2), RemoveTopicRecord(topic_id=uid(1)))
    harness.load(ABORT)
    harness.flush()
    assert harness.images == [(["t1"], 0, True), (["t1"], 4, True)]
    assert harness.published[1][0].is_empty


def test_what_follows_an_abort_in_the_same_commit() -> None:
    """The records of the transaction are gone, those after it are not."""
    harness = Harness()
    harness.load(BEGIN, named(1))
    harness.load(ABORT, named(2))
    harness.load(named(3))
    harness.flush()
    assert harness.images == [(["t2", "t3"], 4, True)]


def test_a_second_transaction_after_an_abort() -> None:
    harness = Harness()
    harness.load(BEGIN, named(1))
    harness.load(ABORT)
    harness.load(BEGIN, named(2), END)
    harness.flush()
    assert harness.images == [([], 2, True), (["t2"], 5, True)]


def test_two_transactions_in_a_row() -> None:
    harness = Harness()
    harness.load(BEGIN, named(1), END, BEGIN, named(2))
    assert harness.images == [(["t1"], 2, False)]
    harness.load(END)
    harness.flush()
    assert harness.images[1:] == [(["t1", "t2"], 5, True)]


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([END], "EndTransactionRecord without"),
        ([ABORT], "AbortTransactionRecord without"),
        ([BEGIN, END, END], "EndTransactionRecord without"),
        ([BEGIN, BEGIN], "inside another"),
    ],
)
def test_broken_transactions(records: list[MetadataRecord], complaint: str) -> None:
    harness = Harness()
    harness.load(*records)
    ((what, error),) = harness.faults
    assert what == f"cannot replay the metadata record at offset {len(records) - 1}"
    assert isinstance(error, MetadataReplayError)
    assert complaint in str(error)


def test_a_snapshot_ends_a_transaction() -> None:
    harness = Harness()
    harness.load(BEGIN, named(1))
    harness.loader.reset_to_image(image_of([named(5)], offset=9))
    assert not harness.loader.in_transaction
    harness.next_offset = 10
    harness.load(named(6))
    harness.flush()
    assert harness.images == [(["t5", "t6"], 10, True)]


# -- faults


def test_a_bad_record_does_not_stop_the_others() -> None:
    harness = Harness()
    harness.load(named(1), RemoveTopicRecord(topic_id=uid(99)), named(2))
    harness.flush()
    assert [what for what, _ in harness.faults] == ["cannot replay the metadata record at offset 1"]
    assert harness.images == [(["t1", "t2"], 2, True)]


def test_a_delta_that_cannot_be_applied_is_dropped() -> None:
    harness = Harness()
    harness.load(named(1))
    harness.flush()
    harness.load(TopicRecord(name="t1", topic_id=uid(77)))
    harness.flush()
    assert [what for what, _ in harness.faults] == ["cannot apply the metadata records of offsets 1 to 1"]
    assert len(harness.published) == 1
    harness.load(named(3))
    harness.flush()
    assert harness.images[1:] == [(["t1", "t3"], 2, True)]


def test_a_fatal_handler_stops_at_once() -> None:
    def fatal(what: str, error: BaseException) -> None:
        raise SystemExit(what) from error

    loader = MetadataBatchLoader(lambda *_: None, fatal, MockClock())
    with pytest.raises(SystemExit, match="offset 0"):
        loader.load_batch(MetadataBatch.of(0, 1, [RemoveTopicRecord(topic_id=uid(1)), named(1)]), CONTROLLER)
