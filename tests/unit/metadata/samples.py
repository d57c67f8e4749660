"""Small clusters to test with."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.common.identifiers import Uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.metadata_version import LATEST_VERSION, MetadataVersion
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.writer import ImageWriterOptions, RecordListWriter
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

LISTENER = "PLAINTEXT"


def uid(number: int) -> Uuid:
    """An id that is recognised in a failure message."""
    return Uuid(number.to_bytes(16, "big"))


def provenance(offset: int, epoch: int = 1) -> MetadataProvenance:
    return MetadataProvenance(offset, epoch, offset * 10, is_batch_aligned=True)


def metadata_version(version: MetadataVersion = LATEST_VERSION) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=version.value)


def broker(
    broker_id: int,
    *,
    fenced: bool = False,
    listeners: Iterable[str] = (LISTENER,),
    log_dirs: Iterable[Uuid] = (),
    rack: str | None = None,
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=uid(1000 + broker_id),
        broker_epoch=100 + broker_id,
        end_points=[
            BrokerEndpoint(name=name, host=f"{name.lower()}-{broker_id}", port=9092 + index, security_protocol=0)
            for index, name in enumerate(listeners)
        ],
        features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack=rack,
        fenced=fenced,
        log_dirs=list(log_dirs),
    )


def partition(
    topic_id: Uuid,
    number: int,
    *,
    replicas: Iterable[int] = (1,),
    isr: Iterable[int] | None = None,
    leader: int | None = None,
    directories: Iterable[Uuid] = (),
    elr: list[int] | None = None,
    last_known_elr: list[int] | None = None,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
) -> PartitionRecord:
    ids = list(replicas)
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=ids,
        isr=ids if isr is None else list(isr),
        leader=ids[0] if leader is None else leader,
        directories=list(directories),
        eligible_leader_replicas=elr,
        last_known_elr=last_known_elr,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


def topic(name: str, topic_id: Uuid, partitions: int = 1, replicas: Iterable[int] = (1,)) -> list[MetadataRecord]:
    ids = list(replicas)
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(partition(topic_id, number, replicas=ids) for number in range(partitions)),
    ]


def delta_of(records: Iterable[MetadataRecord], image: MetadataImage = EMPTY_IMAGE) -> MetadataDelta:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta


def image_of(records: Iterable[MetadataRecord], image: MetadataImage = EMPTY_IMAGE, offset: int = 1) -> MetadataImage:
    return delta_of(records, image).apply(provenance(offset))


def written(image: MetadataImage, options: ImageWriterOptions | None = None) -> list[tuple[MetadataRecord, int]]:
    """The records of an image's snapshot, with their versions."""
    writer = RecordListWriter()
    image.write(writer, options)
    return writer.records
