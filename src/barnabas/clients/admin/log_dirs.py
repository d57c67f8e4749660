"""Log directories: describe them, and move replicas between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.clients.admin.internals.admin_api_driver import error_of
from barnabas.clients.admin.internals.node_choice import Broker
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.internals.steps import together
from barnabas.clients.admin.results import Results
from barnabas.common.errors import ApiError, UnknownServerError, raise_for_code
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages import alter_replica_log_dirs as alter_api
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a directory."""

    size: int
    offset_lag: int
    """How far it is behind the high watermark, or behind the replica that it is to replace."""
    is_future: bool
    """Whether it is a future replica, which replaces the one in another directory when it has caught up."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory."""

    path: str
    error: ApiError | None
    """Why it cannot be used."""
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    """The size of the volume; None if the broker does not report it."""
    usable_bytes: int | None
    is_cordoned: bool = False
    """Whether it gets no new replicas."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartitionReplica:
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


async def describe_log_dirs(
    operation: Operation,
    broker_ids: Iterable[int],
    *,
    partitions: Iterable[TopicPartition] | None = None,
    partial: bool = False,
) -> Results[int, dict[str, LogDirDescription]]:
    """Returns the directories of brokers, by path, with all replicas or just those of some partitions."""
    topics: dict[str, list[int]] | None = None
    if partitions is not None:
        topics = {}
        for one in partitions:
            topics.setdefault(one.topic, []).append(one.partition)
    request = DescribeLogDirsRequest(
        topics=None
        if topics is None
        else [DescribableLogDirTopic(topic=name, partitions=rows) for name, rows in topics.items()]
    )

    async def ask(broker: int) -> tuple[int, dict[str, LogDirDescription] | ApiError]:
        try:
            return broker, await operation.ask(Broker(broker), request, _read_described)
        except ApiError as error:
            return broker, error

    found = await together(*(ask(broker) for broker in dict.fromkeys(broker_ids)))
    return Results(
        {broker: value for broker, value in found if not isinstance(value, ApiError)},
        {broker: value for broker, value in found if isinstance(value, ApiError)},
    ).checked(partial)


def _read_described(response: DescribeLogDirsResponse) -> dict[str, LogDirDescription]:
    raise_for_code(response.error_code)
    return {
        row.log_dir: LogDirDescription(
            row.log_dir,
            error_of(row.error_code),
            {
                TopicPartition(topic.name, one.partition_index): ReplicaInfo(
                    one.partition_size, one.offset_lag, one.is_future_key
                )
                for topic in row.topics
                for one in topic.partitions
            },
            None if row.total_bytes < 0 else row.total_bytes,
            None if row.usable_bytes < 0 else row.usable_bytes,
            row.is_cordoned,
        )
        for row in response.results
    }


async def alter_replica_log_dirs(
    operation: Operation, assignments: Mapping[TopicPartitionReplica, str], *, partial: bool = False
) -> Results[TopicPartitionReplica, None]:
    """Starts moving replicas to other directories of their brokers; does not wait for the end."""
    by_broker: dict[int, dict[str, dict[str, list[int]]]] = {}
    for replica, path in assignments.items():
        topics = by_broker.setdefault(replica.broker_id, {}).setdefault(path, {})
        topics.setdefault(replica.topic, []).append(replica.partition)

    async def ask(broker: int, paths: dict[str, dict[str, list[int]]]) -> dict[TopicPartitionReplica, ApiError | None]:
        asked = [one for one in assignments if one.broker_id == broker]
        request = alter_api.AlterReplicaLogDirsRequest(
            dirs=[
                alter_api.AlterReplicaLogDir(
                    path=path,
                    topics=[
                        alter_api.AlterReplicaLogDirTopic(name=name, partitions=rows) for name, rows in topics.items()
                    ],
                )
                for path, topics in paths.items()
            ]
        )

        def read(response: alter_api.AlterReplicaLogDirsResponse) -> dict[TopicPartitionReplica, ApiError | None]:
            return {
                TopicPartitionReplica(topic.topic_name, row.partition_index, broker): error_of(row.error_code)
                for topic in response.results
                for row in topic.partitions
            }

        try:
            included = await operation.ask(Broker(broker), request, read)
        except ApiError as error:
            return dict.fromkeys(asked, error)
        return {
            one: included.get(one, UnknownServerError(f"The response of broker {broker} does not include {one}."))
            for one in asked
        }

    outcomes: dict[TopicPartitionReplica, ApiError | None] = {}
    for part in await together(*(ask(broker, paths) for broker, paths in by_broker.items())):
        outcomes |= part
    return Results(
        {one: None for one in assignments if outcomes[one] is None},
        {one: error for one, error in outcomes.items() if error is not None},
    ).checked(partial)
