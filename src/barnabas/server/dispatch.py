"""The dispatcher: finds the handler of an API key and calls it (R01).

Handlers are grouped in *families*, small classes that hold the dependencies of their APIs. The handler of an API is
the method with the API's name, so registering a family registers its handlers:

    class ClusterHandler:
        def describe_cluster(self, request: Request, local: RequestLocal) -> None: ...

    apis = ApiDispatcher(handlers_of(ClusterHandler(...), ProduceHandler(...)), helper)

A family may also be created *on demand*, by its first request or by a step of `ApiDispatcher.loading`. Its modules are
imported then, so the broker starts without them. `FamilyOnDemand` lists the APIs of such a family.

There are two styles. A handler sends the response itself, now or from a callback, and returns None; or it returns a
future of the work that will send it. All errors, raised or set on the future, end in
`RequestHandlerHelper.handle_error`, which sends an error response or closes the connection.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from barnabas._kernels import memory
from barnabas.common.clock import Clock
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.placement import Placement, anywhere
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.protocol.api_keys import ApiKey
from barnabas.server.request import NOT_SET, Request
from barnabas.server.request_channel import CallbackRequest, RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

log = LimitedLogger(logging.getLogger(__name__))

_GIVE_BACK_NS: Final = 5_000_000_000
"""Free memory is returned to the system so rarely because no thread can allocate meanwhile: 5 ms for 100 MB."""
LIGHT_BYTES: Final = 4096
"""The size up to which a request is light, unless its API has its own limit: a few hundred entries."""

Handler = Callable[[Request, RequestLocal], Future[Any] | None]
_Method = TypeVar("_Method", bound=Callable[..., Future[Any] | None])
_HANDLES = "_handles"
_BY_METHOD_NAME: Final = {api_key.name.lower(): (api_key,) for api_key in ApiKey}


def handles(*api_keys: ApiKey) -> Callable[[_Method], _Method]:
    """Marks a method that handles several APIs, or an API with another name."""

    def mark(method: _Method) -> _Method:
        setattr(method, _HANDLES, api_keys)
        return method

    return mark


def handlers_of(*families: object) -> dict[ApiKey, Handler]:
    """Returns the handlers of the families by API; ValueError if an API has two handlers."""
    table: dict[ApiKey, Handler] = {}
    for family in families:
        for cls in type(family).__mro__:
            for name, member in vars(cls).items():
                for api_key in getattr(member, _HANDLES, _BY_METHOD_NAME.get(name, ())):
                    handler = getattr(family, name)
                    if table.setdefault(api_key, handler) != handler:
                        raise ValueError(f"{api_key.title} has two handlers: {table[api_key]} and {handler}")
    return table


class FamilyOnDemand:
    """A family that is imported and created on first use. Its APIs are declared in advance."""

    def __init__(self, api_keys: Collection[ApiKey], make: Callable[[], object]) -> None:
        self.api_keys = frozenset(api_keys)
        self._make = make
        self._lock = threading.Lock()
        """Lets only one thread create the family. Only import locks are taken while it is held: creating a family
        takes no lock of the request path."""
        self._handlers: dict[ApiKey, Handler] | None = None

    def handlers(self) -> dict[ApiKey, Handler]:
        """Returns the handlers; the first call creates them."""
        with self._lock:
            if self._handlers is None:
                made = handlers_of(self._make())
                if made.keys() != self.api_keys:
                    raise ValueError(f"a family with handlers of {sorted(made)} was to have {sorted(self.api_keys)}")
                self._handlers = made
            return self._handlers


def _nothing() -> None:
    """No actions to drain."""


class ApiDispatcher:
    """Calls the handler of a request and makes sure that the request ends.

    `drain_actions` runs the actions that the request has deferred: for example, a produce that advanced a high
    watermark completes the fetches that wait for it. It runs after the handler, even if that failed, and so outside
    all locks that the handler held (R02).
    """

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        helper: RequestHandlerHelper,
        *,
        on_demand: Sequence[FamilyOnDemand] = (),
        inline_apis: Collection[ApiKey] = (),
        light_bytes: Mapping[ApiKey, int] | None = None,
        drain_actions: Callable[[], object] = _nothing,
    ) -> None:
        self._handlers = dict(handlers)
        self._on_demand = tuple(on_demand)
        for family in on_demand:
            for api_key in family.api_keys:
                if api_key in self._handlers:
                    raise ValueError(f"{api_key.title} has two handlers")
                self._handlers[api_key] = partial(self._make_and_handle, family)
        self.helper = helper
        self._now = helper.now_ns
        self.try_complete_actions = drain_actions
        """Runs the actions that requests have deferred."""
        self.inline_apis = frozenset(inline_apis) & self._handlers.keys()
        self.light_bytes = {} if light_bytes is None else dict(light_bytes)
        """The light size of APIs for which it is not ``LIGHT_BYTES``."""

    @property
    def apis(self) -> frozenset[ApiKey]:
        """The APIs that have a handler. No other API may be advertised."""
        return frozenset(self._handlers)

    def handle(self, request: Request, request_local: RequestLocal) -> None:
        """Calls the handler of a request on this thread, which survives all errors; the buffer is always released."""
        outer = request_local.request  # the Envelope that a forwarded request came in
        now = self._now
        if outer is None:
            request.request_dequeue_time_ns = now()
        request_local.request = request
        try:
            try:
                # The processor has checked that this listener serves the API, so a KeyError is a bug here.
                future = self._handlers[request.api_key](request, request_local)
                if future is not None:
                    future.add_done_callback(lambda done: self._on_done(request, done))
            except (Exception, FatalExitError) as error:  # noqa: BLE001 - the funnel
                self.helper.handle_error(request, error)
            finally:
                self.try_complete_actions()
        except Exception as error:  # noqa: BLE001 - the last resort
            self.helper.close_after(request, error)
        finally:
            if request_local.request is request:  # otherwise it was handed over and belongs to another thread
                request_local.request = outer
                request.handler_done(now)

    def _make_and_handle(
        self, family: FamilyOnDemand, request: Request, request_local: RequestLocal
    ) -> Future[Any] | None:
        """Handles the first request of a family. It puts the family's handlers into the table for later requests."""
        handlers = family.handlers()
        self._handlers.update(handlers)
        return handlers[request.api_key](request, request_local)

    def loading(self) -> list[Callable[[], None]]:
        """Returns steps that create the on-demand families, in the given order."""

        def load(family: FamilyOnDemand) -> None:
            self._handlers.update(family.handlers())

        return [partial(load, family) for family in self._on_demand]

    def _on_done(self, request: Request, future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self.helper.handle_error(request, error)


class RequestRunner:
    """What the threads that handle requests share: network threads that handle them inline, and the handler pool."""

    def __init__(
        self,
        apis: ApiDispatcher,
        channel: RequestChannel,
        clock: Clock,
        placement: Placement = anywhere,
    ) -> None:
        self.apis = apis
        self.channel = channel
        self.run = apis.handle
        self._now = clock.nanoseconds
        self._gave_back_ns = NOT_SET
        self.placement = placement
        """Each thread that handles requests calls this when it starts."""

    def new_local(self, *, inline: bool = False) -> RequestLocal:
        """Makes the RequestLocal of the calling thread; ``inline`` if that is a network thread."""
        return RequestLocal(self.channel.send_callback, self.channel.send_bulk if inline else None)

    def run_bulk(self, request: Request, local: RequestLocal) -> None:
        """Runs the handler for a bulk request, then returns freed memory to the operating system."""
        try:
            self.run(request, local)
        finally:
            self.channel.finish_bulk()
            if request.terminal:
                request.forget_entries()
        now = self._now()
        if now - self._gave_back_ns >= _GIVE_BACK_NS:
            self._gave_back_ns = now
            memory.trim()

    def run_callback(self, callback: CallbackRequest, local: RequestLocal) -> None:
        """Continues a request that has waited. The callback times of one request are added up."""
        request = callback.request
        now = self._now()
        if request.callback_request_dequeue_time_ns != NOT_SET:
            before = request.callback_request_complete_time_ns - request.callback_request_dequeue_time_ns
            request.callback_request_dequeue_time_ns = now - before
            request.callback_request_complete_time_ns = NOT_SET
        else:
            request.callback_request_dequeue_time_ns = now
        local.request = request
        try:
            try:
                callback.callback(local)
            finally:
                self.apis.try_complete_actions()
        except (Exception, FatalExitError) as error:  # noqa: BLE001 - the thread goes on
            self.apis.helper.close_after(request, error)
        finally:
            if request.callback_request_complete_time_ns == NOT_SET:
                request.callback_request_complete_time_ns = self._now()
            local.request = None
