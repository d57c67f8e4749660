"""Many callers, one event thread, and a log that is committed by somebody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.errors import NotControllerError
from barnabas.controller.config import ControllerConfig
from barnabas.controller.quorum_controller import QuorumController
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from local_raft_client import LocalRaftClient
from unit.controller.harness import (
    CLUSTER_ID,
    CONTEXT,
    NODE,
    Harness,
    directory,
    hard_state,
    incarnation,
    supported_features,
    topic,
)

WAIT_S = 60
CALLERS = 4
CALLS = 25


@contextmanager
def running(raft: LocalRaftClient) -> Iterator[tuple[QuorumController, int]]:
    """A controller with its thread, and the epoch of the one broker there is."""
    controller = QuorumController(ControllerConfig(NODE, CLUSTER_ID, max_idle_interval_ms=5), raft, clock=SYSTEM_CLOCK)
    controller.start()
    try:
        raft.start()
        registration = controller.register_broker(
            CONTEXT,
            BrokerRegistrationRequest(
                broker_id=1,
                cluster_id=CLUSTER_ID,
                incarnation_id=incarnation(1),
                features=supported_features(),
                rack=None,
                log_dirs=[directory(1)],
            ),
        )
        epoch = registration.result(WAIT_S).broker_epoch
        heartbeat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch)
        assert not controller.process_broker_heartbeat(CONTEXT, heartbeat).result(WAIT_S).is_fenced
        yield controller, epoch
    finally:
        controller.close()


@contextmanager
def committing(raft: LocalRaftClient) -> Iterator[None]:
    """Commits from a thread of its own, as a quorum would."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(0.001):
            raft.commit()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def in_parallel(work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - reported below, on the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_callers_on_many_threads_get_each_their_own_response() -> None:
    raft = LocalRaftClient(NODE, auto_commit=False)
    threads: set[str] = set()
    starts: list[int] = []
    with committing(raft), running(raft) as (controller, epoch):

        def work(number: int) -> None:
            for turn in range(CALLS):
                name = f"t-{number}-{turn}"
                future = controller.create_topics(CONTEXT, CreateTopicsRequest(topics=[topic(name, 3)]))
                future.add_done_callback(lambda _: threads.add(threading.current_thread().name))
                ids = controller.allocate_producer_ids(
                    CONTEXT, AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
                )
                (made,) = future.result(WAIT_S).topics
                assert (made.name, made.error_code) == (name, 0)
                found = controller.find_topic_ids(CONTEXT, [name]).result(WAIT_S)
                assert found == {name: made.topic_id}  # committed, as it was answered
                starts.append(ids.result(WAIT_S).producer_id_start)

        in_parallel(work)
    assert "quorum-controller-1-event-handler" in threads
    assert sorted(starts) == [1000 * number for number in range(CALLERS * CALLS)]
    again = Harness(log=raft.log, start=False)
    again.raft.start()
    again.step()
    assert hard_state(controller.managers) == again.state()
    assert len(again.managers.replication.topic_ids) == CALLERS * CALLS


def test_the_same_topic_is_made_once_however_many_ask() -> None:
    raft = LocalRaftClient(NODE)
    codes: list[int] = []
    with running(raft) as (controller, _):

        def work(_number: int) -> None:
            for turn in range(CALLS):
                request = CreateTopicsRequest(topics=[topic(f"t-{turn}", 1)])
                codes.append(controller.create_topics(CONTEXT, request).result(WAIT_S).topics[0].error_code)

        in_parallel(work)
    assert sorted(codes) == [0] * CALLS + [36] * (CALLS * (CALLERS - 1))


def test_changes_of_leadership_under_load_complete_every_request_and_lose_nothing_acknowledged() -> None:
    raft = LocalRaftClient(NODE, auto_commit=False)
    answered: set[str] = set()
    refused = 0
    lock = threading.Lock()
    with committing(raft), running(raft) as (controller, _):
        done = threading.Event()

        def shake() -> None:
            while not done.wait(0.003):
                raft.elect(2)
                raft.elect(NODE)

        shaker = threading.Thread(target=shake)
        shaker.start()

        def work(number: int) -> None:
            nonlocal refused
            futures: list[tuple[str, Future[Any]]] = []
            for turn in range(CALLS):
                name = f"t-{number}-{turn}"
                request = CreateTopicsRequest(topics=[topic(name, 2)])
                futures.append((name, controller.create_topics(CONTEXT, request)))
            for name, future in futures:
                error = future.exception(WAIT_S)
                with lock:
                    if error is None:
                        answered.add(name)
                    else:
                        assert isinstance(error, NotControllerError)
                        refused += 1

        try:
            in_parallel(work)
        finally:
            done.set()
            shaker.join()
    assert len(answered) + refused == CALLERS * CALLS
    again = Harness(log=raft.log, start=False)
    again.raft.start()
    again.step()
    assert answered <= set(again.managers.replication.topic_ids)


def test_closing_while_requests_come_in_completes_all_of_them() -> None:
    raft = LocalRaftClient(NODE)
    futures: list[Future[Any]] = []
    with running(raft) as (controller, _):
        barrier = threading.Barrier(CALLERS + 1)

        def work(number: int) -> None:
            barrier.wait(WAIT_S)
            for turn in range(CALLS):
                request = CreateTopicsRequest(topics=[topic(f"t-{number}-{turn}", 1)])
                futures.append(controller.create_topics(CONTEXT, request))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(CALLERS)]
        for thread in threads:
            thread.start()
        barrier.wait(WAIT_S)
        controller.close()
        for thread in threads:
            thread.join()
    assert len(futures) == CALLERS * CALLS
    assert all(future.done() for future in futures)
