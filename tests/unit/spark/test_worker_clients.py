"""A worker process keeps its client between tasks, and closes it when no task comes (S13)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from barnabas.common.clock import MockClock
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.worker_clients import WorkerClients

pytestmark = pytest.mark.mechanism("S13")

SETTINGS = ClientSettings.of({"kafka.bootstrap.servers": "one:1", "kafka.connections.max.idle.ms": "1000"})


@dataclass
class Client:
    settings: ClientSettings
    is_idle: bool = True
    is_closed: bool = False

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


@dataclass
class Timer:
    """A timer that the test lets run out."""

    seconds: float
    call: Callable[[], None]
    daemon: bool = False

    def start(self) -> None:
        assert self.daemon  # a worker ends without waiting for it


@dataclass
class Worker:
    clock: MockClock = field(default_factory=MockClock)
    made: list[Client] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clients = WorkerClients(self._client, clock=self.clock, new_timer=self._timer)

    def _client(self, settings: ClientSettings) -> ClusterClient:
        self.made.append(Client(settings))
        return cast("ClusterClient", self.made[-1])

    def _timer(self, seconds: float, call: Callable[[], None]) -> threading.Timer:
        self.timers.append(Timer(seconds, call))
        return cast("threading.Timer", self.timers[-1])

    def run_task(self, settings: ClientSettings = SETTINGS) -> ClusterClient:
        with self.clients.client(settings) as client:
            return client

    def closed(self) -> list[bool]:
        return [client.is_closed for client in self.made]


def test_the_next_task_finds_the_client() -> None:
    worker = Worker()
    assert worker.run_task() is worker.run_task()
    assert len(worker.made) == 1
    other = ClientSettings.of({"kafka.bootstrap.servers": "two:1"})
    assert worker.run_task(other) is not worker.run_task()
    assert len(worker.made) == 2


def test_a_client_that_no_task_uses_is_closed() -> None:
    worker = Worker()
    worker.run_task()
    assert [timer.seconds for timer in worker.timers] == [1.0]
    worker.clock.advance(600)
    worker.run_task()
    assert len(worker.timers) == 1
    worker.clock.advance(400)
    worker.timers[0].call()  # it was used 400 ms ago
    assert worker.closed() == [False]
    assert [timer.seconds for timer in worker.timers] == [1.0, 0.6]
    worker.clock.advance(600)
    worker.timers[1].call()
    assert worker.closed() == [True]
    assert len(worker.timers) == 2
    worker.run_task()
    assert len(worker.made) == 2


def test_a_client_in_use_is_not_closed() -> None:
    worker = Worker()
    worker.run_task()
    with worker.clients.client(SETTINGS):
        worker.clock.advance(5000)
        worker.timers[0].call()
        assert worker.closed() == [False]


def test_a_client_with_a_request_in_flight_is_not_kept() -> None:
    worker = Worker()
    with worker.clients.client(SETTINGS):
        worker.made[0].is_idle = False
    with pytest.raises(RuntimeError), worker.clients.client(SETTINGS):
        raise RuntimeError
    assert worker.closed() == [True, True]
    assert worker.timers == []
