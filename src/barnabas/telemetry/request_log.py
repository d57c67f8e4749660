"""The request log: writes a sample of requests as records of ``__request_log``.

Request metrics show how long requests of an API take. They cannot show which client's request was slow and where the
time was spent; that needs individual requests. `docs/telemetry.md` describes the fields.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

from barnabas.common.clock import Clock
from barnabas.common.log_safety import MAX_ARGUMENT, safe_text
from barnabas.network.reactor.send import FileRegion
from barnabas.network.server.plane import ConnectionContext
from barnabas.network.server.response import AnyResponse, ResponseKind, SendResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.principal import ANONYMOUS
from barnabas.server.request import Request
from barnabas.server.request_metrics import CompletionListener, RequestTimes
from barnabas.telemetry.response_errors import errors_in_frame
from barnabas.telemetry.topic_writer import TopicRecord, TopicWriter

SCHEMA_VERSION: Final = 1
SAMPLE_RATE: Final = "barnabas.request.log.sample.rate"
MAX_KEPT_BYTES: Final = 64 * 1024
"""Larger responses are not kept in memory to search them for errors."""
ENTRY_BYTES: Final = 1_024
"""The approximate size of an entry without its response."""
LINGER_MS: Final = 1_000
"""How long an entry waits to be written. A second is soon enough for single requests, and an entry in a batch of 33
costs half as much again as one in a batch of 160."""
MAX_PASSED_OVER: Final = 2**62
"""The limit for sample rates close to zero."""
_KINDS: Final = {kind: kind.name.lower() for kind in ResponseKind}


class RequestLogEntry(NamedTuple):
    """The data of a request that is kept until it is written, without its body, which may be large."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    context: ConnectionContext
    principal: Any
    client_address: str
    envelope_version: int | None
    request_bytes: int
    response_kind: ResponseKind
    response_bytes: int
    response_pieces: list[Any] | None
    moments: tuple[int, int, int, int, int, int]
    callback_ns: int
    throttle_time_ms: int
    sample_rate: float


