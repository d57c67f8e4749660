"""Answers that wait for the metadata they are about."""

from __future__ import annotations

import pytest

from barnabas.broker.publishers.applied_metadata import MAX_WAIT_MS, AppliedMetadata
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.common.scheduler import MockScheduler
from barnabas.embedded import EmbeddedBroker
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.metadata.publisher import SnapshotManifest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from unit.metadata.samples import image_of, metadata_version, provenance


class Bench:
    def __init__(self) -> None:
        self.high_watermark: int | None = None
        self.scheduler = MockScheduler()
        self.applied = AppliedMetadata(lambda: self.high_watermark, self.scheduler)
        self.ran: list[str] = []

    def wait(self, name: str) -> None:
        self.applied.when_applied(lambda: self.ran.append(name))

    def apply(self, offset: int) -> None:
        image = image_of([metadata_version()], offset=offset)
        self.applied.on_metadata_update(MetadataDelta(EMPTY_IMAGE), image, SnapshotManifest(provenance(offset), 0))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_is_committed_so_nothing_is_waited_for(bench: Bench) -> None:
    bench.wait("a")
    assert bench.ran == ["a"]


def test_what_is_applied_is_not_waited_for(bench: Bench) -> None:
    bench.apply(42)
    bench.high_watermark = 43
    bench.wait("a")
    assert bench.ran == ["a"]


def test_a_response_waits_until_its_records_are_applied(bench: Bench) -> None:
    bench.apply(39)
    bench.high_watermark = 43
    bench.wait("a")
    bench.high_watermark = 45
    bench.wait("b")
    bench.apply(41)
    assert not bench.ran
    bench.apply(42)
    assert bench.ran == ["a"]
    bench.apply(44)
    assert bench.ran == ["a", "b"]


def test_nobody_waits_for_ever(bench: Bench) -> None:
    bench.high_watermark = 43
    bench.wait("a")
    bench.scheduler.clock.advance(MAX_WAIT_MS)
    bench.scheduler.tick()
    assert bench.ran == ["a"]
    bench.apply(42)
    assert bench.ran == ["a"], "once"


def test_the_end_lets_everybody_go(bench: Bench) -> None:
    bench.high_watermark = 43
    bench.wait("a")
    bench.wait("b")
    bench.applied.close()
    assert bench.ran == ["a", "b"]


def test_a_client_finds_what_it_has_just_created() -> None:
    """On a whole broker. Answered as soon as the controller answers, about one in five of these would be missing."""
    with EmbeddedBroker() as broker, BlockingClient(broker.bootstrap_servers) as client:
        missing = []
        for number in range(60):
            name = f"topic-{number}"
            topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
            created: CreateTopicsResponse = client.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
            assert [result.error_code for result in created.topics] == [0]
            found: MetadataResponse = client.send(MetadataRequest(topics=None))
            if name not in {one.name for one in found.topics}:
                missing.append(name)
    assert not missing
