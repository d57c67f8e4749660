"""Leader elections and replica reassignments of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from barnabas.clients.admin.internals.admin_api_driver import error_of
from barnabas.clients.admin.internals.node_choice import CONTROLLER
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.results import Results
from barnabas.common.errors import ApiError, ElectionNotNeededError, UnknownServerError, raise_for_code
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages import alter_partition_reassignments as alter_api
from barnabas.protocol.messages import elect_leaders as elect_api
from barnabas.protocol.messages import list_partition_reassignments as list_api


class ElectionType(IntEnum):
    """Which replica becomes leader."""

    PREFERRED = 0
    """The first replica, if it is in sync."""
    UNCLEAN = 1
    """Any live replica, if none is in sync: it is better to lose some records than to lose access to all."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment in progress."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


def _grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    return topics


async def elect_leaders(
    operation: Operation,
    election_type: ElectionType,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    partial: bool = False,
) -> Results[TopicPartition, bool]:
    """Elects leaders of some partitions, or of all that need it.

    Returns whether each partition needed an election; if it did not, that is not an error."""
    wanted = None if partitions is None else list(dict.fromkeys(partitions))

    def request() -> elect_api.ElectLeadersRequest:
        return elect_api.ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=None
            if wanted is None
            else [elect_api.TopicPartitions(topic=name, partitions=rows) for name, rows in _grouped(wanted).items()],
            timeout_ms=operation.remaining_ms,
        )

    def read(response: elect_api.ElectLeadersResponse) -> Results[TopicPartition, bool]:
        raise_for_code(response.error_code)
        elected: dict[TopicPartition, bool] = {}
        failed: dict[TopicPartition, ApiError] = {}
        for topic in response.replica_election_results:
            for row in topic.partition_result:
                key = TopicPartition(topic.topic, row.partition_id)
                error = error_of(row.error_code, row.error_message)
                if error is None or isinstance(error, ElectionNotNeededError):
                    elected[key] = error is None
                else:
                    failed[key] = error
        for key in wanted or ():
            if key not in elected and key not in failed:
                failed[key] = UnknownServerError(f"The controller's response does not include {key}.")
        return Results(elected, failed)

    return (await operation.ask(CONTROLLER, request, read)).checked(partial)


async def alter_partition_reassignments(
    operation: Operation,
    reassignments: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
    partial: bool = False,
) -> Results[TopicPartition, None]:
    """Starts moving partitions to other brokers; None cancels a move. Does not wait for the end."""

    def topic(name: str, indexes: list[int]) -> alter_api.ReassignableTopic:
        rows = []
        for index in indexes:
            replicas = reassignments[TopicPartition(name, index)]
            rows.append(
                alter_api.ReassignablePartition(
                    partition_index=index, replicas=None if replicas is None else list(replicas)
                )
            )
        return alter_api.ReassignableTopic(name=name, partitions=rows)

    def request() -> alter_api.AlterPartitionReassignmentsRequest:
        return alter_api.AlterPartitionReassignmentsRequest(
            timeout_ms=operation.remaining_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[topic(name, indexes) for name, indexes in _grouped(reassignments).items()],
        )

    def read(response: alter_api.AlterPartitionReassignmentsResponse) -> Results[TopicPartition, None]:
        raise_for_code(response.error_code, response.error_message)
        included = {
            TopicPartition(one.name, row.partition_index): error_of(row.error_code, row.error_message)
            for one in response.responses
            for row in one.partitions
        }
        failed: dict[TopicPartition, ApiError] = {}
        for key in reassignments:
            error = included.get(key, UnknownServerError(f"The controller's response does not include {key}."))
            if error is not None:
                failed[key] = error
        return Results({key: None for key in reassignments if key not in failed}, failed)

    return (await operation.ask(CONTROLLER, request, read)).checked(partial)


async def list_partition_reassignments(
    operation: Operation, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, PartitionReassignment]:
    """Lists the reassignments in progress: of some partitions, or all."""
    wanted = None if partitions is None else _grouped(partitions)

    def request() -> list_api.ListPartitionReassignmentsRequest:
        return list_api.ListPartitionReassignmentsRequest(
            timeout_ms=operation.remaining_ms,
            topics=None
            if wanted is None
            else [
                list_api.ListPartitionReassignmentsTopics(name=name, partition_indexes=rows)
                for name, rows in wanted.items()
            ],
        )

    def read(response: list_api.ListPartitionReassignmentsResponse) -> dict[TopicPartition, PartitionReassignment]:
        raise_for_code(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, row.partition_index): PartitionReassignment(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in response.topics
            for row in topic.partitions
        }

    return await operation.ask(CONTROLLER, request, read)
