"""Reads topics with a `BlockingClient`: their leaders, their offsets and their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from barnabas.clients.common.blocking_client import BlockingClient, ClientError, PostedRequest, raise_for
from barnabas.clients.common.fetch_client import Fetch, FetchClient, FetchSettings
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.list_offsets import OffsetToList, list_offsets_request
from barnabas.clients.common.partition_errors import LEADER_MOVED, TOPIC_MISSING, Recovery, recovery_of
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.protocol.messages.fetch import FetchResponse, PartitionData
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_TIMEOUT_MS = 30_000
_MAX_NAMES = 20


class UnknownPartitionsError(ClientError):
    """Some topics or partitions do not exist, or have no leader."""

    def __init__(self, message: str, partitions: frozenset[TopicPartition] = frozenset()) -> None:
        super().__init__(message)
        self.partitions = partitions


class Leader(NamedTuple):
    """The leader of a partition."""

    node: Node | None
    """None while there is none."""
    topic_id: Uuid
    epoch: int


class ClusterState(NamedTuple):
    """The metadata of topics."""

    nodes: Mapping[int, Node]
    leaders: Mapping[TopicPartition, Leader]
    internal: frozenset[str]


class PostedFetch(NamedTuple):
    """A fetch request in flight."""

    fetch: Fetch
    request: PostedRequest


class TopicReader:
    """Sends the requests of a reader that belongs to no group and keeps no fetch session."""

    def __init__(self, client: BlockingClient, settings: FetchSettings, request_timeout_ms: int = _TIMEOUT_MS) -> None:
        self._client = client
        self._settings = settings
        self._fetches = FetchClient(settings, sessionless=True)
        self._request_timeout_ms = request_timeout_ms

    def describe(self, topics: Collection[str] | None) -> ClusterState:
        """Returns the metadata of these topics, or of all. Leaves out those that do not exist."""
        names = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        response: MetadataResponse = self._client.send(MetadataRequest(topics=names, allow_auto_topic_creation=False))
        nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
        leaders: dict[TopicPartition, Leader] = {}
        internal = set()
        for topic in response.topics:
            if topic.name is None or topic.error_code in TOPIC_MISSING:
                continue
            if topic.error_code not in LEADER_MOVED:
                raise_for(topic.error_code, f"topic {topic.name} cannot be read")
            if topic.is_internal:
                internal.add(topic.name)
            for one in topic.partitions:
                leaders[TopicPartition(topic.name, one.partition_index)] = Leader(
                    nodes.get(one.leader_id), topic.topic_id, one.leader_epoch
                )
        return ClusterState(nodes, leaders, frozenset(internal))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], state: ClusterState
    ) -> dict[TopicPartition, int | None]:
        """Returns the offset for each timestamp: milliseconds, -2 for the first offset or -1 for the end.

        None where all records are older. Raises `UnknownPartitionsError` if leaders have moved since ``state``.
        """
        return self.list_several([wanted], state)[0]

    def list_several(
        self, lookups: Sequence[Mapping[TopicPartition, int]], state: ClusterState
    ) -> list[dict[TopicPartition, int | None]]:
        """Does several lookups of `list_offsets` in one round: sends all requests before it waits for a response.

        A request must not name a partition twice, so each lookup has requests of its own.
        """
        requests: list[tuple[int, Node, ListOffsetsRequest]] = []
        level, timeout_ms = self._settings.isolation_level, self._request_timeout_ms
        for number, wanted in enumerate(lookups):
            for node, rows in _by_leader(wanted, state).items():
                requests.append((number, node, list_offsets_request(rows, level, timeout_ms)))
        responses = self._client.send_all((node, request) for _, node, request in requests)
        found: list[dict[TopicPartition, int | None]] = [{} for _ in lookups]
        moved: dict[TopicPartition, Errors] = {}
        response: ListOffsetsResponse
        for (number, _, _), response in zip(requests, responses, strict=True):
            for topic in response.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    if recovery_of(row.error_code) in {Recovery.REFRESH_METADATA, Recovery.RETRY}:
                        moved[partition] = Errors.for_code(row.error_code)
                    else:
                        raise_for(row.error_code, f"the offsets of {partition} are not known")
                        found[number][partition] = row.offset if row.offset >= 0 else None
        if moved:
            reasons = _named([f"{partition}: {error.name}" for partition, error in sorted(moved.items())])
            raise UnknownPartitionsError(f"the offsets of some partitions are not known: {reasons}", frozenset(moved))
        return found

    def post_fetch(
        self,
        node: Node,
        wanted: Mapping[TopicPartition, PartitionToFetch],
        max_wait_ms: int | None = None,
        max_bytes: int | None = None,
    ) -> PostedFetch:
        """Sends a fetch request without waiting for the response.

        `max_bytes` limits the response, by default to the settings' limit.
        """
        if max_bytes is None:
            # A larger partition limit is intended: a batch that does not fit is requested again.
            max_bytes = max([self._settings.max_bytes, *(row.max_bytes for row in wanted.values())])
        fetch = self._fetches.fetch(node.id, wanted, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
        return PostedFetch(fetch, self._client.post(fetch.body, node, fetch.versions))

    def wait(self, posted: PostedFetch) -> dict[TopicPartition, PartitionData]:
        """Returns all partitions of a fetch request. An error of the whole response is that of each partition."""
        response: FetchResponse = self._client.wait(posted.request)
        rows = posted.fetch.read(response)
        if rows is not None:
            return dict(rows)
        names = posted.fetch.partitions
        if not response.error_code:
            raise ClientError(f"the response to a fetch request lacks some of {', '.join(map(str, names))}")
        return {one: PartitionData(partition_index=one.partition, error_code=response.error_code) for one in names}

    def fetch(
        self, node: Node, wanted: Mapping[TopicPartition, PartitionToFetch], max_wait_ms: int | None = None
    ) -> dict[TopicPartition, PartitionData]:
        return self.wait(self.post_fetch(node, wanted, max_wait_ms))


def _by_leader(wanted: Mapping[TopicPartition, int], state: ClusterState) -> dict[Node, list[OffsetToList]]:
    leaderless = frozenset(one for one in wanted if one not in state.leaders or state.leaders[one].node is None)
    if leaderless:
        raise UnknownPartitionsError(
            f"{_named(list(map(str, sorted(leaderless))))}: there is no such partition, or it has no leader", leaderless
        )
    by_node: dict[Node, list[OffsetToList]] = {}
    for partition, timestamp in wanted.items():
        node, _, epoch = state.leaders[partition]
        assert node is not None
        by_node.setdefault(node, []).append(OffsetToList(partition, timestamp, epoch))
    return by_node


def _named(names: Sequence[str]) -> str:
    """Joins names for a message; shortens long lists."""
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
