"""The admin client of aiokafka. It speaks older versions of the admin requests than the other clients do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, OffsetOutOfRangeError, for_code

from clients.broker_process import BrokerProcess
from clients.drivers import DRIVERS, SECONDS
from clients.records import Record


def run(bootstrap: str, work: Callable[[AIOKafkaAdminClient], Awaitable[None]]) -> None:
    async def with_client() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await work(admin)
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(with_client(), SECONDS))


async def create(admin: AIOKafkaAdminClient, *topics: NewTopic, **options: Any) -> list[str]:
    """The names of the errors, NoError among them."""
    answer = await admin.create_topics(list(topics), **options)
    return [for_code(error[1]).__name__ for error in answer.topic_errors]


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Asks the broker until the answer is yes; the test has a time limit."""
    while not await condition():
        pass


def test_topics(bootstrap: str, topic: str) -> None:
    async def work(admin: AIOKafkaAdminClient) -> None:
        async def listed() -> bool:
            return topic in await admin.list_topics()

        async def gone() -> bool:
            return topic not in await admin.list_topics()

        assert await create(admin, NewTopic(topic, 2, 1), validate_only=True) == ["NoError"]
        assert await create(admin, NewTopic(topic, 2, 1, topic_configs={"retention.ms": "777"})) == ["NoError"]
        assert await create(admin, NewTopic(topic, 2, 1)) == ["TopicAlreadyExistsError"]
        assert await create(admin, NewTopic(f"{topic}-3", 2, 3)) == ["InvalidReplicationFactorError"]
        assert await create(admin, NewTopic(f"{topic} a", 2, 1)) == ["InvalidTopicError"]
        assert await create(admin, NewTopic(f"{topic}-0", 0, 1)) == ["InvalidPartitionsError"]
        assert await create(admin, NewTopic(f"{topic}-x", 1, 1, topic_configs={"no.such": "1"})) == [
            "InvalidConfigurationError"
        ]
        await eventually(listed)
        (described,) = await admin.describe_topics([topic])
        assert (described["topic"], described["error_code"], len(described["partitions"])) == (topic, 0, 2)

        async def grown() -> bool:
            return len((await admin.describe_topics([topic]))[0]["partitions"]) == 3

        await admin.create_partitions({topic: NewPartitions(3)})
        await eventually(grown)
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({topic: NewPartitions(2)})
        await admin.delete_topics([topic])
        await eventually(gone)

    run(bootstrap, work)


def test_settings(bootstrap: str, topic: str) -> None:
    async def work(admin: AIOKafkaAdminClient) -> None:
        async def setting(name: str) -> str:
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})])
            (resource,) = answer.resources
            assert resource[:4] == (0, resource[1], 2, topic)
            ((found, value, *_rest),) = resource[4]
            assert found == name
            return str(value)

        async def changed() -> bool:
            return await setting("retention.ms") == "778"

        async def listed() -> bool:
            return topic in await admin.list_topics()

        await create(admin, NewTopic(topic, 1, 1, topic_configs={"flush.ms": "777"}))
        await eventually(listed)
        assert await setting("flush.ms") == "777"
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "778"})])
        await eventually(changed)
        assert await setting("flush.ms") == "9223372036854775807"
        node = (await admin.describe_cluster())["brokers"][0]["node_id"]
        (answer,) = await admin.describe_configs(
            [ConfigResource(ConfigResourceType.BROKER, str(node))], include_synonyms=True
        )
        assert len(answer.resources[0][4]) > 200

    run(bootstrap, work)


def test_records_and_cluster(broker: BrokerProcess, topic: str) -> None:
    async def work(admin: AIOKafkaAdminClient) -> None:
        place = TopicPartition(topic, 0)
        assert await admin.delete_records({place: RecordsToDelete(before_offset=3)}) == {place: 3}
        with pytest.raises(OffsetOutOfRangeError):
            await admin.delete_records({place: RecordsToDelete(before_offset=50)})
        cluster = await admin.describe_cluster()
        (node,) = cluster["brokers"]
        assert (node["host"], node["port"]) == (broker.host, broker.port)
        assert cluster["controller_id"] == node["node_id"]

    DRIVERS[1].produce(broker.bootstrap_servers, topic, [Record(b"x")] * 5, codec="none")
    run(broker.bootstrap_servers, work)
    assert [record.offset for record in DRIVERS[1].read(broker.bootstrap_servers, topic, 2, start=3)] == [3, 4]


def test_subscribing_needs_no_group(bootstrap: str, topic: str) -> None:
    """A consumer without a group id takes all partitions of the topics that it names, by pattern too."""

    async def read(**subscription: Any) -> set[int]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest", metadata_max_age_ms=100
        )
        async with consumer:
            consumer.subscribe(**subscription)
            found: set[int] = set()
            while len(found) < 4:
                found.add((await consumer.getone()).partition)
            return found

    async def both() -> None:
        assert await read(topics=[topic]) == set(range(4))
        assert await read(pattern=f"{topic[:-2]}.*") == set(range(4))

    async def work(admin: AIOKafkaAdminClient) -> None:
        await create(admin, NewTopic(topic, 4, 1))

    run(bootstrap, work)
    for partition in range(4):
        DRIVERS[1].produce(bootstrap, topic, [Record(b"x")], codec="none", partition=partition)
    asyncio.run(asyncio.wait_for(both(), SECONDS))
