"""From an API key to its handler, and the one funnel for everything that goes wrong."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from barnabas.common.errors import Errors, GroupAuthorizationError, NotCoordinatorError
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.server.dispatch import ApiDispatcher, FamilyOnDemand, handlers_of
from barnabas.server.request import NOT_SET, Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from handler_fixtures import HandlerBench


class Family:
    """Two handlers: one that answers itself, one that promises to."""

    def __init__(self, bench: HandlerBench) -> None:
        self.bench = bench
        self.error: BaseException | None = None
        self.future: Future[Any] = Future()

    def heartbeat(self, request: Request, local: RequestLocal) -> None:
        assert local is self.bench.local
        if self.error is not None:
            raise self.error
        self.bench.channel.send_response(request, HeartbeatResponse())

    def leave_group(self, request: Request, local: RequestLocal) -> Future[Any]:
        assert request.body is not None, "the buffer is released when this returns"
        return self.future


@pytest.fixture
def bench() -> HandlerBench:
    return HandlerBench()


@pytest.fixture
def family(bench: HandlerBench) -> Family:
    return Family(bench)


@pytest.mark.mechanism("R01")
def test_the_table_is_made_from_the_marks(bench: HandlerBench, family: Family) -> None:
    table = handlers_of(family)
    assert table == {ApiKey.HEARTBEAT: family.heartbeat, ApiKey.LEAVE_GROUP: family.leave_group}
    apis = ApiDispatcher(table, bench.helper, inline_apis=[ApiKey.HEARTBEAT, ApiKey.FETCH])
    assert apis.apis == {ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP}
    assert apis.inline_apis == {ApiKey.HEARTBEAT}, "what is not handled at all is not handled inline"


@pytest.mark.mechanism("R01")
def test_one_api_has_one_handler(family: Family) -> None:
    class Another:
        def heartbeat(self, request: Request, local: RequestLocal) -> None: ...

    with pytest.raises(ValueError, match="Heartbeat has two handlers"):
        handlers_of(family, Another())


@pytest.mark.mechanism("R01")
def test_a_request_goes_to_its_handler(bench: HandlerBench, family: Family) -> None:
    apis = ApiDispatcher(handlers_of(family), bench.helper)
    request = bench.request(HeartbeatRequest(), 4)
    apis.handle(request, bench.local)
    assert bench.answer(request) == HeartbeatResponse()


@pytest.mark.mechanism("R01")
@pytest.mark.mechanism("R12")
@pytest.mark.parametrize(
    ("error", "code"),
    [(NotCoordinatorError("moved"), Errors.NOT_COORDINATOR), (KeyError("bug"), Errors.UNKNOWN_SERVER_ERROR)],
)
def test_what_a_handler_raises_is_its_response(
    bench: HandlerBench, family: Family, error: Exception, code: Errors, caplog: pytest.LogCaptureFixture
) -> None:
    family.error = error
    apis = ApiDispatcher(handlers_of(family), bench.helper)
    request = bench.request(HeartbeatRequest(), 4)
    with caplog.at_level(logging.ERROR):
        apis.handle(request, bench.local)
    assert bench.answer(request).error_code == code
    assert bool(caplog.records) == (code is Errors.UNKNOWN_SERVER_ERROR), "a bug leaves a stack trace, a refusal none"


@pytest.mark.mechanism("R01")
@pytest.mark.mechanism("R12")
def test_what_a_future_fails_with_is_its_response(bench: HandlerBench, family: Family) -> None:
    apis = ApiDispatcher(handlers_of(family), bench.helper)
    request = bench.request(LeaveGroupRequest(), 2)
    apis.handle(request, bench.local)
    assert not bench.is_answered(request)
    family.future.set_exception(GroupAuthorizationError("no"))
    assert bench.answer(request).error_code == Errors.GROUP_AUTHORIZATION_FAILED


@pytest.mark.mechanism("R12")
def test_a_failure_after_the_response_is_only_logged(
    bench: HandlerBench, family: Family, caplog: pytest.LogCaptureFixture
) -> None:
    apis = ApiDispatcher(handlers_of(family), bench.helper)
    request = bench.request(LeaveGroupRequest(), 2)
    apis.handle(request, bench.local)
    bench.channel.send_no_op_response(request)
    family.future.set_exception(RuntimeError("late"))
    assert len(bench.responses(request)) == 1
    assert "failed after its response" in caplog.text


@pytest.mark.mechanism("R02")
@pytest.mark.parametrize("error", [None, RuntimeError("bug")], ids=["answered", "failed"])
def test_deferred_actions_run_after_the_handler_whatever_became_of_it(
    bench: HandlerBench, family: Family, error: BaseException | None
) -> None:
    drained: list[bool] = []
    request = bench.request(HeartbeatRequest(), 4)
    family.error = error
    apis = ApiDispatcher(
        handlers_of(family), bench.helper, drain_actions=lambda: drained.append(bench.is_answered(request))
    )
    apis.handle(request, bench.local)
    assert drained == [True]
    apis.try_complete_actions()
    assert len(drained) == 2


@pytest.mark.mechanism("R02")
def test_the_local_part_ends_when_the_handler_does(bench: HandlerBench, family: Family) -> None:
    request = bench.request(HeartbeatRequest(), 4)
    ApiDispatcher(handlers_of(family), bench.helper).handle(request, bench.local)
    assert request.api_local_complete_time_ns != NOT_SET


def test_a_fatal_error_ends_the_process(bench: HandlerBench, family: Family) -> None:
    family.error = FatalExitError(3)
    codes: list[int] = []
    helper = RequestHandlerHelper(bench.channel, bench.clock, exit_procedure=codes.append)
    ApiDispatcher(handlers_of(family), helper).handle(bench.request(HeartbeatRequest(), 4), bench.local)
    assert codes == [3]


def test_a_family_on_demand_is_made_by_its_first_request(bench: HandlerBench, family: Family) -> None:
    made: list[Family] = []

    def make() -> Family:
        made.append(family)
        return family

    on_demand = FamilyOnDemand([ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP], make)
    apis = ApiDispatcher({}, bench.helper, on_demand=[on_demand], inline_apis=[ApiKey.HEARTBEAT])
    assert apis.apis == {ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP}
    assert apis.inline_apis == {ApiKey.HEARTBEAT}
    assert made == []
    for _ in range(2):
        request = bench.request(HeartbeatRequest(), 4)
        apis.handle(request, bench.local)
        assert bench.is_answered(request)
    assert made == [family]
    assert apis._handlers == handlers_of(family), "no detour from the second request on"


def test_families_on_demand_can_be_made_beforehand(bench: HandlerBench, family: Family) -> None:
    apis = ApiDispatcher(
        {}, bench.helper, on_demand=[FamilyOnDemand([ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP], lambda: family)]
    )
    (step,) = apis.loading()
    step()
    assert apis._handlers == handlers_of(family)


def test_a_family_on_demand_has_what_it_promised(bench: HandlerBench, family: Family) -> None:
    with pytest.raises(ValueError, match="was to have"):
        FamilyOnDemand([ApiKey.HEARTBEAT], lambda: family).handlers()
    with pytest.raises(ValueError, match="two handlers"):
        ApiDispatcher(handlers_of(family), bench.helper, on_demand=[FamilyOnDemand([ApiKey.HEARTBEAT], lambda: family)])


def test_a_family_that_cannot_be_made_is_an_error_of_its_requests(bench: HandlerBench, family: Family) -> None:
    attempts = iter([ImportError("gone"), None])

    def make() -> Family:
        error = next(attempts)
        if error is not None:
            raise error
        return family

    apis = ApiDispatcher({}, bench.helper, on_demand=[FamilyOnDemand([ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP], make)])
    for expected in (Errors.UNKNOWN_SERVER_ERROR, Errors.NONE):
        request = bench.request(HeartbeatRequest(), 4)
        apis.handle(request, bench.local)
        answer = bench.answer(request)
        assert isinstance(answer, HeartbeatResponse)
        assert answer.error_code == expected


def test_threads_that_want_the_same_family_make_it_once(family: Family) -> None:
    made: list[Family] = []
    barrier = threading.Barrier(8)

    def make() -> Family:
        made.append(family)
        return family

    on_demand = FamilyOnDemand([ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP], make)

    def ask() -> None:
        barrier.wait()
        on_demand.handlers()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [family]
