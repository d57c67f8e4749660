"""What one client has written, every other reads: the same keys, values, headers, timestamps and offsets."""

from __future__ import annotations

import time

import kafka
import pytest

from clients.broker_process import BrokerProcess
from clients.drivers import DRIVERS, LIBRARIES, Driver
from clients.records import BINARY, CODECS, NULL_HEADER, SAMPLES, Record, at


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", DRIVERS, ids=lambda driver: driver.name)
def test_each_reads_what_one_has_written(broker: BrokerProcess, topic: str, writer: Driver, codec: str) -> None:
    bootstrap = broker.bootstrap_servers
    records = list(BINARY) if writer in LIBRARIES else [text(record) for record in SAMPLES]
    if writer.allows_null_headers:
        records.append(NULL_HEADER)
    records = at(records)
    readers = [reader for reader in DRIVERS if writer not in LIBRARIES or reader in LIBRARIES]
    before = int(time.time() * 1000)

    writer.produce(bootstrap, topic, records, codec=codec)

    # A client that has doubts about a broker's version sends plain batches, and says nothing. All of them also do so
    # where compression would make a batch larger.
    codecs = {batch.compression_type.codec_name for batch in broker.batches(topic)}
    assert codecs <= {codec, "none"}
    if codecs and (writer.name, codec) not in without_compression(bootstrap):
        assert codec in codecs
    for reader in readers:
        found = reader.read(bootstrap, topic, len(records))
        if writer.keeps_timestamps:
            assert found == records, reader.name
        else:
            assert [record._replace(timestamp=0) for record in found] == records, reader.name
            assert all(before <= record.timestamp <= time.time() * 1000 for record in found), reader.name


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_the_libraries_have_written(bootstrap: str, topic: str, codec: str) -> None:
    for number, writer in enumerate(LIBRARIES):
        records = at(SAMPLES, number * len(SAMPLES))
        writer.produce(bootstrap, topic, records, codec=codec)
        assert DRIVERS[-1].read(bootstrap, topic, len(SAMPLES), start=number * len(SAMPLES)) == records, writer.name


def without_compression(bootstrap: str) -> set[tuple[str, str]]:
    """librdkafka knows a broker that reads its lz4 by an API of the same age, FindCoordinator."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        coordinators = any(api.name == "FindCoordinator" for api in admin.api_versions())
    finally:
        admin.close()
    return set() if coordinators else {("confluent-kafka", "lz4"), ("kcat", "lz4")}


def text(record: Record) -> Record:
    """As kcat can be told to write it: nothing is null, and the time is now."""
    return record._replace(timestamp=0, key=record.key or None, value=record.value or None)
