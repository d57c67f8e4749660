"""DeleteTopics: by id, by name, and what is refused."""

from __future__ import annotations

import pytest

from barnabas.common.errors import Errors, ThrottlingQuotaExceededError
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.metadata.configs import ConfigResource
from barnabas.protocol.internal.metadata import RemoveTopicRecord
from barnabas.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from unit.controller.harness import CONTEXT, Harness, UuidSource

UNKNOWN = UuidSource(99)()


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.add_brokers(1, 2)
    for name in ("a", "b"):
        made.create(name, 3, 2, configs={"min.insync.replicas": "2"})
    made.mark()
    return made


def delete(
    harness: Harness,
    *states: DeleteTopicState,
    names: tuple[str, ...] = (),
    context: ControllerRequestContext = CONTEXT,
) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=list(states), topic_names=list(names))
    return harness.result(harness.controller.delete_topics(context, request)).responses


def by_id(topic_id: Uuid) -> DeleteTopicState:
    return DeleteTopicState(topic_id=topic_id)


def by_name(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)


def test_a_topic_goes_with_all_that_belongs_to_it(harness: Harness) -> None:
    topic_id = harness.topic_id("a")
    (result,) = delete(harness, by_id(topic_id))
    assert (result.name, result.topic_id, result.error_code, result.error_message) == ("a", topic_id, 0, None)
    assert harness.written() == [RemoveTopicRecord(topic_id=topic_id)]
    assert harness.managers.configs.settings(ConfigResource.topic("a")) == {}
    left = harness.topic_id("b")
    state = harness.state()
    for index in ("leaders", "isr", "directories"):
        assert {key.topic_id for keys in state[index].values() for key in keys} == {left}
    delete(harness, by_id(left))
    empty = harness.state()
    assert not any(empty[part] for part in ("topics", "names", "leaders", "isr", "elr", "directories", "imbalanced"))


def test_a_topic_can_be_named_by_name(harness: Harness) -> None:
    topic_id = harness.topic_id("a")
    (result,) = delete(harness, by_name("a"))
    assert (result.name, result.topic_id, result.error_code) == ("a", topic_id, 0)
    (old_style,) = delete(harness, names=("b",))
    assert (old_style.name, old_style.error_code) == ("b", 0)


def test_each_topic_succeeds_or_fails_by_itself(harness: Harness) -> None:
    results = delete(harness, by_name("nope"), by_id(UNKNOWN), by_name("a"), DeleteTopicState())
    assert [(r.name, r.topic_id == ZERO_UUID, r.error_code) for r in results] == [
        ("nope", True, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        (None, False, Errors.UNKNOWN_TOPIC_ID),
        ("a", False, 0),
        (None, True, Errors.INVALID_REQUEST),
    ]


def test_a_topic_named_twice_is_not_deleted(harness: Harness) -> None:
    topic_id = harness.topic_id("a")
    results = delete(harness, by_name("a"), by_id(topic_id))
    assert [r.error_code for r in results] == [Errors.INVALID_REQUEST]
    results = delete(harness, names=("a", "a", "nope", "nope"))
    assert [(r.name, r.error_code) for r in results] == [
        ("a", Errors.INVALID_REQUEST),
        ("nope", Errors.INVALID_REQUEST),
    ]
    both = DeleteTopicState(name="a", topic_id=topic_id)
    assert [r.error_code for r in delete(harness, both)] == [Errors.INVALID_REQUEST]
    assert harness.written() == []


def test_partitions_that_go_are_paid_for(harness: Harness) -> None:
    asked: list[int] = []

    def quota(partitions: int) -> None:
        asked.append(partitions)
        if len(asked) > 1:
            raise ThrottlingQuotaExceededError

    context = ControllerRequestContext(partition_change_quota=quota)
    results = delete(harness, by_name("a"), by_name("b"), context=context)
    assert [r.error_code for r in results] == [0, Errors.THROTTLING_QUOTA_EXCEEDED]
    assert asked == [3, 3]
    assert list(harness.managers.replication.topic_ids) == ["b"]


def test_a_new_topic_under_an_old_name_is_another_topic(harness: Harness) -> None:
    old = harness.topic_id("a")
    delete(harness, by_id(old))
    harness.create("a", 1, 1)
    assert harness.topic_id("a") != old
    assert [r.error_code for r in delete(harness, by_id(old))] == [Errors.UNKNOWN_TOPIC_ID]
    assert harness.managers.configs.settings(ConfigResource.topic("a")) == {}
