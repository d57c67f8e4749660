"""Thousands of random schedules: whatever the network and the brokers do, a record is written once and in its place.

Each schedule is a small world made from a seed: some nodes and partitions, a producer with random settings, and a few
hundred turns in which records are sent while answers are late, requests and answers are lost, leaders move, nodes go
down, and brokers answer with errors. In the end everything is repaired, the producer finishes its work, and is checked.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.testing import Fate, Handled, ScriptedCluster
from barnabas.common.errors import ApiError, Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey

TRANSIENT = (
    Errors.NOT_ENOUGH_REPLICAS,
    Errors.REQUEST_TIMED_OUT,
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.KAFKA_STORAGE_ERROR,
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
)


class Schedule:
    """One world, from its seed."""

    def __init__(self, seed: int, *, crashes: bool = False) -> None:
        """With ``crashes``, brokers are killed now and then, and forget all but the last batch of a producer."""
        self.random = random = Random(seed)
        self.crashes = crashes
        self.nodes = random.randint(1, 3)
        self.partitions = random.randint(1, 4)
        self.cluster = ScriptedCluster({"t": self.partitions}, nodes=self.nodes)
        self.cluster.idle_limit_ms = 50  # or the topic is forgotten while nothing happens
        self.short_deadline = random.random() < 0.4
        batch_size = random.choice([1, 100, 150, 400])
        self.producer = self.cluster.producer(
            random=Random(seed),
            linger_ms=random.choice([0, 0, 5, 20]),
            batch_size=batch_size,
            # As large as Kafka's, or with room for what comes while they wait.
            batch_max_size=random.choice([batch_size, 450, 1_000, 8_000]),
            max_in_flight_requests_per_connection=random.randint(1, 5),
            compression_type=random.choice(["none", "none", "zstd", "gzip"]),
            # With little of it, batches do not get what they would grow by.
            buffer_memory=random.choice([1 << 20, 1 << 20, 4_000]),
            request_timeout_ms=400,
            delivery_timeout_ms=600 if self.short_deadline else 1_000_000,
            retry_backoff_ms=random.choice([0, 20]),
            reconnect_backoff_ms=random.choice([0, 20]),
            reconnect_backoff_max_ms=100,
        )
        if random.random() < 0.3:
            self.cluster.max_message_bytes = 300
        self.trouble = random.choice([0.0, 0.05, 0.2, 0.4])
        self.cluster.fate_of = self.fate_of
        self.sent: list[tuple[bytes, FutureRecordMetadata]] = []
        self.called_back: Counter[bytes] = Counter()
        self.unknown_places = 0

    def fate_of(self, handled: Handled) -> Fate:
        random = self.random
        if handled.header.api_key is ApiKey.API_VERSIONS or random.random() >= self.trouble:
            return Fate(delay_ms=random.choice([0, 0, 1, 10, 100]))
        return random.choice(
            [
                Fate(delay_ms=random.randint(1, 600)),
                Fate(lose_request=True),
                Fate(lose_response=True, delay_ms=random.randint(0, 50)),
            ]
        )

    def step(self) -> None:
        random = self.random
        dice = random.random()
        if dice < 0.5:
            for _ in range(random.randint(1, 4)):
                self.send()
        elif dice < 0.5 + self.trouble * 0.2:
            self.disturb()
        elif self.crashes and dice > 0.9:
            self.cluster.crash(random.randint(1, self.nodes))
        self.producer.sender.run_once()

    def send(self) -> None:
        random = self.random
        if self.producer.metadata.snapshot.partition_count("t") is None:
            return  # starting again from the bootstrap servers: a send would wait, and there is no thread to end that
        if self.producer.accumulator.pool.available_memory() < 500:
            return  # for the same reason
        value = b"%06d" % len(self.sent) + b"x" * random.choice([0, 10, 100])
        keyed = random.random() < 0.5
        future = self.producer.send(
            "t",
            value,
            key=b"%d" % random.randrange(5) if keyed else None,
            partition=random.randrange(self.partitions) if random.random() < 0.3 else None,
            callback=lambda _metadata, _error: self.called_back.update([value]),
        )
        self.sent.append((value, future))

    def disturb(self) -> None:
        random, cluster = self.random, self.cluster
        what = random.randrange(5)
        node = random.randint(1, self.nodes)
        if what == 0:
            cluster.move_leader("t", random.randrange(self.partitions), to=node)
        elif what == 1 and len(cluster.down) + 1 < self.nodes:
            cluster.stop(node)
        elif what == 2 and cluster.down:
            cluster.start(random.choice(sorted(cluster.down)))
        elif what == 3:
            cluster.fail_next(ApiKey.PRODUCE, random.choice(TRANSIENT))
        else:
            cluster.break_connections(node)

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.step()
        self.cluster.fate_of = None
        for node in list(self.cluster.down):
            self.cluster.start(node)
        self.cluster.run_until(self.producer, lambda: all(future.done() for _, future in self.sent), 20_000)
        # Answers that are still under way belong to batches whose time was over.
        self.cluster.run_until(self.producer, lambda: self.producer.client.in_flight_request_count() == 0)

    def check(self) -> None:
        stored: Counter[bytes] = Counter()
        place: dict[bytes, tuple[int, int]] = {}
        for partition in range(self.partitions):
            values = [value for value in self.cluster.values("t", partition) if value is not None]
            stored.update(values)
            for offset, value in enumerate(values):
                place[value] = (partition, offset)
            numbers = [int(value[:6]) for value in values]
            assert numbers == sorted(numbers), f"partition {partition} is out of order"
        assert not [value for value, count in stored.items() if count > 1], "duplicates"
        failed = 0
        for value, future in self.sent:
            error = future.exception(0)
            assert self.called_back[value] == 1
            if error is None:
                metadata = future.result(0)
                if self.crashes and metadata.offset == -1:
                    assert place[value][0] == metadata.partition
                    self.unknown_places += 1
                else:
                    assert place[value] == (metadata.partition, metadata.offset)
            else:
                assert isinstance(error, ApiError)
                failed += 1
        if not self.short_deadline:
            assert failed == 0, "nothing but time makes a record fail"
        self.check_nothing_left()

    def check_nothing_left(self) -> None:
        accumulator = self.producer.accumulator
        assert accumulator.pool.available_memory() == accumulator.pool.total_memory
        assert not accumulator.has_incomplete
        assert not accumulator.has_undrained
        manager = self.producer.transaction_manager
        assert manager is not None
        for partition in range(self.partitions):
            assert not manager.partitions.has_in_flight_batches(TopicPartition("t", partition))


def run_schedules(seeds: range, *, crashes: bool = False) -> dict[str, Any]:
    totals: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed, crashes=crashes)
        try:
            schedule.run(turns=60)
            schedule.check()
        except Exception as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
        totals["records"] += len(schedule.sent)
        totals["failed"] += sum(future.exception(0) is not None for _, future in schedule.sent)
        totals["requests"] += len(schedule.cluster.requests(ApiKey.PRODUCE))
        totals["retried"] += int(schedule.producer.metric("record-retry-total"))
        # A record has 100 bytes or so: a batch that is larger by more has been expanded.
        totals["expanded"] += schedule.producer.metric("batch-size-max") > schedule.producer.config.batch_size + 250
        totals["asked"] += len(schedule.cluster.requests(ApiKey.DESCRIBE_PRODUCERS))
        totals["unknown places"] += schedule.unknown_places
        totals["split"] += int(schedule.producer.metric("batch-split-total"))
    return dict(totals)


@pytest.mark.mechanism("P09")
@pytest.mark.parametrize("block", range(2))
def test_every_record_once_and_in_order(block: int) -> None:
    totals = run_schedules(range(block * 50, (block + 1) * 50))
    assert totals["records"] > 2_000
    assert totals["retried"] > 200
    assert totals["expanded"] > 5
    assert totals["split"] > 5


@pytest.mark.mechanism("P09")
def test_every_record_once_although_brokers_forget() -> None:
    totals = run_schedules(range(200, 260), crashes=True)
    assert totals["asked"] > 20
    assert totals["unknown places"] > 40


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(10))
def test_every_record_once_and_in_order_at_length(block: int) -> None:
    run_schedules(range(1_000 + block * 250, 1_000 + (block + 1) * 250))
