"""Mutated requests of every API against a broker in a process of its own, beside a client that does nothing wrong.

The broker must not crash, log a traceback, leak descriptors or memory, or refuse the good client, which produces one
record with ``acks=all`` every 10 ms. How long that takes while it is under fire is reported: p50, p99 and the maximum.

The hostile client is not an administrator: what the protocol lets one do (unregister the broker, vote the controller
out of office, make ten thousand partitions) would end the test, and rightly so. It comes from 127.0.0.2 and 127.0.0.3
and may read, write and describe everything; the node itself and the good client come from 127.0.0.1 and may do
anything. In the nightly run it may also pass for a broker at the clients' listener.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.waiting import until

from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.security.acl import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from clients.broker_process import BrokerProcess
from log_fixtures import client_batch
from oracles.random_requests import TOPICS
from oracles.side_by_side import Connection
from segment_fixtures import linux_only
from system import hostile_sender
from system.hostile_sender import CLIENT_ADDRESS, CONTROLLER_ADDRESS

pytestmark = linux_only  # other systems have no 127.0.0.2 unless somebody sets it up, and no /proc

SETTINGS: Final = {
    "authorizer.class.name": "barnabas.security.standard_authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
FRAMES: Final = int(os.environ.get("FUZZ_FRAMES", "1000000"))
SEED: Final = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(10**6))
"""Chosen once, so that a second try of the test after a failure (``conftest.py``) sends the same frames."""
GOOD_TOPIC: Final = "of-the-good-client"
INTERVAL_S: Final = 0.01
WAIT_S: Final = 60.0
DESCRIPTORS: Final = 40
"""So many more may be open afterwards: files of topics that the requests have made use of."""
MEGABYTES: Final = 200
"""So much more memory may be in use afterwards: groups and producers that the requests have made."""
_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)$", re.MULTILINE)


class GoodClient(threading.Thread):
    """Produces a record every 10 ms, and keeps the time that each took."""

    def __init__(self, port: int) -> None:
        super().__init__(name="good client", daemon=True)
        self._connection = Connection(port)
        self._stopped = threading.Event()
        self.latencies: list[float] = []
        self.failures: list[str] = []
        batch = bytes(client_batch([b"value"]))
        partition = PartitionProduceData(index=0, records=batch)
        self._request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=GOOD_TOPIC, partition_data=[partition])]
        )

    def run(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            begun = time.monotonic()
            self._connection.send(self._request, 9)
            response = self._connection.receive(self._request.api_key, 9)
            self.latencies.append(time.monotonic() - begun)
            if not isinstance(response, ProduceResponse):
                self.failures.append(str(response))
            elif code := response.responses[0].partition_responses[0].error_code:
                self.failures.append(f"error {code}")
        self._connection.close()

    def stop(self) -> None:
        self._stopped.set()
        self.join(WAIT_S)

    def milliseconds(self, share: float) -> float:
        return round(sorted(self.latencies)[int(share * (len(self.latencies) - 1))] * 1_000, 1)


def acl(resource: ResourceType, name: str, host: str, operation: AclOperation) -> AclCreation:
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:*",
        host=host,
        operation=operation,
        permission_type=AclPermissionType.ALLOW,
    )


RIGHTS: Final = [
    acl(ResourceType.CLUSTER, CLUSTER_NAME, "127.0.0.1", AclOperation.ALL),
    acl(ResourceType.TOPIC, "*", "127.0.0.1", AclOperation.ALL),
    *(
        acl(resource, name, host, operation)
        for host in (CLIENT_ADDRESS, CONTROLLER_ADDRESS)
        for resource, name, operation in (
            (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE),
            (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE_CONFIGS),
            (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE),
            (ResourceType.TOPIC, "*", AclOperation.READ),
            (ResourceType.TOPIC, "*", AclOperation.WRITE),
            (ResourceType.TOPIC, "*", AclOperation.DESCRIBE_CONFIGS),
        )
    ),
]
RIGHT_OF_A_BROKER: Final = acl(ResourceType.CLUSTER, CLUSTER_NAME, CLIENT_ADDRESS, AclOperation.CLUSTER_ACTION)


class Target:
    """The broker that is shot at."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        found = re.search(r"Listening on CONTROLLER://127\.0\.0\.1:(\d+)", broker.log())
        assert found is not None, broker.log()
        self.controller_port = int(found[1])
        self._connection = Connection(broker.port)

    def prepare(self) -> None:
        names = [GOOD_TOPIC, *(name.replace("~", hostile_sender.TAG.decode()) for name in TOPICS)]
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        self.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        for kind in (0, 1):
            request = FindCoordinatorRequest(key="first", key_type=kind)
            until(lambda request=request: self.ask(request, 3).error_code == 0, "the coordinators", WAIT_S)  # type: ignore[misc]
        self.grant(*RIGHTS)

    def grant(self, *rights: AclCreation) -> None:
        results = self.ask(CreateAclsRequest(creations=list(rights)), 3).results
        assert [one.error_code for one in results] == [0] * len(rights)

    def ask(self, request: Any, version: int) -> Any:
        self._connection.send(request, version)
        return self._connection.receive(request.api_key, version)

    def close(self) -> None:
        self._connection.close()

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.broker.pid}/fd").iterdir()))

    def megabytes(self) -> int:
        status = Path(f"/proc/{self.broker.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmRSS:")[1].split()[0]) // 1024

    def tracebacks(self) -> Counter[str]:
        """The last lines of all tracebacks in the log, and how often each is there."""
        return Counter(found[0] for found in _TRACEBACK.finditer(self.broker.log()))


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    try:
        made = Target(broker)
        made.prepare()
        yield made
        made.close()
    finally:
        assert broker.stop() == 0, broker.log()[-5_000:]


