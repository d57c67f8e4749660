"""Recorded requests, charged again under other limits: the core of the dry run, without Spark.

The managers here are the broker's own (`barnabas.quota`), with their sensors and windows; only the clock is set by the
recording. So a delay is computed to the millisecond as a broker would compute it, for the same requests at the same
times. What has to be modelled is what clients do when they are held back, for then the requests are not at the same
times any more.

**The model.** A connection is a queue. The broker reads one request of a connection at a time, and while a connection
is muted it reads none; what the client sends meanwhile waits. So, for each connection, in the order of the recording:

* A request is *read* when it was read in the recording, or when the connection is free again, whichever is later.
* It is *charged* when its answer was made in the recording, or, if it was read later than that, after the time for
  which the handler was busy with it. Nothing else takes time: what a late fetch waited for is there by now.
* If the answer says to wait, the connection is *free* again after that time, and not before.
* A fetch that is over its quota is answered without records and not charged. The client asks again, so it is tried
  again when the connection is free. One that is larger than the windows can hold is had in several goes.

What a client does about a delay is one of two things (`ClientBehaviour`):

* ``BACKLOG``: it goes on collecting, and what it could not send it sends later, as fast as it may. The load that is
  offered stays as it was. This is a producer with a buffer, fed at a rate of its own; or a consumer that has to read
  all there is.
* ``SHIFT``: it does nothing until it can go on, and from there on everything is later by that. This is a client in a
  loop that waits for each answer.

What is not modelled: a producer that is held back fills its batches better, so it sends fewer and larger requests (the
bytes are the same but for some headers); a buffer that is full, after which the application is slower (``BACKLOG``
overestimates) or loses records; and a client that was already held back while the recording was made: then less was
offered than it wanted.

With a sample of the requests, each counts for ``1 / sample_rate`` of its kind at once. Sums come out right, times of
single requests do not.
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
"""A fetch that is not through after so many goes never will be, whatever is wrong."""


class ClientBehaviour(Enum):
    """What a client does with the time for which it is held back; see above."""

    BACKLOG = "backlog"
    SHIFT = "shift"


class RecordedRequest(NamedTuple):
    """A request of the log, with what is charged for it."""

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
    """False: a produce request without acks, which is not charged for its time."""
    weight: float = 1.0


class Charge(NamedTuple):
    """What a request costs under one quota, and the delay for that."""

    quota: str
    user: str
    client_id: str
    """The group of clients that shares the quota; empty where it does not go by that."""
    amount: float
    rate: float
    """After it, as the broker measures it."""
    limit: float | None
    delay_ms: int


class Outcome(NamedTuple):
    """A request as it would have gone."""

    request: RecordedRequest
    charged_us: int
    delay_ms: int
    """What the answer says: the longest of the delays."""
    quota: str
    """Which quota that is for; empty if there is no delay."""
    charges: tuple[Charge, ...]


class ReplayClock:
    """Shows the time of the recording. Whoever waits on it waits until he is told to stop."""

    __slots__ = ("now_us",)

    def __init__(self) -> None:
        self.now_us = 0

    def milliseconds(self) -> int:
        return self.now_us // _US_PER_MS

    def nanoseconds(self) -> int:
        return self.now_us * 1_000

    hi_res_milliseconds = milliseconds

    def sleep(self, milliseconds: float) -> None:
        raise RuntimeError(f"nobody sleeps in a recording ({milliseconds} ms)")

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:  # noqa: ARG002
        return condition.wait()


class _Connection:
    """The requests of a connection that are still to come."""

    __slots__ = ("free_us", "next", "requests", "rest", "shift_us", "tries")

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self.next = 0
        self.free_us = 0
        self.shift_us = 0
        """By how much everything is later than in the recording, if the client has shifted it."""
        self.rest = -1
        """Of the fetch whose turn it is: the bytes that are still to be had; -1 if it was not tried yet."""
        self.tries = 0

    def charge_time(self) -> int:
        """When the next request is charged."""
        request = self.requests[self.next]
        read_us = max(request.start_us + self.shift_us, self.free_us)
        return max(request.answer_us + self.shift_us, read_us + request.busy_us)


@dataclass(frozen=True, slots=True)
class QuotaReplay:
    """Replays the requests of clients that have to do with each other, on one broker.

    Those are all that share a limit, and all that share a connection. Limits are per broker, so brokers are replayed
    apart.
    """

    limits: Sequence[ProposedLimit]
    windows: QuotaWindows = field(default_factory=QuotaWindows)
    behaviour: ClientBehaviour = ClientBehaviour.BACKLOG

    def run(self, requests: Iterable[RecordedRequest]) -> Iterator[Outcome]:
        """What would have become of each request, in the order in which they are charged."""
        connections: dict[str, _Connection] = {}
        # Connections decide where times are the same: rows come in whatever order Spark has them.
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
    """The broker's quota managers, and what its handlers ask of them."""

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
        """What the handler of the request does when the answer is made."""
        principal = KafkaPrincipal("User", user_of(request.principal))
        charges: list[Charge] = []
        if request.api == "Produce":
            charges.append(self._charge(self.produce, request, principal, request.request_bytes * request.weight))
        if request.answered:
            amount = request.busy_us * _PERCENTAGE_PER_US * request.weight
            charges.append(self._charge(self.request, request, principal, amount))
        if request.api == "Fetch":
            charges.append(self._fetch(request, connection, principal))
        # Of two delays that are the same, it is the request quota's that counts.
        delay = max(charges, key=lambda one: (one.delay_ms, one.quota == REQUEST_PERCENTAGE), default=None)
        delay_ms = 0 if delay is None else delay.delay_ms
        if request.api == "Fetch":
            charges = self._answer_fetch(request, connection, principal, charges, delay_ms)
        if request.answered and self.request.is_enabled:
            # Known when the answer has gone out, and charged to whatever comes next.
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
        """No more is read for a fetch than the windows can hold."""
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
        """Takes back what a fetch that is held back was charged; it is still to be had then."""
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
