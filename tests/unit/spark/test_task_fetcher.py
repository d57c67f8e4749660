"""A task's way through leaders that move, offsets that are gone, and answers in the middle of batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest

from barnabas.clients.common.blocking_client import ClientError
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.partition_errors import RECOVERIES, Recovery
from barnabas.clients.common.topic_reader import ClusterState, Leader, UnknownPartitionsError
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.protocol.messages.fetch import AbortedTransaction, PartitionData
from barnabas.records.columns.arrow import HEADERS_TYPE, encode_batch
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.data_loss import DataLoss, DataLossError
from barnabas.spark.offset_ranges import OffsetRange, ReadTask
from barnabas.spark.task_fetcher import TaskFetcher

_PARTITION = TopicPartition("t", 0)
_NODES = {1: Node(1, "one", 9092), 2: Node(2, "two", 9092)}


def batch(first: int, *values: str, **more: Any) -> bytes:
    array = pa.array([value.encode() for value in values])
    return bytes(encode_batch(values=array, timestamps=0, base_offset=first, **more))


def answer(records: bytes = b"", error: Errors = Errors.NONE, **more: Any) -> PartitionData:
    return PartitionData(partition_index=0, error_code=error, records=records, **more)


@dataclass
class ScriptedClient:
    """Gives the responses of a script, one after the other, and notes what it was asked."""

    settings: ClientSettings
    script: deque[PartitionData | Exception]
    leaders: deque[int | None] = field(default_factory=lambda: deque([1]))
    ends: tuple[int, int] = (0, 100)
    asked: list[tuple[int, int]] = field(default_factory=list)
    """Node and offset of each fetch."""
    limits: list[tuple[int, int]] = field(default_factory=list)
    """The maximum bytes of the partition and of the response."""
    events: list[str] = field(default_factory=list)

    def describe(self, topics: Any) -> ClusterState:
        leader = self.leaders[0] if len(self.leaders) == 1 else self.leaders.popleft()
        known = {} if leader is None else {_PARTITION: Leader(_NODES[leader], ZERO_UUID, 3)}
        return ClusterState(_NODES, known, frozenset())

    def list_offsets(self, wanted: dict[TopicPartition, int], state: ClusterState) -> dict[TopicPartition, int]:
        if not state.leaders:
            raise UnknownPartitionsError("gone", frozenset(wanted))
        return {one: self.ends[0] if time == -2 else self.ends[1] for one, time in wanted.items()}

    @property
    def reader(self) -> ScriptedClient:
        return self

    def post_fetch(self, node: Node, wanted: dict[TopicPartition, PartitionToFetch], max_bytes: int) -> object:
        offset = wanted[_PARTITION].fetch_offset
        self.asked.append((node.id, offset))
        self.limits.append((wanted[_PARTITION].max_bytes, max_bytes))
        self.events.append(f"ask {offset}")
        return wanted

    def wait(self, posted: object) -> dict[TopicPartition, PartitionData]:
        following = self.script.popleft()
        if isinstance(following, Exception):
            raise following
        return {_PARTITION: following}


class _ImpatientClock(MockClock):
    """Nobody else moves it, so who sleeps wakes up at once, later."""

    def sleep(self, milliseconds: float) -> None:
        self.advance(milliseconds)


Run = Callable[..., tuple[list[tuple[Any, ...]], ScriptedClient]]


@pytest.fixture
def run() -> Run:
    """Reads a range with a script of responses; the rows, and the client that gave the responses."""

    def read(
        start: int,
        end: int,
        *script: PartitionData | Exception,
        columns: tuple[str, ...] = ("offset", "value"),
        fail: bool = True,
        options: dict[str, str] | None = None,
        **client_fields: Any,
    ) -> tuple[list[tuple[Any, ...]], ScriptedClient]:
        settings = ClientSettings.of({"kafka.bootstrap.servers": "one:1"} | (options or {}))
        client = ScriptedClient(settings, deque(script), **client_fields)
        fetcher = TaskFetcher(
            cast("ClusterClient", client),
            ReadTask((OffsetRange("t", 0, start, end),)),
            columns,
            DataLoss(fail),
            poll_timeout_ms=1000,
            clock=_ImpatientClock(auto_tick_ms=1),
        )
        rows: list[tuple[Any, ...]] = []
        for found in fetcher:
            client.events.append(f"rows {found.num_rows}")
            rows += zip(*(column.to_pylist() for column in found.columns), strict=True)
        return rows, client

    return read


def test_both_ends_are_cut_off(run: Run) -> None:
    rows, _ = run(1, 5, answer(batch(0, "a", "b") + batch(2, "c", "d")), answer(batch(4, "e", "f")))
    assert rows == [(1, b"b"), (2, b"c"), (3, b"d"), (4, b"e")]


def test_the_next_response_is_asked_for_before_this_one_is_decoded(run: Run) -> None:
    _, client = run(0, 4, answer(batch(0, "a", "b")), answer(batch(2, "c", "d")))
    assert client.events == ["ask 0", "ask 2", "rows 2", "rows 2"]


def test_a_gap_of_compaction_is_no_loss(run: Run) -> None:
    rows, client = run(0, 50, answer(batch(0, "a") + batch(40, "b")), answer(batch(60, "c")))
    assert rows == [(0, b"a"), (40, b"b")]
    assert client.asked == [(1, 0), (1, 41)]


def test_aborted_transactions_are_not_seen(run: Run) -> None:
    transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    data = answer(
        batch(0, "a", **transactional) + batch(1, "b"),
        aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=0)],
    )
    assert run(0, 2, data, options={"kafka.isolation.level": "read_committed"})[0] == [(1, b"b")]
    assert run(0, 2, data)[0] == [(0, b"a"), (1, b"b")]


def test_a_leader_that_moves(run: Run) -> None:
    rows, client = run(
        0,
        3,
        answer(batch(0, "a")),
        answer(error=Errors.NOT_LEADER_OR_FOLLOWER),
        answer(batch(1, "b")),
        ClientError("the connection was lost"),
        answer(batch(2, "c")),
        leaders=deque([1, 2, 1]),
    )
    assert rows == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert client.asked == [(1, 0), (1, 1), (2, 1), (2, 2), (1, 2)]


def test_a_follower_nearby(run: Run) -> None:
    rows, client = run(0, 2, answer(preferred_read_replica=2), answer(batch(0, "a", "b")))
    assert rows == [(0, b"a"), (1, b"b")]
    assert client.asked == [(1, 0), (2, 0)]


def test_records_that_are_gone(run: Run) -> None:
    out_of_range = answer(error=Errors.OFFSET_OUT_OF_RANGE)
    with pytest.raises(DataLossError, match="the records before offset 5 are gone, and 0 is the next to read"):
        run(0, 9, out_of_range, ends=(5, 9))
    rows, client = run(0, 9, out_of_range, answer(batch(5, *"fghi")), ends=(5, 9), fail=False)
    assert [offset for offset, _ in rows] == [5, 6, 7, 8]
    assert client.asked == [(1, 0), (1, 5)]
    assert run(0, 4, out_of_range, ends=(5, 9), fail=False)[0] == []


def test_an_end_that_has_gone_back(run: Run) -> None:
    out_of_range = answer(error=Errors.OFFSET_OUT_OF_RANGE)
    with pytest.raises(DataLossError, match="offset 20 is beyond the end of the partition, 3"):
        run(20, 30, out_of_range, ends=(0, 3))
    assert run(20, 30, out_of_range, ends=(0, 3), fail=False)[0] == []


def test_an_offset_that_a_new_leader_does_not_know_yet(run: Run) -> None:
    out_of_range = answer(error=Errors.OFFSET_OUT_OF_RANGE)
    assert run(2, 3, out_of_range, answer(batch(2, "c")), ends=(0, 3))[0] == [(2, b"c")]


def test_a_topic_that_is_gone(run: Run) -> None:
    with pytest.raises(DataLossError, match="there is no partition t-0"):
        run(0, 3, leaders=deque([None]))
    assert run(0, 3, leaders=deque([None]), fail=False)[0] == []
    # For a moment is not for good.
    assert run(0, 1, answer(batch(0, "a")), leaders=deque([None, None, 1]))[0] == [(0, b"a")]


def test_a_broker_that_stays_away(run: Run) -> None:
    with pytest.raises(ClientError, match=r"nothing could be read from 0 on for \d+ ms: .*connection refused"):
        run(0, 3, *[ClientError("connection refused")] * 100)


def test_records_that_do_not_come(run: Run) -> None:
    with pytest.raises(ClientError, match=r"cannot read offset 0 within 1000 ms.*the partition ends at 7"):
        run(0, 3, *[answer(high_watermark=7)] * 1000)


@pytest.mark.parametrize("error", [error for error in RECOVERIES if error])
def test_every_error_of_the_table(run: Run, error: Errors) -> None:
    data = answer(batch(0, "a"))
    match RECOVERIES[error]:
        case Recovery.FAIL:
            with pytest.raises(ClientError, match=error.name):
                run(0, 1, answer(error=error), data)
        case Recovery.RESET_OFFSET:
            with pytest.raises(DataLossError):
                run(0, 1, answer(error=error), data, ends=(1, 1))
        case _:
            assert run(0, 1, answer(error=error), data)[0] == [(0, b"a")]


def test_a_batch_that_does_not_come_whole(run: Run) -> None:
    whole = batch(0, "a" * 100)
    settings = {"kafka.max.partition.fetch.bytes": "80", "kafka.fetch.max.bytes": "70"}
    rows, client = run(0, 1, answer(whole[:80]), answer(whole), options=settings)
    assert rows == [(0, b"a" * 100)]
    assert client.limits == [(80, 70), (160, 160)]


def test_columns(run: Run) -> None:
    names = ("headers", "timestampType", "topic", "key", "partition", "timestamp", "value")
    data = batch(
        0,
        "a",
        "b",
        keys=pa.array([None, b"k"]),
        headers=pa.array([[], [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]], HEADERS_TYPE),
    )
    rows, _ = run(0, 1, answer(data), columns=names)
    assert [(row[0], row[1:5], row[6]) for row in rows] == [(None, (0, "t", None, 0), b"a")]
    rows, _ = run(0, 2, answer(data), columns=names)
    assert rows[1][0] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert run(0, 2, answer(data), columns=("partition",))[0] == [(0,), (0,)]


# -- several partitions


@dataclass
class Broker:
    """A broker with one batch of values per partition, whose responses have at most `limit` batches."""

    values: dict[TopicPartition, list[str]]
    limit: int = 1000
    failing: set[TopicPartition] = field(default_factory=set)
    """Partitions whose next fetch fails."""
    requests: list[tuple[int, list[TopicPartition]]] = field(default_factory=list)
    described: list[set[str]] = field(default_factory=list)
    settings: ClientSettings = field(default_factory=lambda: ClientSettings.of({"kafka.bootstrap.servers": "one:1"}))

    @property
    def reader(self) -> Broker:
        return self

    def leader_of(self, partition: TopicPartition) -> Leader:
        return Leader(_NODES[1 + partition.partition % 2], ZERO_UUID, 3)

    def describe(self, topics: set[str]) -> ClusterState:
        self.described.append(topics)
        return ClusterState(_NODES, {one: self.leader_of(one) for one in self.values}, frozenset())

    def post_fetch(self, node: Node, wanted: dict[TopicPartition, PartitionToFetch], max_bytes: int) -> object:
        self.requests.append((node.id, list(wanted)))
        return wanted

    def wait(self, posted: Any) -> dict[TopicPartition, PartitionData]:
        response, left = {}, self.limit
        for one, row in posted.items():
            values = self.values[one][row.fetch_offset :]
            if one in self.failing:
                self.failing.discard(one)
                response[one] = answer(error=Errors.NOT_LEADER_OR_FOLLOWER)
            elif left and values:
                left -= 1
                response[one] = answer(batch(row.fetch_offset, *values))
            else:
                response[one] = answer()
        return response

    def read(self, *ends: int, hints: bool = True, columns: tuple[str, ...] = ("topic", "partition", "value")) -> Any:
        """Reads all partitions, up to `ends` or completely; returns the record batches as lists of rows."""
        ranges = [
            OffsetRange(*one, 0, ends[number] if ends else len(values))
            for number, (one, values) in enumerate(self.values.items())
        ]
        leaders = {one: self.leader_of(one) for one in self.values} if hints else {}
        fetcher = TaskFetcher(
            cast("ClusterClient", self),
            ReadTask(tuple(ranges), leaders),
            columns,
            DataLoss(True),
            poll_timeout_ms=1000,
            clock=_ImpatientClock(auto_tick_ms=1),
        )
        return [list(zip(*(column.to_pylist() for column in found.columns), strict=True)) for found in fetcher]


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


@pytest.mark.mechanism("S13")
def test_partitions_of_a_leader_are_fetched_and_decoded_together() -> None:
    broker = Broker({one: [f"{one}.{index}" for index in range(3)] for one in partitions("t", 0, 2, 4, 1)})
    rows = broker.read()
    assert broker.requests == [(1, partitions("t", 0, 2, 4)), (2, partitions("t", 1))]
    assert broker.described == []  # the driver has named the leaders
    assert rows == [
        [("t", number, f"t-{number}.{index}".encode()) for number in (0, 2, 4) for index in range(3)],
        [("t", 1, f"t-1.{index}".encode()) for index in range(3)],
    ]


@pytest.mark.mechanism("S13")
def test_rows_of_several_topics_and_ranges_that_end_within_a_batch() -> None:
    broker = Broker({one: ["a", "b", "c"] for one in [*partitions("t", 0, 2), *partitions("longer", 0)]})
    rows = [row for found in broker.read(3, 2, 3) for row in found]
    expected = [("t", 0, b"a"), ("t", 0, b"b"), ("t", 0, b"c"), ("t", 2, b"a"), ("t", 2, b"b")]
    assert sorted(rows) == sorted([*expected, ("longer", 0, b"a"), ("longer", 0, b"b"), ("longer", 0, b"c")])


@pytest.mark.mechanism("S13")
def test_a_request_names_as_many_partitions_as_fit_into_a_response() -> None:
    broker = Broker({one: ["a"] for one in partitions("t", *range(0, 400, 2))}, limit=20)
    assert sum(map(len, broker.read())) == 200
    widths = [len(asked) for _, asked in broker.requests]
    assert widths[0] == 32
    assert max(widths[1:]) <= 21  # 20 came
    broker = Broker({one: ["a"] for one in partitions("t", *range(0, 400, 2))})
    broker.read()
    assert [len(asked) for _, asked in broker.requests] == [32, 64, 104]


@pytest.mark.mechanism("S13")
def test_a_partition_in_trouble_does_not_delay_the_others() -> None:
    broker = Broker({one: [str(one)] for one in partitions("t", 0, 2, 4)}, failing=set(partitions("t", 2)))
    rows = [row[1] for found in broker.read() for row in found]
    assert rows == [0, 4, 2]
    assert broker.requests == [(1, partitions("t", 0, 2, 4)), (1, partitions("t", 2))]
    assert broker.described == [{"t"}]


@pytest.mark.mechanism("S13")
def test_leaders_are_looked_up_with_one_request() -> None:
    broker = Broker({one: ["a"] for one in partitions("t", *range(50))})
    assert sum(map(len, broker.read(hints=False))) == 50
    assert broker.described == [{"t"}]
