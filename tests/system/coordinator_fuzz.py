"""Random requests to the coordinators: well-formed, with values that no client would send.

The values come from small pools, so that requests meet each other: the same few groups, members, transactional ids and
producer ids, and the ids and epochs that the broker has given out. Among them are negative epochs, empty and null
strings, time-outs of 0 and of 2^31 - 1, entries that occur twice, protocols that nobody knows and metadata that cannot
be parsed.
"""

from __future__ import annotations

import random
import select
import socket
import struct
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import Field
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Message, Request, Response, Struct
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequestProtocol
from oracles.messages import all_messages

WEIGHTS: Final = {
    ApiKey.JOIN_GROUP: 6,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.OFFSET_DELETE: 1,
    ApiKey.DESCRIBE_GROUPS: 1,
    ApiKey.LIST_GROUPS: 1,
    ApiKey.DELETE_GROUPS: 0.2,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 6,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_TRANSACTIONS: 1,
    ApiKey.LIST_TRANSACTIONS: 0.5,
    ApiKey.DESCRIBE_PRODUCERS: 0.5,
}
_SUBSCRIPTION: Final = bytes.fromhex("0003 00000001 0001 74 ffffffff 00000000 ffffffff ffff")
_INTEGERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
_LENGTH: Final = struct.Struct(">i")
_CONNECTIONS: Final = 12
_PATIENCE_S: Final = 0.01


class _Membership(NamedTuple):
    group_id: str
    member_id: str = ""
    epoch: int = 0
    instance_id: str | None = None


class _Producer(NamedTuple):
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1


class RequestMaker:
    """Makes requests, and learns from responses what the broker knows.

    Nine values of ten are plausible ones, so that requests get past the first check.
    """

    def __init__(self, chance: random.Random, topic_ids: dict[str, Uuid]) -> None:
        self.chance = chance
        self._memberships = deque([_Membership("g1")], maxlen=8)
        self._producers = deque([_Producer("tx1")], maxlen=4)
        self._member = self._memberships[0]
        self._producer = self._producers[0]
        self._in_protocol = False
        self._topics = list(topic_ids)
        self._topic_ids = list(topic_ids.values())

    def request(self) -> tuple[Request, int]:
        (api,) = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        cls: Any = all_messages()[f"{api.title}Request"]
        lowest, highest = api.stable_versions
        version = self.chance.choice((highest, self.chance.randint(lowest, highest)))
        self._member = self.chance.choice((*self._memberships, *(_Membership(group) for group in ("g1", "g2", "g3"))))
        self._producer = self.chance.choice((*self._producers, *(_Producer(name) for name in ("tx1", "tx2"))))
        request = self._fill(cls, version)
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == 0 and not self._is_odd:
            # Only this combination joins.
            request.topic_partitions = []
            request.rebalance_timeout_ms = self.chance.choice((0, 1, 200, 2**31 - 1))
            request.member_id = request.member_id or self.chance.choice(("m1", "m2", "m3"))
            request.subscribed_topic_names = self.chance.choice(([], ["t"], ["t", "t"], ["t2", "nope"]))
            request.server_assignor = None
        return request, version

    def learn(self, request: Any, response: Any) -> None:
        """Takes over what the broker has given out."""
        if getattr(response, "member_id", None):
            epoch = getattr(response, "generation_id", getattr(response, "member_epoch", -1))
            instance = getattr(request, "instance_id", getattr(request, "group_instance_id", None))
            self._memberships.append(_Membership(request.group_id, response.member_id, epoch, instance))
        if getattr(response, "producer_id", -1) >= 0 and getattr(request, "transactional_id", None):
            self._producers.append(_Producer(request.transactional_id, response.producer_id, response.producer_epoch))

    @property
    def _is_odd(self) -> bool:
        return self.chance.random() < 0.1

    def _fill(self, cls: type[Struct], version: int) -> Any:
        self._in_protocol = cls is JoinGroupRequestProtocol
        return cls(
            **{
                field.name: self._value(field, version)
                for field in cls.fields
                if version in field.versions or field.is_tagged(version)
            }
        )

    def _value(self, field: Field, version: int) -> Any:
        chance = self.chance
        if "instance" in field.name and not self._is_odd:
            return self._member.instance_id if version in field.nullable else self._member.instance_id or ""
        if version in field.nullable and chance.random() < 0.2:
            return None
        if field.is_tagged(version) and chance.random() < 0.5:
            return field.make_default()
        if field.kind == "array":
            assert field.element is not None
            count = chance.choice((0, 1, 1, 1, 1, 1, 2, 2))
            values = [self._element(field.name, field.element, version) for _ in range(count)]
            return [*values, values[0]] if values and self._is_odd else values
        if field.kind == "struct":
            assert isinstance(field.element, type)
            return self._fill(field.element, version)
        return self._scalar(field.name, field.kind)

    def _element(self, name: str, element: str | type[Struct], version: int) -> Any:
        return self._scalar(name, element) if isinstance(element, str) else self._fill(element, version)

    def _scalar(self, name: str, kind: str) -> Any:
        chance = self.chance
        if kind in _INTEGERS:
            low, high = -(1 << (_INTEGERS[kind] - 1)), (1 << (_INTEGERS[kind] - 1)) - 1
            if kind.startswith("u"):
                low, high = 0, 2 * high + 1
            odd = (low, high, high - 1, -2, -1, 0, 1)
            return min(max(chance.choice(odd if self._is_odd else self._integers(name)), low), high)
        if kind == "bool":
            return chance.random() < 0.5
        if kind == "uuid":
            return (
                chance.choice((ZERO_UUID, Uuid(chance.randbytes(16))))
                if self._is_odd
                else chance.choice(self._topic_ids)
            )
        if kind == "string":
            return chance.choice(("", " ", "\n", "nope", "x" * 300) if self._is_odd else self._texts(name))
        if kind == "float64":
            return 0.0
        return chance.choice((b"", b"\x00", _SUBSCRIPTION[:-3], b"\xff" * 20)) if self._is_odd else _SUBSCRIPTION

    def _integers(self, name: str) -> Sequence[int]:
        if "timeout" in name:
            return (50, 100, 200, 2_000)
        if "producer_id" in name:
            return (self._producer.producer_id,)
        if name == "producer_epoch":
            return (self._producer.epoch,)
        if name == "member_epoch":
            return (self._member.epoch, self._member.epoch, self._member.epoch, 0, -1, -2)
        if "epoch" in name or "generation" in name:
            return (self._member.epoch,)
        return (0, 0, 1, 2)

    def _texts(self, name: str) -> Sequence[str]:
        if "instance" in name:
            return ("i1", "i2", "")
        if name == "protocol_type":
            return ("consumer", "consumer", "consumer", "connect")
        if name == "protocol_name":
            return ("range", "sticky")
        if "assignor" in name:
            return ("uniform", "range")
        if "regex" in name or "pattern" in name:
            return ("t.*", "", ".*", "(", "(a?a?a?){900}")
        if "transactional" in name:
            return (self._producer.transactional_id,)
        if "group" in name:
            return (self._member.group_id,)
        if "member" in name:
            return (self._member.member_id,)
        if "topic" in name:
            return self._topics
        if name == "name":
            return ("range", "range", "sticky") if self._in_protocol else self._topics
        return ("x", "g1", "tx1", "Stable", "Ongoing", "Classic")