def fire(target: Target, seed: int, frames: int) -> str:
    """Runs the hostile client; what it reports."""
    command = [sys.executable, hostile_sender.__file__, target.broker.port, target.controller_port, seed, frames]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    result = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S + frames / 50,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert result.returncode == 0, f"seed {seed}: {result.stderr}\n{target.broker.log()[-3_000:]}"
    return result.stdout


def assault(target: Target, seed: int, frames: int) -> None:
    fire(target, seed + 1, hostile_sender.BATCH * 40)  # what is loaded and made by the first requests is no leak
    descriptors, megabytes = target.descriptors(), target.megabytes()
    good = GoodClient(target.broker.port)
    good.start()
    sent, closed, given_up = map(int, fire(target, seed, frames).split())
    good.stop()
    print(
        f"seed {seed}: {sent:,} frames, {closed:,} connections closed, {given_up:,} given up; the good client's "
        f"{len(good.latencies):,} requests took p50 {good.milliseconds(0.5)} ms, p99 {good.milliseconds(0.99)} ms, "
        f"at most {good.milliseconds(1)} ms; {target.megabytes() - megabytes:+d} MB, "
        f"{target.descriptors() - descriptors:+d} descriptors"
    )
    assert not good.is_alive(), "the good client has no response"
    assert good.latencies
    assert not good.failures, Counter(good.failures)
    tracebacks = target.tracebacks()
    assert not tracebacks, "\n".join(f"{count} times, seed {seed}:\n{text}" for text, count in tracebacks.items())
    until(lambda: target.descriptors() <= descriptors + DESCRIPTORS, target.descriptors, WAIT_S)
    assert target.megabytes() <= megabytes + MEGABYTES


def test_mutated_frames(target: Target) -> None:
    assault(target, 1, 3_000)


@pytest.mark.nightly
def test_a_million_mutated_frames(target: Target, record_property: Callable[[str, object], None]) -> None:
    target.grant(RIGHT_OF_A_BROKER)
    assault(target, SEED, FRAMES)
    record_property("fuzz_cases", FRAMES)