class RequestLog:
    """Samples requests at random, and writes them.

    For a sampled request, the network thread that sent the response creates a tuple. Other requests cost no random
    number: after each sampled request, the number of requests to skip is drawn once, and the recorder of the metrics
    counts them down. When disabled, which is the default, nothing is counted either.

    Each request has the same probability, independent of API, client and earlier requests, so the numbers to skip have
    a geometric distribution. Counts times ``1 / sample_rate`` therefore estimate the totals, and every record contains
    its sample rate.
    """

    def __init__(
        self,
        times: RequestTimes,
        writer: TopicWriter[RequestLogEntry],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._times = times
        self._writer = writer
        self._chance = chance
        self._rate = 0.0
        self.on_entry: Callable[[RequestLogEntry], None] | None = None
        """Receives each sampled request as well; called on network threads."""

    @property
    def sample_rate(self) -> float:
        return self._rate

    @sample_rate.setter
    def sample_rate(self, rate: float) -> None:
        """Can be changed at any time; it applies from the next request on."""
        self._rate = rate
        self._times.listener = None
        if rate > 0:
            self._times.untold = passed_over(self._chance(), rate)
            self._times.listener = self._listener(rate)

    def _listener(self, rate: float) -> CompletionListener:
        times, chance, take, writer = self._times, self._chance, self._take, self._writer

        def request_chosen(request: Request, response: AnyResponse, now_ns: int) -> None:
            following = passed_over(chance(), rate)
            if times.listener is request_chosen:  # otherwise the rate has changed, and the number was drawn again
                times.untold = following
            try:
                take(request, response, now_ns, rate)
            except Exception:  # noqa: BLE001 - an error here must not close the client's connection
                writer.count_failed_record()

        return request_chosen

    def _take(self, request: Request, response: AnyResponse, now_ns: int, rate: float) -> None:
        envelope = request.envelope
        context = request.context
        pieces: list[Any] | None = None
        kept = response_bytes = 0
        if isinstance(response, SendResponse):
            response_bytes = response.size
            pieces = response.whole_pieces()
            if pieces is not None:
                kept = response_bytes
                if len(pieces) > 1:
                    kept = sum([len(piece) for piece in pieces if type(piece) is not FileRegion])
                if kept > MAX_KEPT_BYTES:
                    pieces, kept = None, 0
        if envelope is None:
            principal, address = context.principal, context.client_address
        else:
            original = request.request_context
            principal, address = original.principal, original.client_address
        entry = RequestLogEntry(
            request.api_key,
            request.api_version,
            request.correlation_id,
            request.client_id,
            context,
            principal,
            address,
            None if envelope is None else envelope.api_version,
            request.size,
            response.kind,
            response_bytes,
            pieces,
            (
                request.start_time_ns,
                request.request_dequeue_time_ns,
                request.api_local_complete_time_ns,
                request.response_complete_time_ns,
                request.response_dequeue_time_ns,
                now_ns,
            ),
            request.callback_request_complete_time_ns - request.callback_request_dequeue_time_ns,
            request.api_throttle_time_ms,
            rate,
        )
        self._writer.offer(entry, ENTRY_BYTES + kept)
        if self.on_entry is not None:
            self.on_entry(entry)


def passed_over(chance: float, rate: float) -> int:
    """Returns how many requests to skip before the next sample at this rate.

    More than n are skipped with a probability of ``(1 - rate) ** (n + 1)``; `chance`, from 0 up to but not including 1,
    selects the quantile.
    """
    if rate >= 1:
        return 0
    return int(min(math.log1p(-chance) / math.log1p(-rate), MAX_PASSED_OVER))


def completed_moments(moments: tuple[int, int, int, int, int, int]) -> tuple[int, int, int, int, int, int]:
    """Returns the six timestamps in non-decreasing order; a missing one is replaced by the next.

    A handler records the end of its local part after it has submitted the response, which may be sent by then.
    """
    start, dequeued, local, completed, taken, end = moments
    if start <= dequeued <= local <= completed <= taken:
        return moments
    dequeued = max(dequeued, start)
    completed = end if completed < 0 else max(completed, dequeued)
    local = completed if local < 0 else min(max(local, dequeued), completed)
    return start, dequeued, local, completed, max(taken, completed), end


class RequestLogEncoder:
    """Encodes entries as JSON.

    It formats the text itself instead of using a JSON library with a dict, which took half of the time of a request
    when every request was logged.
    """

    def __init__(self, node_id: int, clock: Clock) -> None:
        self._node_id = node_id
        self._clock = clock

    def __call__(self, entry: RequestLogEntry) -> TopicRecord:
        # The monotonic clock measures durations, the wall clock dates; they are combined here.
        epoch_us = self._clock.milliseconds() * 1_000 - self._clock.nanoseconds() // 1_000
        start, dequeued, local, completed, taken, end = [
            moment // 1_000 + epoch_us for moment in completed_moments(entry.moments)
        ]
        api_key, context, pieces = entry.api_key, entry.context, entry.response_pieces
        envelope_version = entry.envelope_version
        errors = None
        if pieces is not None:
            errors = errors_in_frame(api_key, entry.api_version, pieces, envelope_version=envelope_version)
        value = (
            f'{{"schema_version":{SCHEMA_VERSION},"node_id":{self._node_id},"sample_rate":{entry.sample_rate},'
            f'"api":"{api_key.title}","api_key":{api_key.value},"api_version":{entry.api_version},'
            f'"correlation_id":{entry.correlation_id},"client_id":{_quoted(entry.client_id)},'
            f'"client_software_name":{_quoted(context.client_software_name)},'
            f'"client_software_version":{_quoted(context.client_software_version)},'
            f'"principal":{_quoted(str(entry.principal or ANONYMOUS))},"listener":{_quoted(context.listener_name)},'
            f'"security_protocol":"{context.security_protocol.name}",'
            f'"client_address":{_quoted(entry.client_address)},"connection_id":{_quoted(context.connection_id)},'
            f'"forwarded":{"false" if envelope_version is None else "true"},'
            f'"request_bytes":{entry.request_bytes},"response":"{_KINDS[entry.response_kind]}",'
            f'"response_bytes":{entry.response_bytes},"start_time_us":{start},"request_dequeue_time_us":{dequeued},'
            f'"api_local_complete_time_us":{local},"response_complete_time_us":{completed},'
            f'"response_dequeue_time_us":{taken},"end_time_us":{end},'
            f'"callback_time_us":{max(entry.callback_ns, 0) // 1_000},"throttle_time_ms":{entry.throttle_time_ms},'
            f'"errors":{"{}" if errors == {} else json.dumps(errors)}}}'
        )
        return TopicRecord(end // 1_000, value.encode("ascii"))


def _quoted(text: str | None) -> str:
    """Encodes in ASCII: readers split lines at more characters than JSON escapes, and show text of either direction."""
    if text is None:
        return "null"
    return encode_basestring_ascii(text if len(text) <= MAX_ARGUMENT else safe_text(text))