class Connection:
    """One connection, with at most one request that waits for its response."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.waits_for: tuple[Request, int] | None = None
        self._read = bytearray()

    def send(self, request: Request, version: int) -> None:
        self.waits_for = request, version
        self.socket.sendall(encode_request(request, version, 1, "fuzz"))

    def receive(self, timeout_s: float) -> Response | None:
        """The response, if it is there within this time."""
        assert self.waits_for is not None
        while select.select([self.socket], [], [], timeout_s)[0]:
            part = self.socket.recv(1 << 16)
            if not part:
                raise ConnectionError(f"the broker closed the connection after {self.waits_for}")
            self._read += part
            if len(self._read) < _LENGTH.size:
                continue
            (length,) = _LENGTH.unpack_from(self._read)
            if len(self._read) < _LENGTH.size + length:
                continue
            body, self._read = bytes(self._read[8:]), bytearray()
            request, version = self.waits_for
            self.waits_for = None
            cls: Any = all_messages()[f"{request.api_key.title}Response"]
            start = 1 if request.api_key.response_header_version(version) else 0
            response: Response = cls.decode_from(body, version, start)[0]
            return response
        return None


def errors_in(response: Struct) -> Iterator[int]:
    """All error codes of a response."""
    for field in type(response).fields:
        value = getattr(response, field.name)
        if field.name.endswith("error_code") and isinstance(value, int):
            yield value
        elif isinstance(value, Struct):
            yield from errors_in(value)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for one in value:
                yield from errors_in(one)


class Outcome:
    """What came of a run."""

    def __init__(self) -> None:
        self.responses: Counter[str] = Counter()
        self.unknown_errors: list[tuple[Message, int]] = []
        """Requests with UNKNOWN_SERVER_ERROR in their response."""


def fuzz(address: tuple[str, int], maker: RequestMaker, count: int) -> Outcome:
    """Sends so many requests. Each of them must have a response: some wait for a rebalance, so there are several
    connections."""
    outcome = Outcome()
    free = deque(Connection(address) for _ in range(_CONNECTIONS))
    waiting: deque[Connection] = deque()

    def take(connection: Connection, timeout_s: float) -> bool:
        sent = connection.waits_for
        assert sent is not None
        response = connection.receive(timeout_s)
        if response is None:
            return False
        maker.learn(sent[0], response)
        codes = set(errors_in(response))
        outcome.responses.update(Errors.for_code(code).name for code in codes)
        if -1 in codes:
            outcome.unknown_errors.append(sent)
        return True

    try:
        for _ in range(count):
            for connection in list(waiting):
                if take(connection, 0):
                    waiting.remove(connection)
                    free.append(connection)
            if not free:
                connection = waiting.popleft()
                assert take(connection, 60), f"no response to {connection.waits_for}"
                free.append(connection)
            connection = free.popleft()
            connection.send(*maker.request())
            (free if take(connection, _PATIENCE_S) else waiting).append(connection)
        for connection in waiting:
            assert take(connection, 60), f"no response to {connection.waits_for}"
    finally:
        for connection in (*free, *waiting):
            connection.socket.close()
    return outcome
