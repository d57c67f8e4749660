"""Charges recorded requests again under other limits: the core of the dry run, without Spark.

The quota managers are the broker's own (`barnabas.quota`), with their sensors and windows; only the clock follows the
recording. So delays are computed exactly as a broker would compute them, for the same requests at the same times. But
a throttled client sends its next requests later, so the behaviour of clients has to be modelled.

**The model.** A connection is a queue. The broker reads one request of a connection at a time, and none while the
connection is muted; later requests of the client wait. So, for each connection, in the order of the recording:

* A request is *read* when it was read in the recording, or when the connection is free again, whichever is later.
* It is *charged* when its response was created in the recording, or, if it was read later than that, after the time
  for which the handler was busy with it. A late fetch does not wait: the records that it waited for exist by then.
* If the response has a throttle time, the connection is *free* again after that time.
* A fetch that exceeds its quota gets a response without records, and is not charged. The client sends it again when the
  connection is free. A fetch that is larger than the windows can hold takes several attempts.

A client reacts to a delay in one of two ways (`ClientBehaviour`):

* ``BACKLOG``: it collects records during the delay, and sends the backlog later, as fast as the limit allows. The
  offered load stays the same. Examples: a producer with a buffer that is filled at its own rate, or a consumer that
  has to read all records.
* ``SHIFT``: it stops until it can continue, and all its later requests are delayed by that time. Example: a client in
  a loop that waits for each response.

Not modelled:

* A throttled producer fills its batches better, so it sends fewer and larger requests (with the same bytes, except for
  some headers).
* A full buffer slows the application down (``BACKLOG`` overestimates) or loses records.
* A client that was already throttled during the recording offered less than it wanted.

With a sample of the requests, each of them counts as ``1 / sample_rate`` requests at once. Sums are right, times of
single requests are not.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from barnabas.metrics.registry import Metrics
from barnabas.quota.client_bandwidth_quota_manager import ClientBandwidthQuotaManager
from barnabas.quota.client_quota_manager import NO_LIMIT, ClientQuotaManager
from barnabas.quota.client_request_quota_manager import (
    NANOSECONDS_TO_PERCENTAGE_PER_SECOND,
    ClientRequestQuotaManager,
)
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import QuotaTags
from barnabas.quota.quota_type import ClientQuotaType, QuotaType
from barnabas.security.principal import KafkaPrincipal
from barnabas.spark.pipelines.quota_proposal import ProposedLimit, limits_of, user_of

_US_PER_MS: Final = 1_000
_PERCENTAGE_PER_US: Final = NANOSECONDS_TO_PERCENTAGE_PER_SECOND * 1_000
REQUEST_PERCENTAGE: Final = ClientQuotaType.REQUEST.key
_MOST_TRIES: Final = 10_000
"""A fetch that has not succeeded after this many attempts never will."""


class ClientBehaviour(Enum):
    """The reaction of a client to throttling; see above."""

    BACKLOG = "backlog"
    SHIFT = "shift"


class RecordedRequest(NamedTuple):
    """A request of the log, with the amounts to charge."""

    connection: str
    api: str
    principal: str
    client_id: str | None
    start_us: int
    """When it had been read."""
    answer_us: int
    """When it was charged."""
    busy_us: int
    send_us: int
    request_bytes: int
    response_bytes: int
    answered: bool
    """False for a produce request with acks=0, whose time is not charged."""
    weight: float = 1.0


class Charge(NamedTuple):
    """The charge of a request to one quota, and the resulting delay."""

    quota: str
    user: str
    client_id: str
    """The client id of the group that shares the quota; empty if the quota does not depend on it."""
    amount: float
    rate: float
    """The rate after the charge, as the broker measures it."""
    limit: float | None
    delay_ms: int


class Outcome(NamedTuple):
    """The result of a replayed request."""

    request: RecordedRequest
    charged_us: int
    delay_ms: int
    """The throttle time in the response: the longest of the delays."""
    quota: str
    """The quota that caused the delay; empty if there is no delay."""
    charges: tuple[Charge, ...]


class ReplayClock:
    """A clock with the time of the recording. wait() returns only when notified."""

    __slots__ = ("now_us",)

    def __init__(self) -> None:
        self.now_us = 0

    def milliseconds(self) -> int:
        return self.now_us // _US_PER_MS

    def nanoseconds(self) -> int:
        return self.now_us * 1_000

    hi_res_milliseconds = milliseconds

    def sleep(self, milliseconds: float) -> None:
        raise RuntimeError(f"sleep is not supported in a replay ({milliseconds} ms)")

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:  # noqa: ARG002
        return condition.wait()


class _Connection:
    """The remaining requests of a connection."""

    __slots__ = ("free_us", "next", "requests", "rest", "shift_us", "tries")

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self.next = 0
        self.free_us = 0
        self.shift_us = 0
        """With ``SHIFT``: the delay of all later requests against the recording."""
        self.rest = -1
        """The remaining bytes of the current fetch; -1 before its first attempt."""
        self.tries = 0

    def charge_time(self) -> int:
        """Returns when the next request is charged."""
        request = self.requests[self.next]
        read_us = max(request.start_us + self.shift_us, self.free_us)
        return max(request.answer_us + self.shift_us, read_us + request.busy_us)


@dataclass(frozen=True, slots=True)
class QuotaReplay:
    """Replays the requests of one component of clients, on one broker.

    Clients that share a limit or a connection belong to one component. Limits are per broker, so each broker is
    replayed separately.
    """

    limits: Sequence[ProposedLimit]
    windows: QuotaWindows = field(default_factory=QuotaWindows)
    behaviour: ClientBehaviour = ClientBehaviour.BACKLOG

    def run(self, requests: Iterable[RecordedRequest]) -> Iterator[Outcome]:
        """Yields the outcome of each request, in the order in which they are charged."""
        connections: dict[str, _Connection] = {}
        # The connection breaks ties: the order of Spark's rows is not deterministic.
        for request in sorted(requests, key=lambda one: (one.start_us, one.answer_us, one.connection)):
            connections.setdefault(request.connection, _Connection()).requests.append(request)
        clock = ReplayClock()
        clock.now_us = min((one.requests[0].start_us for one in connections.values()), default=0)
        managers = _Managers(self.limits, self.windows, clock)
        try:
            yield from self._run(list(connections.values()), managers, clock)
        finally:
            managers.close()

    def _run(self, connections: list[_Connection], managers: _Managers, clock: ReplayClock) -> Iterator[Outcome]:
        turns = [(connection.charge_time(), place) for place, connection in enumerate(connections)]
        heapq.heapify(turns)
        while turns:
            now_us, place = heapq.heappop(turns)
            connection = connections[place]
            request = connection.requests[connection.next]
            clock.now_us = now_us
            outcome = managers.charge(request, connection, now_us)
            connection.free_us = now_us + outcome.delay_ms * _US_PER_MS
            yield outcome
            if connection.rest < 0:
                connection.next += 1
                connection.tries = 0
            if connection.next == len(connection.requests):
                continue
            if self.behaviour is ClientBehaviour.SHIFT:
                planned_us = connection.requests[connection.next].start_us + connection.shift_us
                connection.shift_us += max(connection.free_us - planned_us, 0)
            heapq.heappush(turns, (connection.charge_time(), place))


class _Managers:
    """Charges requests to the broker's quota managers as the broker's handlers do."""

    def __init__(self, limits: Sequence[ProposedLimit], windows: QuotaWindows, clock: ReplayClock) -> None:
        metrics = Metrics(clock=clock)
        self.produce = ClientBandwidthQuotaManager(windows, metrics, QuotaType.PRODUCE, clock)
        self.fetch = ClientBandwidthQuotaManager(windows, metrics, QuotaType.FETCH, clock)
        self.request = ClientRequestQuotaManager(windows, metrics, clock)
        self._all: dict[str, ClientQuotaManager] = {
            ClientQuotaType.PRODUCE.key: self.produce,
            ClientQuotaType.FETCH.key: self.fetch,
            ClientQuotaType.REQUEST.key: self.request,
        }
        for quota, manager in self._all.items():
            for entity, limit in limits_of(limits, quota):
                manager.update_quota(entity, limit)
        self._windows = windows
        self._clock = clock

    def close(self) -> None:
        for manager in self._all.values():
            manager.shutdown()

    def charge(self, request: RecordedRequest, connection: _Connection, now_us: int) -> Outcome:
        """Charges a request as its handler does when it creates the response."""
        principal = KafkaPrincipal("User", user_of(request.principal))
        charges: list[Charge] = []
        if request.api == "Produce":
            charges.append(self._charge(self.produce, request, principal, request.request_bytes * request.weight))
        if request.answered:
            amount = request.busy_us * _PERCENTAGE_PER_US * request.weight
            charges.append(self._charge(self.request, request, principal, amount))
        if request.api == "Fetch":
            charges.append(self._fetch(request, connection, principal))
        # If two delays are equal, the request quota's counts.
        delay = max(charges, key=lambda one: (one.delay_ms, one.quota == REQUEST_PERCENTAGE), default=None)
        delay_ms = 0 if delay is None else delay.delay_ms
        if request.api == "Fetch":
            charges = self._answer_fetch(request, connection, principal, charges, delay_ms)
        if request.answered and self.request.is_enabled:
            # The send time is known only after the response was sent, so it delays only later requests.
            self.request.record_no_throttle(
                principal, request.client_id, request.send_us * _PERCENTAGE_PER_US * request.weight
            )
        quota = delay.quota if delay is not None and delay_ms > 0 else ""
        return Outcome(request, now_us, delay_ms, quota, tuple(charges))

    def _charge(
        self, manager: ClientQuotaManager, request: RecordedRequest, principal: KafkaPrincipal, amount: float
    ) -> Charge:
        quota = manager.quota_type.client_quota_type.key
        if not manager.is_enabled:
            return Charge(quota, "", "", amount, 0.0, None, 0)
        now_ms = self._clock.milliseconds()
        delay_ms = manager.record_and_get_throttle_time_ms(principal, request.client_id, amount, now_ms)
        sensors = manager.sensors_of(principal, request.client_id)
        metric = manager.metric(sensors)
        rate = 0.0 if metric is None else metric.value(now_ms)
        assert isinstance(sensors.key, QuotaTags), "there is no callback"
        bound = manager.quota(principal.name, request.client_id or "")
        return Charge(quota, *sensors.key, amount, rate, None if bound >= NO_LIMIT else bound, delay_ms)

    def _fetch(self, request: RecordedRequest, connection: _Connection, principal: KafkaPrincipal) -> Charge:
        if connection.rest < 0:
            connection.rest = math.ceil(request.response_bytes * request.weight)
        return self._charge(self.fetch, request, principal, min(connection.rest, self._most(request, principal)))

    def _most(self, request: RecordedRequest, principal: KafkaPrincipal) -> float:
        """Returns the maximum bytes of a fetch: as much as the windows can hold."""
        if not self.fetch.is_enabled:
            return math.inf
        limit = self.fetch.quota(principal.name, request.client_id or "")
        return limit * (self._windows.samples - 1) * self._windows.window_seconds

    def _answer_fetch(
        self,
        request: RecordedRequest,
        connection: _Connection,
        principal: KafkaPrincipal,
        charges: list[Charge],
        delay_ms: int,
    ) -> list[Charge]:
        """Refunds the charge of a throttled fetch, which is sent again later."""
        fetched = charges[-1]
        connection.tries += 1
        if delay_ms and connection.tries < _MOST_TRIES:
            if self.fetch.is_enabled:
                sensor = self.fetch.sensors_of(principal, request.client_id).quota_sensor
                sensor.record(-fetched.amount, self._clock.milliseconds(), check_quotas=False)
            return [*charges[:-1], fetched._replace(amount=0.0)]
        connection.rest -= math.ceil(fetched.amount)
        if connection.rest <= 0:
            connection.rest = -1
        return charges
