"""Results, promises, settings, and what is read out of bytes."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from barnabas.clients.admin import (
    AdminClientConfig,
    AsyncKafkaAdminClient,
    KafkaAdminClient,
    Results,
    TopicPartition,
)
from barnabas.clients.admin.groups import read_assignment
from barnabas.clients.admin.internals.steps import Promise, Task, together
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import InvalidTopicError, TopicExistsError, UnknownTopicOrPartitionError
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)

# -- results


def test_results_are_what_succeeded() -> None:
    results = Results({"a": 1}, {"b": TopicExistsError(), "c": InvalidTopicError("bad")})
    assert dict(results) == {"a": 1}
    assert len(results) == 1
    assert "b" not in results
    assert results.get("b") is None
    assert results.get("b", 7) == 7
    with pytest.raises(TopicExistsError):
        results["b"]
    with pytest.raises(KeyError):
        results["never asked for"]
    assert results.checked(partial=True) is results
    with pytest.raises(TopicExistsError) as raised:
        results.checked()
    assert raised.value.__notes__ == ["c: InvalidTopicError: bad"]
    assert Results({"a": 1}).checked() == {"a": 1}


# -- steps


async def value_of(promise: Promise[int]) -> int:
    return await promise + 1


def test_a_task_goes_on_when_its_promise_is_kept() -> None:
    promise: Promise[int] = Promise()
    task = Task(value_of(promise))
    task.step()
    assert not task.outcome.is_done
    promise.resolve(1)
    assert task.outcome.result() == 2
    promise.resolve(5)
    assert promise.result() == 1, "the first outcome counts"


def test_several_wait_together_and_all_end_before_the_first_error_is_raised() -> None:
    promises: list[Promise[int]] = [Promise(), Promise(), Promise()]
    task = Task(together(*map(value_of, promises)))
    task.step()
    promises[1].reject(UnknownTopicOrPartitionError())
    promises[2].resolve(2)
    assert not task.outcome.is_done
    promises[0].resolve(0)
    with pytest.raises(UnknownTopicOrPartitionError):
        task.outcome.result()
    done: Promise[int] = Promise()
    done.resolve(1)
    kept = Task(together(value_of(done), value_of(done)))
    kept.step()
    assert kept.outcome.result() == [2, 2]


# -- settings


def test_settings_in_both_spellings() -> None:
    config = AdminClientConfig.of({"client.id": "ops"}, bootstrap_servers="a:1,b:2", retry_backoff_ms=5)
    assert config.client_id == "ops"
    assert config.bootstrap_servers == ("a:1", "b:2")
    assert config.retry_backoff_ms == 5
    assert config.default_api_timeout_ms == 60_000
    assert config.request_timeout_ms == 30_000
    with pytest.raises(TypeError, match="no setting linger_ms"):
        AdminClientConfig.of(bootstrap_servers="a:1", linger_ms=5)


def test_time_limits_give_way_to_each_other() -> None:
    assert AdminClientConfig.of(bootstrap_servers="a:1", default_api_timeout_ms=5_000).request_timeout_ms == 5_000
    assert AdminClientConfig.of(bootstrap_servers="a:1", request_timeout_ms=90_000).default_api_timeout_ms == 90_000
    with pytest.raises(ConfigError, match=r"no smaller than the value of request\.timeout\.ms"):
        AdminClientConfig.of(bootstrap_servers="a:1", default_api_timeout_ms=1, request_timeout_ms=2)


def test_both_clients_have_the_same_operations() -> None:
    def operations(kind: type[Any]) -> dict[str, str]:
        return {
            name: inspect.getdoc(method) or ""
            for name, method in vars(kind).items()
            if not name.startswith("_") and hasattr(method, "__wrapped__")
        }

    assert operations(KafkaAdminClient) == operations(AsyncKafkaAdminClient)
    assert len(operations(KafkaAdminClient)) >= 40
    assert all(operations(KafkaAdminClient).values()), "each is documented"
    assert list(inspect.signature(KafkaAdminClient.list_topics).parameters) == ["operation", "list_internal"]


def test_the_client_for_asyncio_closes_without_a_broker() -> None:
    async def use() -> None:
        admin = AsyncKafkaAdminClient(bootstrap_servers="127.0.0.1:1")
        assert repr(admin) == "AsyncKafkaAdminClient(127.0.0.1:1)"
        await admin.close()

    asyncio.run(use())


# -- bytes


def test_assignments_of_classic_members() -> None:
    body = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolAssignmentTopicPartition(topic="a", partitions=[0, 2])]
    )
    expected = {TopicPartition("a", 0), TopicPartition("a", 2)}
    assert read_assignment(b"\0\0" + body.encode(0)) == expected
    assert read_assignment(b"\0\3" + body.encode(3)) == expected
    assert read_assignment(b"\0\x63" + body.encode(3) + b"more") == expected, "a version that is not known yet"
    assert read_assignment(b"") == frozenset()
    assert read_assignment(b"\0\0\x7f\xff\xff\xff") == frozenset(), "not a consumer's at all"
