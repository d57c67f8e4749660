"""One log directory of two is slow: whoever does not need it must not notice, and nothing is lost or out of order.

The broker is a process of its own, whose writes and syncs below one directory are slowed down (see
`slow_disk_broker`). Bystanders ask as fast as they can while producers and a group wait for the slow directory. A
network thread that waits for a slow write makes each bystander wait for up to `DELAY_S`, so what is looked at is the
longest time that one waited.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from urllib.request import urlopen

import pytest
from benchmarks.broker_process import ServerProcess, free_port, source_environment
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.common.errors import Errors
from barnabas.common.java_hash import partition_for
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the path of a descriptor in /proc")

TOPIC = "orders"
SYNCED = "synced"
PARTITIONS = 4
OFFSETS_PARTITIONS = 4
DELAY_S = 5.0
LIMIT_S = DELAY_S / 2
SLOW_OPERATIONS = 6
MOST_WINDOWS = 5
"""So often some slow operations are watched. A thread that waits for them makes others wait in each of these windows; a
machine with a load of 20 may do that, too, in some."""
WINDOWS = 8
WINDOW_REQUESTS = 200
WAIT_S = 180


class SlowDiskBroker(ServerProcess):
    """A broker with a quick log directory, which also has the metadata, and one that can be slow."""

    def __init__(self, directory: Path) -> None:
        self.quick, self.slow, self._control = directory / "quick", directory / "slow", directory / "control"
        for path in (self.quick, self.slow, self._control):
            path.mkdir()
        self.http = f"127.0.0.1:{free_port()}"
        port = free_port()
        command = [
            sys.executable,
            str(Path(__file__).with_name("slow_disk_broker.py")),
            str(self.slow),
            str(self._control),
            "start",
            f"--port={port}",
            f"--data-dir={self.quick}",
            f"--override=log.dirs={self.quick},{self.slow}",
            f"--override=offsets.topic.num.partitions={OFFSETS_PARTITIONS}",
            "--override=offsets.commit.timeout.ms=60000",
            "--override=log.retention.ms=-1",  # records have old timestamps here
            f"--http={self.http}",
        ]
        super().__init__(command, port, directory / "broker.out", source_environment())

    def partitions(self, directory: Path, topic: str) -> list[int]:
        """The partitions of a topic that are in a log directory."""
        names = (path.name for path in directory.glob(f"{topic}-*"))
        return sorted(int(name.rpartition("-")[2]) for name in names if name.rpartition("-")[2].isdigit())

    @contextmanager
    def slowed(self, seconds: float = DELAY_S) -> Iterator[None]:
        """Has writes and syncs in the slow directory take so long."""
        path = self._control / "delay"
        path.with_suffix(".new").write_text(str(seconds))
        path.with_suffix(".new").rename(path)
        try:
            yield
        finally:
            path.unlink()

    @property
    def operations(self) -> tuple[int, int]:
        """How many slow operations have begun, and how many have ended."""
        data = (self._control / "count").read_bytes()
        return data.count(b"b"), data.count(b"e")

    def is_noticed(self) -> bool:
        """Whether the metrics page says that the slow directory is slow. (A loaded machine may make any seem so.)"""
        samples = self._samples("logdirectoryslow")
        assert len(samples) == 2, samples
        return any(value for sample, value in samples.items() if str(self.slow) in sample)

    def _samples(self, name: str) -> dict[str, float]:
        with urlopen(f"http://{self.http}/metrics", timeout=WAIT_S) as response:
            lines = response.read().decode().splitlines()
        samples = [line.rpartition(" ") for line in lines if name in line.lower() and line[0] != "#"]
        return {sample: float(value) for sample, _, value in samples}


class Asking:
    """Repeats a request on a thread of its own, and notes how long each took."""

    def __init__(self, name: str, ask: Callable[[], object], times: int | None = None) -> None:
        self.name = name
        self._ask = ask
        self._times = times
        self._stopped = threading.Event()
        self.seconds: list[float] = []
        self.results: list[object] = []
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set() and (self._times is None or len(self.seconds) < self._times):
                started = time.perf_counter()
                self.results.append(self._ask())
                self.seconds.append(time.perf_counter() - started)
        except Exception as error:  # noqa: BLE001 - for the thread that joins
            self.failure = error

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), self.name
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SlowDiskBroker]:
    with SlowDiskBroker(tmp_path) as broker:
        yield broker


@pytest.fixture
def connect(broker: SlowDiskBroker) -> Iterator[Callable[[], WireClient]]:
    clients: list[WireClient] = []

    def connect() -> WireClient:
        clients.append(WireClient(broker.bootstrap_servers))
        clients[-1].socket.settimeout(WAIT_S)
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


# -- what clients do


def group_in(broker: SlowDiskBroker, directory: Path) -> str:
    """The name of a group whose offsets are in a log directory."""
    there = broker.partitions(directory, "__consumer_offsets")
    return next(
        name for name in (f"group-{n}" for n in range(1000)) if partition_for(name, OFFSETS_PARTITIONS) in there
    )


def find_coordinator(client: WireClient, group: str) -> Errors:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    response = client.ask(request, 4, FindCoordinatorResponse)
    return Errors.for_code(response.coordinators[0].error_code)


class Member:
    """The only member of a group of the classic protocol."""

    def __init__(self, client: WireClient, group: str) -> None:
        self._client, self.group = client, group
        until(lambda: find_coordinator(client, group) is Errors.NONE, f"a coordinator of {group}", WAIT_S)
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        self._id = ""
        self._generation = -1
        until(lambda: self._join(protocol), f"joined {group}", WAIT_S)
        assignments = [SyncGroupRequestAssignment(member_id=self._id, assignment=b"")]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self._generation,
            member_id=self._id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        assert client.ask(request, 5, SyncGroupResponse).error_code == Errors.NONE

    def _join(self, protocol: JoinGroupRequestProtocol) -> bool:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        response: JoinGroupResponse = self._client.ask(request, 5, JoinGroupResponse)
        self._id, self._generation = response.member_id, response.generation_id
        return response.error_code == Errors.NONE

    def heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._id)
        assert self._client.ask(request, 4, HeartbeatResponse).error_code == Errors.NONE

    def commit(self, client: WireClient) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        response = client.ask(request, 8, OffsetCommitResponse)
        assert response.topics[0].partitions[0].error_code == Errors.NONE


def list_offsets(client: WireClient, partition: int) -> None:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
    response = client.ask(request, 7, ListOffsetsResponse)
    assert response.topics[0].partitions[0].error_code == Errors.NONE


def produce(client: WireClient, topic: str, partition: int, values: Iterator[bytes]) -> None:
    error, _ = client.produce(topic, partition, next(values))
    assert error is Errors.NONE


def fetch(client: WireClient, topic: str, partition: int, offset: int) -> None:
    error, values = client.fetch(topic, partition, offset, max_bytes=1)  # which is one whole batch
    assert error is Errors.NONE, error
    assert values


def numbered(name: str) -> Iterator[bytes]:
    number = 0
    while True:
        yield b"%s %d" % (name.encode(), number)
        number += 1


class Scene:
    """Bystanders, and those who wait for the slow directory."""

    def __init__(self, broker: SlowDiskBroker, connect: Callable[[], WireClient]) -> None:
        self.broker, self._connect = broker, connect
        client = self.client = connect()
        client.create_topic(TOPIC, PARTITIONS)
        client.create_topic(SYNCED, PARTITIONS, {"flush.messages": 1})
        for partition in range(PARTITIONS):
            for _ in range(20):
                assert client.produce(TOPIC, partition, bytes(1000))[0] is Errors.NONE
        self.quick_partition = broker.partitions(broker.quick, TOPIC)[0]
        self.slow_partitions = broker.partitions(broker.slow, TOPIC)
        find_coordinator(client, "any")
        until(
            lambda: len(broker.partitions(broker.quick, "__consumer_offsets")) * 2 == OFFSETS_PARTITIONS,
            "the partitions of the offsets topic",
            WAIT_S,
        )
        self.member = Member(connect(), group_in(broker, broker.quick))
        self.slow_member = Member(connect(), group_in(broker, broker.slow))

    def bystanders(self) -> list[Asking]:
        connect, topic, slow = self._connect, TOPIC, self.slow_partitions[0]
        clients = [connect() for _ in range(7)]
        quick_values = numbered("quick")
        return [
            Asking("produce", lambda: produce(clients[0], topic, self.quick_partition, quick_values)),
            Asking("metadata", lambda: clients[1].metadata([topic])),
            Asking("heartbeat", self.member.heartbeat),
            Asking("commit", lambda: self.member.commit(clients[2])),
            Asking("find coordinator", lambda: find_coordinator(clients[3], self.member.group)),
            Asking("fetch", lambda: fetch(clients[4], topic, self.quick_partition, 0)),
            # They read what is in the slow directory, which needs no write.
            Asking("fetch of the slow one", lambda: fetch(clients[5], topic, slow, 3)),
            Asking("list offsets of the slow one", lambda: list_offsets(clients[6], slow)),
        ]

    def waiters(self, times: int | None = None) -> dict[tuple[str, int, str], Asking]:
        """Producers of the slow directory, two for each partition."""
        found: dict[tuple[str, int, str], Asking] = {}
        for topic in (TOPIC, SYNCED):
            for partition in self.broker.partitions(self.broker.slow, topic):
                for number in range(2):
                    name = f"slow-{topic}-{partition}-{number}"
                    client, values = self._connect(), numbered(name)
                    ask = lambda c=client, t=topic, p=partition, v=values: produce(c, t, p, v)  # noqa: E731
                    found[topic, partition, name] = Asking(name, ask, times)
        return found


def await_operations(broker: SlowDiskBroker, count: int) -> None:
    """Waits for so many slow operations that begin from now on to end, which takes `DELAY_S` at least."""
    target = broker.operations[0] + count
    until(lambda: broker.operations[1] >= target, lambda: f"{broker.operations} of {target} operations", WAIT_S)


def window(broker: SlowDiskBroker, bystanders: list[Asking]) -> dict[str, float]:
    """How long each bystander had to wait at most while some slow operations began and ended.

    That is forever for one that has made hardly more requests than there were slow operations.
    """
    before = {one.name: len(one.seconds) for one in bystanders}
    await_operations(broker, SLOW_OPERATIONS)
    after = {one.name: len(one.seconds) for one in bystanders}
    found = {one.name: max(one.seconds[before[one.name] + 1 : after[one.name]], default=0.0) for one in bystanders}
    return {name: longest if after[name] - before[name] > SLOW_OPERATIONS else inf for name, longest in found.items()}


def test_nobody_else_waits_for_a_slow_log_directory(broker: SlowDiskBroker, connect: Callable[[], WireClient]) -> None:
    scene = Scene(broker, connect)
    bystanders = scene.bystanders()
    with broker.slowed():
        waiters = scene.waiters()
        commits = Asking("slow commit", lambda: scene.slow_member.commit(scene.client))
        # The first slow write is noticed when it is over: it may have been one of a network thread.
        await_operations(broker, 1)
        until(broker.is_noticed, "noticed", WAIT_S)
        waits = [window(broker, bystanders)]
        while max(waits[-1].values()) >= LIMIT_S and len(waits) < MOST_WINDOWS:
            waits.append(window(broker, bystanders))
    for one in bystanders:
        one.stop()
    assert max(waits[-1].values()) < LIMIT_S, waits
    commits.stop()
    for (topic, partition, name), waiter in waiters.items():
        waiter.stop()
        values = [value for value in scene.client.fetch_all(topic, partition) if value.startswith(name.encode())]
        assert values == [b"%s %d" % (name.encode(), number) for number in range(len(waiter.seconds))]
    assert "is slow: " in broker.text()


@pytest.mark.nightly
def test_the_p99_of_bystanders_stays_what_it_is(broker: SlowDiskBroker, connect: Callable[[], WireClient]) -> None:
    """Others use the machine, too, so it is the quietest of several times that counts, before and after."""
    scene = Scene(broker, connect)
    bystanders = scene.bystanders()
    quiet = p99_of(bystanders)
    with broker.slowed():
        waiters = scene.waiters()
        await_operations(broker, SLOW_OPERATIONS)
        slow = p99_of(bystanders)
    for one in (*bystanders, *waiters.values()):
        one.stop()
    for name, seconds in quiet.items():
        assert slow[name] < max(1.5 * seconds, seconds + 0.005), (quiet, slow)


def p99_of(askings: list[Asking]) -> dict[str, float]:
    """The least 99th percentile of some windows of requests from now on, for each."""
    starts = {one.name: len(one.seconds) + 1 for one in askings}
    needed = WINDOWS * WINDOW_REQUESTS
    until(lambda: all(len(one.seconds) >= starts[one.name] + needed for one in askings), "enough requests", WAIT_S)
    found = {}
    for one in askings:
        firsts = range(starts[one.name], starts[one.name] + needed, WINDOW_REQUESTS)
        windows = [sorted(one.seconds[first : first + WINDOW_REQUESTS]) for first in firsts]
        found[one.name] = min(window[WINDOW_REQUESTS * 99 // 100] for window in windows)
    return found
