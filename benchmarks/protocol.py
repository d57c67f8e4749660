"""Messages: our compiled codecs beside kafka-python's."""

from __future__ import annotations

import uuid
import warnings

from barnabas.common.identifiers import Uuid
from barnabas.protocol.messages import metadata as ours
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from benchmarks.measure import Row, compare, rates

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka.protocol.metadata import MetadataResponse as TheirMetadataResponse
    from kafka.protocol.producer import ProduceRequest as TheirProduceRequest

TOPICS, PARTITIONS = 100, 10
REPEAT = 20


def run(rounds: int = 9) -> list[Row]:
    return metadata_v12(rounds) + produce_v9(rounds)


def metadata_v12(rounds: int) -> list[Row]:
    """Metadata v12 for 100 topics of 10 partitions: what a client asks for when it starts."""
    mine = ours.MetadataResponse(
        brokers=[ours.MetadataResponseBroker(node_id=n, host=f"broker-{n}.example.org", port=9092) for n in range(3)],
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        controller_id=1,
        topics=[
            ours.MetadataResponseTopic(
                name=f"topic-{topic}",
                topic_id=Uuid(topic.to_bytes(16)),
                partitions=[
                    ours.MetadataResponsePartition(
                        partition_index=index, leader_id=1, leader_epoch=5, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
                    )
                    for index in range(PARTITIONS)
                ],
            )
            for topic in range(TOPICS)
        ],
    )
    their_topic = TheirMetadataResponse.MetadataResponseTopic
    theirs = TheirMetadataResponse(
        throttle_time_ms=0,
        brokers=[
            TheirMetadataResponse.MetadataResponseBroker(
                node_id=n, host=f"broker-{n}.example.org", port=9092, rack=None
            )
            for n in range(3)
        ],
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        controller_id=1,
        topics=[
            their_topic(
                error_code=0,
                name=f"topic-{topic}",
                topic_id=uuid.UUID(int=topic),
                is_internal=False,
                partitions=[
                    their_topic.MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=1,
                        leader_epoch=5,
                        replica_nodes=[1, 2, 3],
                        isr_nodes=[1, 2, 3],
                        offline_replicas=[],
                    )
                    for index in range(PARTITIONS)
                ],
            )
            for topic in range(TOPICS)
        ],
    )
    data = mine.encode(12)
    assert bytes(theirs.encode(version=12)) == data

    def encode_mine() -> int:
        for _ in range(REPEAT):
            mine.encode(12)
        return REPEAT

    def encode_theirs() -> int:
        for _ in range(REPEAT):
            theirs.encode(version=12)
        return REPEAT

    def decode_mine() -> int:
        for _ in range(REPEAT):
            ours.MetadataResponse.decode(data, 12)
        return REPEAT

    def decode_theirs() -> int:
        for _ in range(REPEAT):
            TheirMetadataResponse.decode(data, version=12)
        return REPEAT

    encoding = rates({"barnabas": encode_mine, "kafka-python": encode_theirs}, rounds)
    decoding = rates({"barnabas": decode_mine, "kafka-python": decode_theirs}, rounds)
    title = f"{TOPICS} topics x {PARTITIONS} partitions"
    return compare(f"Metadata v12 encode, {title}", "messages/s", encoding, "barnabas", {"kafka-python": 4}) + compare(
        f"Metadata v12 decode, {title}", "messages/s", decoding, "barnabas", {"kafka-python": 1}
    )


def produce_v9(rounds: int) -> list[Row]:
    """Produce v9 decode: the request on the broker's hottest path, with the records left where they are."""
    rows = []
    for partitions, size in ((1, 16_384), (12, 16_384)):
        data = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name="benchmark-topic",
                    partition_data=[PartitionProduceData(index=n, records=bytes(size)) for n in range(partitions)],
                )
            ],
        ).encode(9)
        repeat = 2_000 // partitions

        def decode_mine(data: bytes = data, repeat: int = repeat) -> int:
            for _ in range(repeat):
                ProduceRequest.decode(data, 9)
            return repeat

        def decode_theirs(data: bytes = data, repeat: int = repeat) -> int:
            for _ in range(repeat):
                TheirProduceRequest.decode(data, version=9)
            return repeat

        measured = rates({"barnabas": decode_mine, "kafka-python": decode_theirs}, rounds)
        rows += compare(
            f"Produce v9 decode, {partitions} x 16 KiB of records, zero-copy",
            "requests/s",
            measured,
            "barnabas",
            {"kafka-python": 1},
        )
    return rows
