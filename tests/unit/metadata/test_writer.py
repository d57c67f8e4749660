"""Writing images."""

from __future__ import annotations

import pytest

from barnabas.metadata.errors import UnwritableMetadataError
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.metadata.metadata_version import LATEST_VERSION, MetadataVersion
from barnabas.metadata.writer import BatchWriter, ImageWriterOptions, RecordListWriter
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import (
    DelegationTokenRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from unit.metadata.samples import broker, image_of, metadata_version, topic, uid, written


def test_metadata_version_comes_first_and_in_version_0() -> None:
    image = image_of(
        [broker(1), metadata_version(), FeatureLevelRecord(name="a.version", feature_level=1), *topic("t", uid(1))]
    )
    records = written(image)
    assert records[0] == (metadata_version(), 0)
    assert [type(record) for record, _ in records] == [
        FeatureLevelRecord,
        FeatureLevelRecord,
        RegisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
    ]
    assert [version for _, version in records] == [0, 0, 4, 0, 2]


def test_the_order_depends_on_the_content_only() -> None:
    records: list[MetadataRecord] = [metadata_version(), *topic("b", uid(1)), *topic("a", uid(2)), broker(2), broker(1)]
    other = [records[0], *records[3:5], *records[1:3], *records[:4:-1]]
    assert written(image_of(records)) == written(image_of(other))


def test_versions_follow_the_image() -> None:
    image = image_of([metadata_version(MetadataVersion.IBP_3_6_IV0), broker(1), *topic("t", uid(1))])
    assert [version for _, version in written(image)] == [0, 2, 0, 0]


def test_an_image_without_a_version_cannot_be_written() -> None:
    with pytest.raises(UnwritableMetadataError, match=r"no metadata\.version yet"):
        EMPTY_IMAGE.write(RecordListWriter())
    # It can if somebody says how.
    assert written(EMPTY_IMAGE, ImageWriterOptions(LATEST_VERSION)) == [(metadata_version(), 0)]


@pytest.mark.parametrize(
    ("record", "since", "what"),
    [
        (UserScramCredentialRecord(name="ann", mechanism=1), MetadataVersion.IBP_3_5_IV2, "SCRAM credentials"),
        (DelegationTokenRecord(token_id="t"), MetadataVersion.IBP_3_6_IV2, "delegation tokens"),
        (RegisterControllerRecord(controller_id=1), MetadataVersion.IBP_3_7_IV0, "the registrations of controllers"),
        (broker(1, log_dirs=[uid(201)]), MetadataVersion.IBP_3_7_IV2, "the log directories of brokers"),
        (RegisterBrokerRecord(is_migrating_zk_broker=True), MetadataVersion.IBP_3_4_IV0, "brokers that migrate"),
        (RegisterBrokerRecord(cordoned_log_dirs=[]), MetadataVersion.IBP_4_3_IV0, "the cordoned log directories"),
    ],
)
def test_losses(record: MetadataRecord, since: MetadataVersion, what: str) -> None:
    image = image_of([metadata_version(), record])
    for version in MetadataVersion:
        writer = RecordListWriter()
        if version >= since:
            image.write(writer, ImageWriterOptions(version))
            assert len(writer.records) == 2
            continue
        with pytest.raises(UnwritableMetadataError, match=f"{version.release} has no records for {what}"):
            image.write(writer, ImageWriterOptions(version))
        assert writer.records == []  # half an image is none


def test_who_got_the_last_producer_ids_is_forgotten() -> None:
    image = image_of([metadata_version(), ProducerIdsRecord(broker_id=3, broker_epoch=5, next_producer_id=2000)])
    assert written(image)[1:] == [(ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=2000), 0)]


def test_a_closed_writer_takes_nothing() -> None:
    for writer in (RecordListWriter(), BatchWriter(lambda _batch: None, lambda _complete: None)):
        writer.close(complete=True)
        writer.close(complete=False)
        with pytest.raises(ValueError, match="closed"):
            writer.write(NoOpRecord())


def test_batches() -> None:
    batches: list[int] = []
    ends: list[bool] = []
    image = image_of([metadata_version(), *topic("t", uid(1), partitions=7)])
    image.write(BatchWriter(lambda batch: batches.append(len(batch)), ends.append, batch_size=4))
    assert batches == [4, 4, 1]
    assert ends == [True]


def test_an_unfinished_image_is_not_handed_on() -> None:
    batches: list[int] = []
    ends: list[bool] = []
    image = image_of([metadata_version(), UserScramCredentialRecord(name="ann", mechanism=1)])
    writer = BatchWriter(lambda batch: batches.append(len(batch)), ends.append)
    with pytest.raises(UnwritableMetadataError):
        image.write(writer, ImageWriterOptions(MetadataVersion.IBP_3_3_IV3))
    assert batches == []
    assert ends == [False]
