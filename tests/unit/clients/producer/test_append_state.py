"""A look at all queues, and what is taken out of them: the compiled functions and their twins come to the same."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest

from barnabas.clients.producer.internals import _append_state_pure
from barnabas.clients.producer.internals.append_state import scan_queues as chosen
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.inflight import FOREVER
from barnabas.records.builder import RecordBatchBuilder

try:
    from barnabas.clients.producer.internals import _fast
except ImportError:
    pytest.skip("the accelerators are not built", allow_module_level=True)

TWINS: tuple[ModuleType, ModuleType] = (_append_state_pure, _fast)
LEADERS = [("node 1", 1), ("node 2", 2), ("node 3", 3), (None, -1)]


class Stub:
    """A builder as far as these functions look at it."""

    max_size = 100


def batch_type(twin: ModuleType) -> Any:
    core: Any = twin.BatchCore

    class Batch(core):  # type: ignore[misc]
        """A batch that writes down what happens to it."""

        def __init__(self, name: str, random: Random, builder: Any, log: list[Any]) -> None:
            super().__init__(builder, None, random.randrange(1000), random.choice([0, 100, 250, 1000]))
            self.name = name
            self.log = log
            self.attempts = random.choice([0, 0, 0, 1, 4])
            self.current_leader_epoch = random.choice([None, 5, 1000, 2000])
            self.estimated_size_in_bytes = self.size = random.choice([10, 50, 90])
            self._ready = random.random() < 0.5
            self.drained_ms = random.choice([0, 2000])

        @property
        def is_ready(self) -> bool:
            builder = self.builder
            if isinstance(builder, Stub):
                return self._ready
            return not builder.is_open or (builder.record_count > 0 and builder.estimated_size >= self.ready_size)

        def maybe_update_leader_epoch(self, latest: int | None) -> None:
            if latest is not None and (self.current_leader_epoch is None or self.current_leader_epoch < latest):
                self.current_leader_epoch = latest

        def close(self) -> bytes:
            self.log.append(("close", self.name))
            return bytes(self.size)

    return Batch


def builder_of(random: Random) -> Any:
    kind = random.randrange(5)
    if kind < 2:
        return Stub()
    builder = RecordBatchBuilder(max_size=100)
    for _ in range(random.choice([0, 1, 2])):
        builder.append(1, None, b"x" * random.choice([1, 25]))
    if kind == 2:
        builder.close_for_appends()
    return builder


class World:
    """Queues of one topic, made of the classes of a twin; with the same seed, the same for both."""

    def __init__(self, twin: ModuleType, seed: int) -> None:
        random = Random(seed)
        self.twin = twin
        self.log: list[Any] = []
        self.random = random
        batch = batch_type(twin)
        self.queues: list[Any] = []
        for partition in range(random.choice([0, 1, 3, 6, 6, 12])):
            queue = twin.PartitionQueue(TopicPartition("t", partition))
            for number in range(random.choice([0, 0, 1, 1, 1, 2, 5])):
                queue.batches.append(batch(f"{partition}.{number}", random, builder_of(random), self.log))
            queue.muted = random.random() < 0.15
            self.queues.append(queue)

    def epoch(self) -> int | None:
        return self.random.choice([None, 5, 1000, 1500])

    def state(self) -> list[Any]:
        return [
            [(batch.name, batch.current_leader_epoch, batch.attempts, batch.drained_ms) for batch in queue.batches]
            for queue in self.queues
        ]

    def postponed(self, batch: Any, due: bool, now: int) -> int:
        self.log.append(("postponed", batch.name, due, now))
        return self.random.choice([-1, 0, 3, 70])

    def scan(self) -> list[Any]:
        random = self.random
        rows = [(queue, *random.choice(LEADERS), self.epoch()) for queue in self.queues]
        nodes: dict[int, Any] = {}
        sizes: list[int] = []
        result = self.twin.scan_queues(
            rows, nodes, sizes, random.random() < 0.3, random.choice([0, 100]), 7, self.postponed
        )
        return [result, list(nodes.items()), sizes, self.state(), self.log]

    def prepare(self, batch: Any) -> bool:
        self.log.append(("prepare", batch.name))
        return self.random.random() < 0.8

    def backs_off(self, batch: Any, now: int) -> bool:
        self.log.append(("backs off", batch.name, now))
        return self.random.random() < 0.5

    def take(self) -> list[Any]:
        random = self.random
        rows = [None if random.random() < 0.1 else (queue, self.epoch()) for queue in self.queues]
        index = random.randrange(len(rows)) if rows else 0
        ready, index = self.twin.take_batches(
            rows, index, random.choice([1, 60, 150, 10_000]), 1500, self.prepare, self.backs_off
        )
        return [[(batch.name, batch.drained_ms) for batch in ready], index, self.state(), self.log]


def test_the_compiled_one_is_used_unless_told_otherwise() -> None:
    assert chosen in {twin.scan_queues for twin in TWINS}


@pytest.mark.parametrize("seed", range(300))
def test_both_find_the_same(seed: int) -> None:
    pure, compiled = [World(twin, seed) for twin in TWINS]
    assert pure.scan() == compiled.scan()
    assert pure.take() == compiled.take()
    assert pure.scan() == compiled.scan()


def test_nothing_waits() -> None:
    for twin in TWINS:
        assert twin.scan_queues([], {}, [], False, 0, 0, None) == (FOREVER, FOREVER, False)
        assert twin.take_batches([], 0, 10, 0, None, None) == ([], 0)


@pytest.mark.parametrize("twin", TWINS)
def test_locks_are_given_back_whatever_happens(twin: ModuleType) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    for seed in range(30):
        world = World(twin, seed)
        for queue in world.queues:
            for batch in queue.batches:
                batch.attempts = 1
        if any(queue.batches and not queue.muted for queue in world.queues):
            with pytest.raises(ZeroDivisionError):
                twin.take_batches([(queue, 5) for queue in world.queues], 0, 10, 0, fail, fail)
        assert not any(queue.lock.locked() for queue in world.queues)


def test_the_table_of_loads() -> None:
    random = Random(1)
    for _ in range(200):
        sizes = [random.choice([0, 1, 7, 2**40]) for _ in range(random.randint(1, 9))]
        table = _append_state_pure.load_table(sizes)
        assert _fast.load_table(sizes) == _fast.load_table(tuple(sizes)) == table
        assert table[-1] == sum(max(sizes) + 1 - size for size in sizes)
