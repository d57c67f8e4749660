"""Where the I/O thread of a producer runs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from barnabas.clients.producer import KafkaProducer
from barnabas.clients.producer.internals.core_sharing import CORES, CoreSharing
from barnabas.embedded import EmbeddedBroker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says where a thread is")

SECONDS = 30


def in_a_thread(work: Callable[[], Any]) -> Any:
    """What is bound there is gone with it."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(SECONDS)
    return found[0]


def test_it_follows_and_lets_go() -> None:
    allowed = os.sched_getaffinity(0)

    def work() -> list[Any]:
        where = [max(allowed)]
        sharing = CoreSharing(allowed, lambda: where[0])
        sharing.follow()
        seen = [(sharing.is_bound, os.sched_getaffinity(0))]
        for core in (max(allowed), min(allowed)):
            where[0] = core
            sharing.fills_here()
            seen.append((sharing.is_bound, os.sched_getaffinity(0)))
            sharing.follow()
            seen.append((sharing.is_bound, os.sched_getaffinity(0)))
        sharing.let_go()
        sharing.follow()
        return [*seen, (sharing.is_bound, os.sched_getaffinity(0))]

    high, low = {max(allowed)}, {min(allowed)}
    assert in_a_thread(work) == [
        (False, allowed),
        (False, allowed),
        (True, high),
        (True, high),
        (True, low),
        (False, allowed),
    ]


def test_a_core_that_is_not_ours() -> None:
    allowed = os.sched_getaffinity(0)

    def work() -> tuple[bool, set[int]]:
        sharing = CoreSharing(allowed, lambda: 1_000)
        sharing.fills_here()
        sharing.follow()
        sharing.let_go()
        return sharing.is_bound, os.sched_getaffinity(0)

    assert in_a_thread(work) == (False, allowed)


@pytest.mark.parametrize("cores", [1, CORES, CORES + 1, 64])
def test_for_machines_with_two_cores(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert (CoreSharing.if_useful() is not None) is (cores == CORES)


def test_the_system_says_where_a_thread_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(CORES)))
    sharing = CoreSharing.if_useful()
    assert sharing is not None
    assert sharing._core() in allowed


@pytest.mark.parametrize("is_local", [True, False])
def test_a_producer_of_tables(is_local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound while a broker on this machine has batches, and free afterwards; never if the broker is elsewhere."""
    allowed = os.sched_getaffinity(0)
    made: list[CoreSharing] = []
    bound: list[set[int]] = []

    class Noting(CoreSharing):
        def follow(self) -> None:
            super().follow()
            if self.is_bound:
                bound.append(os.sched_getaffinity(0))

    def make() -> CoreSharing:
        made.append(Noting(allowed, lambda: min(allowed)))
        return made[0]

    monkeypatch.setattr(CoreSharing, "if_useful", make)
    table = pa.table({"value": pa.array([bytes(1_000)] * 3_000)})
    settings = {"local_socket_enable": is_local}
    with EmbeddedBroker() as broker, KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:  # type: ignore[arg-type]
        for _ in range(3):
            producer.send_table("rows", table).result(SECONDS)
        producer.send("rows", b"the last one").result(SECONDS)
        thread = producer._thread.native_id
        assert thread is not None
        pause = threading.Event()
        for _ in range(SECONDS * 100):
            if not made[0].is_bound:
                break
            pause.wait(0.01)
        assert os.sched_getaffinity(thread) == allowed
    assert bool(bound) is is_local
    assert all(cores == {min(allowed)} for cores in bound)
