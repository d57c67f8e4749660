"""InitProducerId without a transactional id."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.producer_ids import ProducerIdsHandler
from barnabas.common.errors import Errors
from barnabas.common.scheduler import MockScheduler
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import ALLOWED, DENIED, Action
from barnabas.server.dispatch import ApiDispatcher, handlers_of
from barnabas.server.request import Request
from controller_channel_fixtures import FakeControllerChannel
from handler_fixtures import HandlerBench


class Rights:
    """An authorizer that allows what it is told to."""

    def __init__(self, *allowed: tuple[AclOperation, ResourceType], any_topic: bool = False) -> None:
        self._allowed = allowed
        self._any_topic = any_topic
        self.logged_denials: list[Action] = []

    def authorize(self, _context: Any, actions: list[Action]) -> list[Any]:
        results = []
        for action in actions:
            allowed = (action.operation, action.resource_pattern.resource_type) in self._allowed
            if not allowed and action.log_if_denied:
                self.logged_denials.append(action)
            results.append(ALLOWED if allowed else DENIED)
        return results

    def authorize_by_resource_type(self, _context: Any, operation: AclOperation, kind: ResourceType) -> Any:
        allowed = self._any_topic and (operation, kind) == (AclOperation.WRITE, ResourceType.TOPIC)
        return ALLOWED if allowed else DENIED


class Bench(HandlerBench):
    def __init__(self, rights: Any = None) -> None:
        super().__init__()
        self.scheduler = MockScheduler(self.clock)
        self.controller = FakeControllerChannel(self.clock)
        self.ids = ProducerIdManager(1, lambda: 2, self.controller, self.scheduler, self.clock)
        self.family = ProducerIdsHandler(self.helper, AuthHelper(rights), self.ids, request_timeout_ms=5_000)
        self.dispatcher = ApiDispatcher(handlers_of(self.family), self.helper)

    def send(self, version: int = 5, **fields: Any) -> Request:
        body = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
        request = self.request(body, version)
        self.dispatcher.handle(request, self.local)
        request.release_buffer()
        return request

    def grant(self, first: int = 500) -> None:
        self.controller.take().answer(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=1000))

    def get(self, version: int = 5, **fields: Any) -> InitProducerIdResponse:
        answer: InitProducerIdResponse = self.answer(self.send(version, **fields))
        return answer


@pytest.mark.parametrize("version", range(6))
def test_a_producer_gets_an_id_and_epoch_0(version: int) -> None:
    b = Bench()
    b.ids.prefetch()
    b.grant()
    for expected in (500, 501):
        answer = b.get(version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, expected, 0)


def test_a_producer_that_continues_gets_a_new_id_too() -> None:
    b = Bench()
    b.ids.prefetch()
    b.grant()
    assert b.get(producer_id=7, producer_epoch=3).producer_id == 500


def test_without_an_id_at_hand_the_response_waits_for_the_next_block() -> None:
    b = Bench()
    first, second = b.send(), b.send()
    assert not b.is_answered(first)
    b.grant()
    assert [b.answer(request).producer_id for request in (first, second)] == [500, 501]


def test_a_response_that_would_wait_too_long_sends_the_producer_away() -> None:
    b = Bench()
    request = b.send()
    b.scheduler.advance(4_999)
    assert not b.is_answered(request)
    b.scheduler.advance(1)
    answer = b.answer(request)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        -1,
        -1,
    )


@pytest.mark.parametrize("fields", [{"producer_id": 7}, {"producer_epoch": 0}])
def test_an_id_without_an_epoch_or_the_other_way_round_is_invalid(fields: dict[str, int]) -> None:
    b = Bench()
    assert b.get(3, **fields).error_code == Errors.INVALID_REQUEST
    assert not b.controller.sent


@pytest.mark.parametrize(
    ("transactional_id", "error"), [("tx", Errors.COORDINATOR_NOT_AVAILABLE), ("", Errors.INVALID_REQUEST)]
)
def test_transactions_have_no_coordinator_here(transactional_id: str, error: Errors) -> None:
    assert Bench().get(transactional_id=transactional_id).error_code == error


@pytest.mark.mechanism("R04")
@pytest.mark.parametrize(
    ("rights", "allowed"),
    [
        (Rights(), False),
        (Rights((AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)), True),
        (Rights(any_topic=True), True),
        (Rights((AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)), False),
    ],
    ids=["none", "idempotent write", "write to any topic", "another"],
)
def test_an_idempotent_producer_needs_a_right(rights: Rights, allowed: bool) -> None:
    b = Bench(rights)
    b.ids.prefetch()
    b.grant()
    assert b.get().error_code == (Errors.NONE if allowed else Errors.CLUSTER_AUTHORIZATION_FAILED)
    assert not rights.logged_denials, "that it lacks the first right of two says nothing"


@pytest.mark.mechanism("R04")
def test_a_transactional_producer_needs_another() -> None:
    b = Bench(Rights((AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)))
    assert b.get(transactional_id="tx").error_code == Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
