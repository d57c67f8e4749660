"""A tour of the parts, printed as it happens: python examples/tour.py"""

# ruff: noqa: T201

from __future__ import annotations

import time

from barnabas._kernels import is_compiled
from barnabas.common.errors import ProtocolError
from barnabas.common.identifiers import random_uuid, uuid_to_string
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import FrameReader, encode_request
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.json_form import to_json
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.records.batch import CompressionType, RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.reader import read_records
from barnabas.records.validation import validate_header, validate_records


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m")


def broker() -> None:
    """A broker in this process, and a client of another project that talks to it over a socket."""
    import confluent_kafka  # another project's client, among the development dependencies
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    from barnabas import EmbeddedBroker

    title("A broker, used by librdkafka")
    started = time.perf_counter()
    with EmbeddedBroker() as running:
        print(f"  ready after {(time.perf_counter() - started) * 1000:.0f} ms at {running.bootstrap_servers}")
        address: dict[str, str | int | float | bool] = {"bootstrap.servers": running.bootstrap_servers, "log_level": 0}
        admin = AdminClient(address)
        admin.create_topics([NewTopic("orders", 3, 1, config={"compression.type": "producer"})])["orders"].result()
        count = 100_000
        producer = confluent_kafka.Producer(
            {**address, "enable.idempotence": True, "compression.type": "lz4", "queue.buffering.max.messages": count}
        )
        started = time.perf_counter()
        for number in range(count):
            producer.produce("orders", key=f"order-{number % 50}", value=f'{{"number": {number}, "state": "shipped"}}')
        producer.flush()
        took = time.perf_counter() - started
        print(f"  produced {count:,} records, acks=all and idempotent, in {took:.2f} s")
        consumer = confluent_kafka.Consumer({**address, "group.id": "tour", "enable.auto.commit": False})
        ends = {n: consumer.get_watermark_offsets(confluent_kafka.TopicPartition("orders", n))[1] for n in range(3)}
        consumer.assign([confluent_kafka.TopicPartition("orders", number, 0) for number in ends])
        started, received = time.perf_counter(), 0
        while received < count:
            received += len(consumer.consume(10_000, timeout=5))
        print(
            f"  consumed {received:,} records in {time.perf_counter() - started:.2f} s; ends of the partitions: {ends}"
        )
        consumer.close()
        files = sorted((running.data_dir / "orders-0").iterdir())
        print("  on disk, in Kafka's format: " + ", ".join(file.name for file in files if file.stat().st_size))


def messages() -> None:
    title("Kafka's messages: declared once, compiled for each version")
    print(f"  {len(ApiKey)} APIs, {sum(k.versions.highest - k.versions.lowest + 1 for k in ApiKey)} versions of them")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders", topic_id=random_uuid())])
    frame = encode_request(request, 12, correlation_id=7, client_id="tour")
    print(f"  Metadata v12 on the wire: {frame.hex(' ', 4)}")
    (payload,) = FrameReader().feed(frame)
    header = parse_request_header(payload)
    print(f"  read back: {header.api_key.title} v{header.api_version} from {header.client_id!r}")
    body = MetadataRequest.decode_from(payload, header.api_version, header.body_start)[0]
    print(f"             {to_json(body, 12)['topics']}")
    assert body == request
    try:
        MetadataRequest.decode(b"\xff\xff\xff\xff\x0f" + bytes(8), 12)
    except ProtocolError as error:
        print(f"  13 hostile bytes: {error}")


def batches() -> None:
    title("Record batches: Kafka's format on the wire and on disk")
    for compression in CompressionType:
        builder = RecordBatchBuilder(compression=compression)
        for number in range(1_000):
            builder.append(1_700_000_000_000 + number, f"order-{number % 50}".encode(), b'{"state": "shipped"}')
        batch = RecordBatch(builder.close())
        validate_header(batch)
        validate_records(batch)
        last = list(read_records(batch))[-1]
        print(f"  {compression.name:<7} 1,000 records in {batch.size_in_bytes:>6,} bytes; the last: {last.key!r}")


def speed() -> None:
    title(f"Speed ({'compiled' if is_compiled('record_codec') else 'pure Python'} accelerator)")
    value, count = b"x" * 100, 200_000
    started = time.perf_counter()
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(1_700_000_000_000, None, value)
    data = builder.close()
    built = time.perf_counter() - started
    started = time.perf_counter()
    count_read = sum(1 for _ in read_records(RecordBatch(data)))
    read = time.perf_counter() - started
    print(f"  built {count / built / 1e6:.1f} M records/s, read {count_read / read / 1e6:.1f} M records/s")


def columns() -> None:
    try:
        import pyarrow as pa  # an extra

        from barnabas.records.columns.arrow import decode_batches, encode_batch
    except ImportError:
        return
    title("Arrow: columns in, columns out, no Python object per record")
    table = pa.table({"key": [b"a", b"b", None], "value": [b"1", b"22", b"333"]})
    data = encode_batch(keys=table["key"], values=table["value"], timestamps=1_700_000_000_000)
    print("  " + str(decode_batches(bytes(data)).select(["key", "value", "offset"]).to_pydict()))


if __name__ == "__main__":
    print(f"Barnabas, a tour. Cluster id of the day: {uuid_to_string(random_uuid())}")
    broker()
    messages()
    batches()
    speed()
    columns()
    print()
